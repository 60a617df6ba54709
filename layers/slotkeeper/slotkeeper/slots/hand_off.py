"""Measures hand-offs: for how long a slot was free before a waiting request started.

Step Functions lists when the workflows of a process started and ended. The process's item contains the request whose
turn it is, until that request starts. So each janitor run can measure the hand-off to a request that an earlier run has
seen waiting: at most one sample per process and run, and none if no request waited.

A sample is too short by the time between a workflow's release and its end, a fraction of a second. There is no sample
if a limit was changed or a pause lifted since the previous run, because then the request did not wait for the end of a
workflow, and none for a process whose holders have weights: Step Functions does not list the weights of the others. Nor
does it list leases, so there is none for a process in which this container has seen a lease. And there is none for a
process with a rate, for which a request may wait although a slot is free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import process_of_execution

# Seconds. A longer wait is not a hand-off: every janitor run wakes requests that wait although a slot is free.
LOOK_BACK_SECONDS = 900
# Seconds for which a closed execution may be missing from the list, which is eventually consistent (ListExecutions).
LIST_LAG_SECONDS = 10
# With a longer list nothing is measured: reading it takes too long, and a part of it would show slots as free that were
# held.
MAX_EXECUTIONS = 5000


@dataclass(frozen=True)
class Stay:
    """The start and the end of a workflow, in seconds since the epoch. `ended` is None while it runs."""

    started: float
    ended: float | None = None


def hand_off(started: float, others: Iterable[Stay], slot_limit: int) -> float | None:
    """Return for how many seconds before a start a slot was free; None if the data shows one as always free."""
    before = [stay for stay in others if stay.started <= started]
    held = sum(stay.ended is None or stay.ended > started for stay in before)
    if held >= slot_limit:
        return 0.0  # one of them had released its slot but not ended yet
    changes = [(stay.ended, 1) for stay in before if stay.ended is not None and stay.ended <= started]
    changes += [(stay.started, -1) for stay in before]
    # Count back in time: an end adds a holder, a start removes one. At equal times the start took the ended one's slot.
    for moment, change in sorted(changes, key=lambda each: (-each[0], each[1])):
        held += change
        if held >= slot_limit:
            return started - moment
    return None


@dataclass(frozen=True)
class _Seen:
    slot_limit: int
    paused: bool
    waiting: str | None  # the execution that is to be measured when it has started
    has_leases: bool


class HandOffs:
    """Measures in each janitor run. It remembers the previous run of this container, so the first has no sample."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._seen: dict[str, _Seen] = {}

    def measure(self, processes: Iterable[Process], now: float) -> dict[str, float]:
        """Return process -> seconds, for each process with a hand-off since the previous run. Errors pass through.

        Args:
            processes: as this run has read them.
            now: seconds since the epoch.
        """
        hand_offs: dict[str, float] = {}
        stays: Mapping[str, Mapping[str, Stay]] | None = None
        for process in processes:
            before = self._seen.get(process.name)
            waiting = before.waiting if before else None
            has_leases = any(each.is_lease for each in process.holders.values())
            has_leases = has_leases or (before is not None and before.has_leases)
            registered = {each.execution for each in process.waiting.values()}
            # A registration ends when its request starts. A request that still waits may have been overtaken.
            is_done = waiting is None or waiting in registered
            if before and waiting and not is_done:
                stays = self._stays(now) if stays is None else stays
                of_process = stays.get(process.name, {})
                if stay := of_process.get(waiting):
                    is_done = stay.started <= now - LIST_LAG_SECONDS
                    others = (other for name, other in of_process.items() if name != waiting)
                    seconds = hand_off(stay.started, others, process.slot_limit)
                    same = (before.slot_limit, before.paused) == (process.slot_limit, process.paused)
                    are_listed = process.held_weight == len(process.holders) and not has_leases
                    may_start = not process.paused and process.rate is None
                    if is_done and same and are_listed and may_start and seconds is not None:
                        hand_offs[process.name] = seconds
                else:
                    # It is not listed yet, or was dead-lettered.
                    is_done = waiting not in process.holders
            if is_done:
                waiting = process.first.execution if process.first else None
            self._seen[process.name] = _Seen(process.slot_limit, process.paused, waiting, has_leases)
        return hand_offs

    def _stays(self, now: float) -> dict[str, dict[str, Stay]]:
        stays: dict[str, dict[str, Stay]] = defaultdict(dict)
        executions = list(islice(self._workflow.since(now - LOOK_BACK_SECONDS), MAX_EXECUTIONS + 1))
        if len(executions) > MAX_EXECUTIONS:
            return {}
        for execution in executions:
            if execution.started_at is not None:
                process = process_of_execution(execution.name)
                stays[process][execution.name] = Stay(execution.started_at, execution.stopped_at)
        return stays
