"""Which holders are dead, and the proof of it: a closed execution, and two checks that find no Glue run of it alive.

Never by age alone. A reservation goes back if Step Functions knows no such execution, or a closed one; should its
starter be alive after all, the workflow's confirm step finds the slot gone and gives the request back. A running
holder's slot goes back if its execution is closed and two checks, a gap apart and both after the close, find no Glue
run of it alive: a run outlives an aborted execution, and a StartJobRun that was under way may show only at the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from slotkeeper.slots.executions import Execution
from slotkeeper.slots.glue import GlueRuns, JobRunSearch
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.run_report import Findings

# DescribeExecution may lag behind StartExecution (it is eventually consistent), but not for a day.
_FORGOTTEN_AFTER = 86400

Verdict = Literal["alive", "cancel", "look at Glue"]
Concluded = Literal["a run is alive", "checked once", "too soon", "freed", "changed"]


def judge(holder: Holder, execution: Execution | None, now: float, grace: int) -> Verdict:
    """What may be done about a holder, given what Step Functions says of its execution.

    Args:
        execution: None if Step Functions knows none of this name.
        grace: seconds that a reservation, or the end of an execution, must lie in the past.
    """
    age = now - holder.since
    if holder.state == "RESERVED":
        dead = execution is None or execution.is_closed
        return "cancel" if dead and age >= grace else "alive"
    if execution is None:
        return "look at Glue" if age >= _FORGOTTEN_AFTER else "alive"
    if execution.is_closed and execution.stopped_at is not None and now - execution.stopped_at >= grace:
        return "look at Glue"
    return "alive"


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

    def cancel(self, held: Held, findings: Findings) -> bool:
        """Takes back a reservation; False if it is another by now, of a starter that is about to start it."""
        freed = self.slots.release(held.process.name, held.name, held.holder.raw)
        if freed:
            findings.note("SlotsReclaimed", "Took back a reservation without a workflow", execution=held.name)
        return freed

    def conclude(self, held: Held, search: JobRunSearch, findings: Findings) -> Concluded:
        """What one check of Glue says of a holder whose runs the search covers.

        A check lasts from the search's beginning to now. The gap lies between the end of the first and the beginning
        of the second, so a search may serve many holders, and take long.
        """
        alive = list(search.alive.get(held.name, ()))
        if alive:
            self.glue.stop(held.job, alive)
            findings.note(
                "GlueRunsStopped", "Stopped a Glue run whose workflow has ended", runs=alive, execution=held.name
            )
            if held.holder.quiet_since is not None:
                self.slots.mark_quiet(held.process.name, held.name, held.holder.raw, None)
            return "a run is alive"
        if held.closed_at is not None and search.begun < held.closed_at:
            return "too soon"
        quiet_since = held.holder.quiet_since
        # A redriven execution keeps its holder: a check from before its last end says nothing of what came after.
        if quiet_since is None or (held.closed_at is not None and quiet_since < held.closed_at):
            marked = self.slots.mark_quiet(held.process.name, held.name, held.holder.raw, self.clock())
            return "checked once" if marked else "changed"
        if search.begun - quiet_since < self.look_gap:
            return "too soon"
        if not self.slots.release(held.process.name, held.name, held.holder.raw):
            return "changed"
        findings.note("SlotsReclaimed", "Took back the slot of a workflow that has ended", execution=held.name)
        return "freed"
