"""Hand-offs: for how long there was room before the request that waited for it was started.

Step Functions tells when the workflows of a process began and ended. The process's item tells who was refused last,
often after that one has started too; once its registration is removed, the run before has read it. So each run of the
janitor can measure the hand-off to that request: one sample a process and run, and none where no request waited.

A sample is too short by what a workflow does between its release and its end, a fraction of a second: it shows seconds
and minutes. There is none where a limit was changed or a pause lifted since the round before, for then the request did
not wait for a workflow's end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.process import Process

# Seconds. The janitor wakes who waits beside room in every round, so hand-offs that take longer are no longer one.
LOOK_BACK_SECONDS = 900
# Seconds for which an end may be missing from the list, which is eventually consistent (ListExecutions).
LIST_LAG_SECONDS = 10
# Of a list that is longer nothing is measured: a round has other things to do, and a part of it would tell of room that
# there was not.
MAX_EXECUTIONS = 5000


@dataclass(frozen=True)
class Stay:
    """A workflow, from its start to its end, in seconds since the epoch; `ended` is None while it runs."""

    started: float
    ended: float | None = None


def hand_off(started: float, others: Iterable[Stay], slot_limit: int) -> float | None:
    """For how many seconds before a start the others left room; None if, as far as is told, they always did."""
    before = [stay for stay in others if stay.started <= started]
    held = sum(stay.ended is None or stay.ended > started for stay in before)
    if held >= slot_limit:
        return 0.0  # one of them had given its slot back and not ended yet
    changes = [(stay.ended, 1) for stay in before if stay.ended is not None and stay.ended <= started]
    changes += [(stay.started, -1) for stay in before]
    # Back in time: who ended was there before, who started was not. At one moment, the one took the other's slot.
    for moment, change in sorted(changes, key=lambda each: (-each[0], each[1])):
        held += change
        if held >= slot_limit:
            return started - moment
    return None


@dataclass(frozen=True)
class _Seen:
    slot_limit: int
    paused: bool
    waiter: str | None  # the last execution that was registered
    measured: str | None  # the last execution that needs no more measuring


class HandOffs:
    """Measures from round to round. What it knows of the round before is a container's own: its first has no sample."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._seen: dict[str, _Seen] = {}

    def measure(self, processes: Iterable[Process], now: float) -> dict[str, float]:
        """Process -> seconds, for those to whose last waiter a slot was handed since. Errors pass through.

        Args:
            processes: as this round has read them.
            now: seconds since the epoch.
        """
        hand_offs: dict[str, float] = {}
        stays: Mapping[str, Mapping[str, Stay]] | None = None
        for process in processes:
            before = self._seen.get(process.name)
            waiter = process.waiting_execution or (before.waiter if before else None)
            measured = before.measured if before else None
            same = before is not None and (before.slot_limit, before.paused) == (process.slot_limit, process.paused)
            if waiter is not None and waiter != measured:
                stays = self._stays(now) if stays is None else stays
                of_process = stays.get(process.name, {})
                stay = of_process.get(waiter)
                if stay is None:
                    # Beside room nobody waits for long: it was over before the time to which the list reaches.
                    measured = waiter if process.has_free_slot else measured
                elif stay.started <= now - LIST_LAG_SECONDS:
                    measured = waiter
                    others = (other for name, other in of_process.items() if name != waiter)
                    seconds = hand_off(stay.started, others, process.slot_limit)
                    if same and not process.paused and seconds is not None:
                        hand_offs[process.name] = seconds
            self._seen[process.name] = _Seen(process.slot_limit, process.paused, waiter, measured)
        return hand_offs

    def _stays(self, now: float) -> dict[str, dict[str, Stay]]:
        stays: dict[str, dict[str, Stay]] = defaultdict(dict)
        executions = list(islice(self._workflow.since(now - LOOK_BACK_SECONDS), MAX_EXECUTIONS + 1))
        if len(executions) > MAX_EXECUTIONS:
            return {}
        for execution in executions:
            if execution.started_at is not None:
                process = execution.name.rpartition("-")[0]
                stays[process][execution.name] = Stay(execution.started_at, execution.stopped_at)
        return stays
