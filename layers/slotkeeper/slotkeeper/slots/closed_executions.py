"""Handles the status events of workflows that closed without success.

An event is a message on EndingQueue. It is delivered again until all steps are done:

1. Stop Glue runs that outlive their workflow. If nothing has run, settle the request and free its slot.
2. One gap after the close: the first check that finds no live run.
3. Another gap later: the second check. It settles the request, frees the slot and rings.

If the target is a state machine, its child execution is stopped, and when it has closed, the request is settled by its
status and the slot freed. An absent child needs the same two checks as Glue runs.

The janitor's runs use the same proof (dead_holders.py). As in the workflow's own checks after a lost answer, the first
check comes one gap after the last moment at which a run can have been started. By then Glue lists a run whose
StartJobRun was in flight. GraceSeconds is not needed here: it covers the time in which DescribeExecution does not know
a new execution yet, and a status event proves that the execution exists and has closed.

The janitor's runs do the steps that are left when the queue drops the message.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from slotkeeper.slots.dead_holders import DeadHolders, Held, Verdict
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.executions import Execution, Workflow, closing
from slotkeeper.slots.process import PROCESS_NAME, MalformedProcess, Process
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import process_of_execution
from slotkeeper.slots.run_report import MALFORMED_ITEM, RunReport
from slotkeeper.slots.settlement import CLAIM_SECONDS, Settlement, SettleOutcome
from slotkeeper.slots.work import WorkCheck

# Seconds until a message is delivered again: while a run is stopping, and after a failure.
WHILE_STOPPING_SECONDS = 10
AFTER_FAILURE_SECONDS = 30
# The most. The queue drops a message after 900 s, and the janitor's runs then do the rest.
MAX_WAIT_SECONDS = 900


@dataclass(frozen=True)
class ClosedExecutions:
    """Handles one event at a time.

    Args:
        clock: seconds since the epoch.
    """

    slots: Slots
    doorbell: Doorbell
    workflow: Workflow
    settlement: Settlement
    dead: DeadHolders
    clock: Callable[[], float]

    def handle(self, name: str, redrives: int, report: RunReport) -> int | None:
        """Do the due steps for a closed execution; return the seconds until the next step, None after the last.

        Args:
            redrives: the execution's redrive count when it closed.

        Raises:
            ClientError, BotoCoreError: a call failed; the event must be handled again.
        """
        try:
            process = self._process_of(name)
        except MalformedProcess as error:
            # The holder decides whether the request has succeeded.
            report.note("MalformedProcesses", MALFORMED_ITEM, reason=str(error), execution=name)
            return AFTER_FAILURE_SECONDS
        holder = process.holders.get(name) if process else None
        if holder and holder.is_lease:
            holder = None  # a lease has no execution, even if a manually started one has its name
        if holder is None and self.settlement.settled.has(closing(name, redrives)):
            self._ring(process)  # an earlier delivery may have ended before its ring
            return None
        execution = self.workflow.describe(name)
        if execution is None or not execution.is_closed or execution.status == "SUCCEEDED":
            return None  # it was redriven: its next end has its own event
        if process and holder:
            again = self._free(Held(process, name, holder, execution.stopped_at), execution, report)
            if again is not None or not execution.has_lost_its_slot:
                return again
        settled = self.settlement.settle(execution, report)
        if process:  # a dispatch may have planned a start of the request before its end was recorded
            self.slots.note_end(process.name)
        self._ring(process)
        return None if settled is SettleOutcome.SETTLED else CLAIM_SECONDS

    def _process_of(self, name: str) -> Process | None:
        process_name = process_of_execution(name)
        if not PROCESS_NAME.fullmatch(process_name):
            return None  # started manually, under a name that no request can have
        return self.slots.read(process_name)

    def _free(self, held: Held, execution: Execution, report: RunReport) -> int | None:
        """Settle the request of a holder when its work has ended, and free its slot; None if that is done."""
        if held.holder.state == "RESERVED":
            # No run can have been started. A confirm that is still in flight, or a redrive, fails without the slot.
            if not self.settlement.settle_held(execution, held.holder, None, report):
                return CLAIM_SECONDS
            if not self.dead.cancel(held, report):
                return 1  # the workflow confirmed first
            return self._after_free(held, execution)
        found: WorkCheck | None = None
        with report.guard("Could not check the work of a workflow that has ended", execution=held.name):
            found = self.dead.find_work(held, execution.arn)
        if found is None or execution.stopped_at is None:
            return AFTER_FAILURE_SECONDS
        gap = self.dead.check_gap
        early = execution.stopped_at + gap - found.checked_at
        if early > 0 and not found.running and not found.is_final:  # a start may still be in flight
            return math.ceil(early) + 1
        due = (held.holder.quiet_since or found.checked_at) + gap
        if found.newest is not None and found.is_final:
            due = found.newest.settles_at(held.process.settle_seconds)
        run = found.newest

        def settle() -> bool:
            return self.settlement.settle_held(execution, held.holder, run, report)

        match self.dead.conclude(held, found, report, settle):
            case Verdict.ALIVE:
                return WHILE_STOPPING_SECONDS
            case Verdict.FREED:
                return self._after_free(held, execution)
            case Verdict.TOO_SOON:
                return min(MAX_WAIT_SECONDS, max(1, math.ceil(due - self.clock())) + 1)
            case Verdict.HOLDER_CHANGED:
                return 1
            case Verdict.NOT_SETTLED:
                return CLAIM_SECONDS
            case _:  # it was checked once
                return gap + 1

    def _after_free(self, held: Held, execution: Execution) -> int | None:
        """Ring; the seconds until the event must come again, if the request's caller has no answer yet."""
        self._ring(held.process)
        is_done = execution.has_lost_its_slot or self.settlement.settled.has(execution.closing)
        return None if is_done else CLAIM_SECONDS

    def _ring(self, process: Process | None) -> None:
        if process:
            self.doorbell.ring(Bell(process.name))
