"""Decides which holders are dead. Age alone never frees a slot.

- RESERVED: dead if Step Functions knows no execution of this name, or a closed one. If the starter is alive after all,
  the workflow's confirm fails, and the workflow returns the request to the queue.
- RUNNING a Glue job: dead if the execution is closed and two checks, a gap apart and both after the close, find no live
  Glue run of it. A Glue run outlives an aborted execution, and a StartJobRun that was in flight at the first check may
  be visible only at the second.
- RUNNING a state machine: dead if the execution is closed, and its child execution is closed too, or absent at two such
  checks. A closed child is exact: Step Functions starts no second execution of its name.
- LEASED: not decided here. A lease has no execution and no run; its end alone decides (lease_protocol.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from slotkeeper.slots.children import Child, Children
from slotkeeper.slots.executions import Execution
from slotkeeper.slots.glue import GlueRuns, JobRunSearch
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.run_report import RunReport

# Seconds. DescribeExecution is eventually consistent and may lag behind StartExecution, but not for a day.
_FORGOTTEN_AFTER = 86400


class Verdict(Enum):
    """What the janitor may do with a holder."""

    ALIVE = auto()
    CANCEL = auto()
    CHECK_WORK = auto()


class CheckOutcome(Enum):
    """The result of one check of a holder's Glue runs, or of its child execution."""

    WORK_ALIVE = auto()
    CHECKED_ONCE = auto()
    TOO_SOON = auto()
    FREED = auto()
    HOLDER_CHANGED = auto()
    NOT_SETTLED = auto()


def judge(holder: Holder, execution: Execution | None, now: float, grace: int) -> Verdict:
    """Decide what the janitor may do with a holder, from the state of its execution.

    Args:
        execution: None if Step Functions knows no execution of this name.
        now: seconds since the epoch.
        grace: minimum age, in seconds, of a reservation or of an execution's end.
    """
    age = now - holder.since
    if holder.is_lease:
        return Verdict.ALIVE
    if holder.state == "RESERVED":
        dead = execution is None or execution.is_closed
        return Verdict.CANCEL if dead and age >= grace else Verdict.ALIVE
    if execution is None:
        return Verdict.CHECK_WORK if age >= _FORGOTTEN_AFTER else Verdict.ALIVE
    if execution.is_closed and execution.stopped_at is not None and now - execution.stopped_at >= grace:
        return Verdict.CHECK_WORK
    return Verdict.ALIVE


@dataclass(frozen=True)
class Held:
    """A slot as it was read, and its holder. `closed_at`: when the workflow ended, epoch seconds; None if unknown."""

    process: Process
    name: str
    holder: Holder
    closed_at: float | None

    @property
    def target(self) -> str:
        return self.holder.target or self.process.target


@dataclass(frozen=True)
class DeadHolders:
    """Checks the work of holders and frees their slots. Every write requires that the holder is unchanged.

    Args:
        look_gap: minimum seconds between the two checks.
        clock: seconds since the epoch.
    """

    slots: Slots
    glue: GlueRuns
    children: Children
    look_gap: int
    clock: Callable[[], float]

    def cancel(self, held: Held, report: RunReport) -> bool:
        """Free a reservation; False if the holder has changed since it was read."""
        freed = self.slots.release(held.process.name, held.name, held.holder.raw)
        if freed:
            report.note("SlotsReclaimed", "Freed a reserved slot whose workflow does not run", execution=held.name)
        return freed

    def conclude(
        self, held: Held, search: JobRunSearch, report: RunReport, settle: Callable[[], bool] = lambda: True
    ) -> CheckOutcome:
        """Evaluate one check of a holder whose runs the search covers, and free its slot after the second check.

        A check lasts from the start of the search to now. The gap is measured from the end of the first check to the
        start of the second, so one search may be long and may cover many holders.

        Args:
            settle: as for conclude_child.
        """
        alive = list(search.alive.get(held.name, ()))
        if alive:
            self.glue.stop(held.target, alive)
            report.note(
                "GlueRunsStopped", "Stopped a Glue run whose workflow has ended", runs=alive, execution=held.name
            )
            return self._found_alive(held)
        return self._found_none(held, search.started_at, report, settle)

    def conclude_child(
        self, held: Held, child: Child | None, checked_at: float, report: RunReport, settle: Callable[[], bool]
    ) -> CheckOutcome:
        """Evaluate one check of a holder whose target is a state machine; free its slot if the child has ended.

        An execution of the same name that is not ours counts as absent.

        Args:
            child: as it was described after `checked_at`.
            settle: settles the holder's request; False if that is not done yet, so that the slot is kept. It is called
                when the child's outcome is known.
        """
        if child is None or not child.is_ours:
            return self._found_none(held, checked_at, report, settle)
        if not child.is_closed:
            if not (held.holder.redriven or child.redrives):
                self.children.stop(held.target, held.name)
                report.note(
                    "ChildrenStopped", "Stopped a child execution whose workflow has ended", execution=held.name
                )
            return self._found_alive(held)
        if self.clock() < child.settles_at(held.process.settle_seconds):
            return CheckOutcome.TOO_SOON
        return self._free(held, report) if settle() else CheckOutcome.NOT_SETTLED

    def _found_alive(self, held: Held) -> CheckOutcome:
        if held.holder.quiet_since is not None:
            self.slots.mark_quiet(held.process.name, held.name, held.holder.raw, None)
        return CheckOutcome.WORK_ALIVE

    def _found_none(self, held: Held, checked_at: float, report: RunReport, settle: Callable[[], bool]) -> CheckOutcome:
        if held.closed_at is not None and checked_at < held.closed_at:
            return CheckOutcome.TOO_SOON
        quiet_since = held.holder.quiet_since
        # A redriven execution keeps its holder, so a check from before its last end does not count.
        if quiet_since is None or (held.closed_at is not None and quiet_since < held.closed_at):
            marked = self.slots.mark_quiet(held.process.name, held.name, held.holder.raw, self.clock())
            return CheckOutcome.CHECKED_ONCE if marked else CheckOutcome.HOLDER_CHANGED
        if checked_at - quiet_since < self.look_gap:
            return CheckOutcome.TOO_SOON
        return self._free(held, report) if settle() else CheckOutcome.NOT_SETTLED

    def _free(self, held: Held, report: RunReport) -> CheckOutcome:
        if not self.slots.release(held.process.name, held.name, held.holder.raw):
            return CheckOutcome.HOLDER_CHANGED
        report.note("SlotsReclaimed", "Freed the slot of a workflow that has ended", execution=held.name)
        return CheckOutcome.FREED
