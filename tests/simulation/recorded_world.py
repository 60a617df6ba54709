"""A world of the slots that records: requests are sent, settings change and callers take leases at given times.

Without faults, and without the checks of each state, which other tests make. So a run of a hundred requests takes a
second or two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from slotkeeper.slots.process import Process
from slotkeeper.slots.rows import RequestRow, read_row
from slotkeeper_cli.formatting import iso
from tests.simulation import slots_actors as code
from tests.simulation.frozen import Record, thaw
from tests.simulation.slots_state import PROCESS, Plan, Sent, owner_of
from tests.simulation.slots_world import Notes, SlotsWorld
from tests.simulation.workflow import ROWS
from tests.simulation.worlds import BEGINNING, Choice


class Arrival(NamedTuple):
    """A request, when it is sent, and how long its work takes, in seconds from the beginning."""

    at: float
    sent: Sent
    seconds: float


class Act(NamedTuple):
    """What happens at a time, in seconds from the beginning: an operator's command, or a caller of a lease."""

    at: float
    act: Callable[[RecordedWorld], None]
    line: Mapping[str, Any] = {}  # of the audit log, which a command writes


def command(at: float, limit: int, name: str, **fields: int) -> Act:
    """An operator's command: sets the limit, pauses (0) or resumes (-1). `fields`: of its line of the audit log."""

    def change(world: RecordedWorld) -> None:
        world.limits = (limit,)
        world.operate("", "")

    return Act(at, change, {"action": f"process {name}", **fields})


def redrive(at: float, request_id: str) -> Act:
    """An operator redrives a request that has failed."""

    def again(world: RecordedWorld) -> None:
        world.again = (request_id,)
        world.queue_again(world._failed(request_id), "")

    return Act(at, again)


def lease(at: float, number: int, seconds: int) -> Act:
    """A caller holds a lease for a time, and extends it every half a minute."""

    def take(world: RecordedWorld) -> None:
        world.begin(f"caller {number}", code.caller.begin(number, seconds, 60), Notes())

    return Act(at, take)


class RecordedWorld(SlotsWorld):
    """The world.

    Args:
        fails: the ids of the requests whose first attempt fails.
    """

    def __init__(self, plan: Plan, arrivals: Sequence[Arrival], acts: Sequence[Act] = (), fails: Sequence[str] = ()):
        sent = tuple(each.sent for each in arrivals)
        self._agenda: list[Act] = []
        super().__init__(replace(plan, requests=(), run_seconds=(1,), batch=True, leases=(0.0,) * 9))
        self.plan = replace(self.plan, requests=sent)
        sendings = [Act(each.at, lambda world, of=each.sent: world._send(of)) for each in arrivals]  # type: ignore[misc]
        self._agenda = sorted([*sendings, *acts], key=lambda each: each.at)
        self._seconds = {each.sent.id: each.seconds for each in arrivals}
        self._fail = fails
        self.audit_lines = [
            {"at": iso(BEGINNING + each.at), "process": PROCESS, **each.line} for each in acts if each.line
        ]

    def run(self, until: float = float("inf")) -> None:
        """Let all happen, until a time in seconds from the beginning, or to the end."""
        while True:
            if choices := self.steps():
                self.take(choices[0])
            elif (due := self.due_times()) and min(due) <= BEGINNING + until:
                self.now = min(due)
            else:
                self.now = max(self.now, BEGINNING + until) if until < float("inf") else self.now
                return

    def rows(self) -> list[RequestRow]:
        """The rows of the process."""
        rows = [read_row(thaw(row)) for row in self.services["dynamodb"][ROWS].fields.values()]
        return [row for row in rows if row.process == PROCESS]

    def process(self) -> Process:
        """The item of the process."""
        found = self._process(PROCESS)
        assert found is not None
        return found

    def act(self, _: str, __: str) -> None:
        """The next entry of the agenda."""
        self._agenda.pop(0).act(self)

    def steps(self) -> list[Choice]:
        if self._agenda and self._agenda[0].at + BEGINNING <= self.now:
            return [Choice("act")]
        return super().steps()

    def times(self) -> list[float]:
        return [*super().times(), *(each.at + BEGINNING for each in self._agenda[:1])]

    def _ends_at(self, run: Record) -> float:
        row = self._rows()[owner_of(run)]
        return float(run["started"]) + self._seconds[row["request_id"]["S"]]

    def _fails(self, number: int) -> bool:
        row = self._rows()[owner_of(self.services["glue"]["job"]["runs"][number - 1])]
        return row["request_id"]["S"] in self._fail and row["attempt"]["N"] == "1"

    def _external_choices(self) -> list[Choice]:
        return []

    def check(self, *_: object) -> None:
        """Nothing: this run is not a test of the guarantees."""

    _check_overdue = _check_in_time = _check_closed = _check_question = _note_published = _check_started_as = check  # type: ignore[assignment]
