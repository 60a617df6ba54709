"""Which holders are dead, and the proof of it: a closed execution, and two checks that find no Glue run of it alive.

Never by age alone. A reservation goes back if Step Functions knows no such execution, or a closed one; should its
starter be alive after all, the workflow's confirm step finds the slot gone and gives the request back. A running
holder's slot goes back if its execution is closed and two checks, a gap apart and both after the close, find no Glue
run of it alive: a run outlives an aborted execution, and a StartJobRun that was under way may show only at the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from slotkeeper.slots.executions import Execution
from slotkeeper.slots.glue import GlueRuns, JobRunSearch
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.run_report import RunReport

# DescribeExecution may lag behind StartExecution (it is eventually consistent), but not for a day.
_FORGOTTEN_AFTER = 86400


class Verdict(Enum):
    """What may be done about a holder."""

    ALIVE = auto()
    CANCEL = auto()
    CHECK_GLUE = auto()


class CheckOutcome(Enum):
    """What one check of Glue has shown and done."""

    RUN_ALIVE = auto()
    CHECKED_ONCE = auto()
    TOO_SOON = auto()
    FREED = auto()
    HOLDER_CHANGED = auto()


def judge(holder: Holder, execution: Execution | None, now: float, grace: int) -> Verdict:
    """What may be done about a holder, given what Step Functions says of its execution.

    Args:
        execution: None if Step Functions knows none of this name.
        grace: seconds that a reservation, or the end of an execution, must lie in the past.
    """
    age = now - holder.since
    if holder.state == "RESERVED":
        dead = execution is None or execution.is_closed
        return Verdict.CANCEL if dead and age >= grace else Verdict.ALIVE
    if execution is None:
        return Verdict.CHECK_GLUE if age >= _FORGOTTEN_AFTER else Verdict.ALIVE
    if execution.is_closed and execution.stopped_at is not None and now - execution.stopped_at >= grace:
        return Verdict.CHECK_GLUE
    return Verdict.ALIVE


@dataclass(frozen=True)
class Held:
    """A slot as it was read, whose holder's workflow has ended. `closed_at` is None if that is not known."""

    process: Process
    name: str
    holder: Holder
    closed_at: float | None

    @property
    def job(self) -> str:
        return self.holder.job or self.process.job_name


@dataclass(frozen=True)
class DeadHolders:
    """The checks of Glue, and what follows from them. Every write is conditional on the holder as it was read.

    Args:
        look_gap: seconds that must lie between the two checks.
        clock: seconds since the epoch.
    """

    slots: Slots
    glue: GlueRuns
    look_gap: int
    clock: Callable[[], float]

    def cancel(self, held: Held, report: RunReport) -> bool:
        """Takes back a reservation; False if it is another by now, of a starter that is about to start it."""
        freed = self.slots.release(held.process.name, held.name, held.holder.raw)
        if freed:
            report.note("SlotsReclaimed", "Took back a reservation without a workflow", execution=held.name)
        return freed

    def conclude(self, held: Held, search: JobRunSearch, report: RunReport) -> CheckOutcome:
        """What one check of Glue says of a holder whose runs the search covers.

        A check lasts from the search's beginning to now. The gap lies between the end of the first and the beginning
        of the second, so a search may serve many holders, and take long.
        """
        alive = list(search.alive.get(held.name, ()))
        if alive:
            self.glue.stop(held.job, alive)
            report.note(
                "GlueRunsStopped", "Stopped a Glue run whose workflow has ended", runs=alive, execution=held.name
            )
            if held.holder.quiet_since is not None:
                self.slots.mark_quiet(held.process.name, held.name, held.holder.raw, None)
            return CheckOutcome.RUN_ALIVE
        if held.closed_at is not None and search.begun < held.closed_at:
            return CheckOutcome.TOO_SOON
        quiet_since = held.holder.quiet_since
        # A redriven execution keeps its holder: a check from before its last end says nothing of what came after.
        if quiet_since is None or (held.closed_at is not None and quiet_since < held.closed_at):
            marked = self.slots.mark_quiet(held.process.name, held.name, held.holder.raw, self.clock())
            return CheckOutcome.CHECKED_ONCE if marked else CheckOutcome.HOLDER_CHANGED
        if search.begun - quiet_since < self.look_gap:
            return CheckOutcome.TOO_SOON
        if not self.slots.release(held.process.name, held.name, held.holder.raw):
            return CheckOutcome.HOLDER_CHANGED
        report.note("SlotsReclaimed", "Took back the slot of a workflow that has ended", execution=held.name)
        return CheckOutcome.FREED
