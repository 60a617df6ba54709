"""Handles the status events of workflows that closed without success.

An event is a message on StatusEventQueue. It is delivered again until all steps are done:

1. Settle the request, stop Glue runs that outlive their workflow, and free a slot that is still RESERVED.
2. One gap after the close: the first check that finds no live run.
3. Another gap later: the second check, which frees the slot and wakes the next request.

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
from slotkeeper.slots.executions import Execution, Workflow, closing
from slotkeeper.slots.process import PROCESS_NAME, MalformedProcess, Process
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue, wake_next
from slotkeeper.slots.request import process_of_execution
from slotkeeper.slots.run_report import MALFORMED_ITEM, RunReport
from slotkeeper.slots.settlement import CLAIM_SECONDS, Settlement, SettleOutcome
from slotkeeper.slots.work import WorkCheck, is_settled_by_work

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
    queue: RequestQueue
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
            # The holder decides whether the request has succeeded, and contains the caller's token.
            report.note("MalformedProcesses", MALFORMED_ITEM, reason=str(error), execution=name)
            return AFTER_FAILURE_SECONDS
        holder = process.holders.get(name) if process else None
        if holder and holder.is_lease:
            holder = None  # a lease has no execution, even if a manually started one has its name
        if holder is None and self.settlement.settled.has(closing(name, redrives)):
            return None
        execution = self.workflow.describe(name)
        if execution is None or not execution.is_closed or execution.status == "SUCCEEDED":
            return None  # it was redriven: its next end has its own event
        held = Held(process, name, holder, execution.stopped_at) if process and holder else None
        found = self._find(held, execution, report) if held and held.holder.state == "RUNNING" else None
        run = found.newest if found else None
        if held is not None and is_settled_by_work(held.holder, held.target):
            return self._free(
                held, execution, found, report, lambda: self.settlement.settle_held(execution, held.holder, run, report)
            )
        # Its run may be alive. The janitor's runs, which keep such a request too, do not know it.
        settled = self.settlement.settle(execution, report, glue_run_state=run.status if run else "", holder=holder)
        # A function that has claimed the settlement and fails leaves the token only in the slot.
        is_answerable = settled is not SettleOutcome.CLAIMED or not (holder and holder.task_token)
        again = self._free(held, execution, found, report) if held and is_answerable else None
        return again if settled is SettleOutcome.SETTLED else min(again or CLAIM_SECONDS, CLAIM_SECONDS)

    def _process_of(self, name: str) -> Process | None:
        process_name = process_of_execution(name)
        if not PROCESS_NAME.fullmatch(process_name):
            return None  # started manually, under a name that no request can have
        return self.slots.read(process_name)

    def _find(self, held: Held, execution: Execution, report: RunReport) -> WorkCheck | None:
        """Check the holder's work; None if that failed, or is left to the janitor's runs."""
        with report.guard("Could not check the work of a workflow that has ended", execution=held.name):
            return self.dead.find_work(held, execution.arn)
        return None

    def _free(
        self,
        held: Held,
        execution: Execution,
        found: WorkCheck | None,
        report: RunReport,
        settle: Callable[[], bool] = lambda: True,
    ) -> int | None:
        gap = self.dead.check_gap
        if held.holder.state == "RESERVED":
            # No run can have been started. A confirm that is still in flight, or a redrive, fails without the slot.
            if not self.dead.cancel(held, report):
                return 1  # the workflow confirmed first
            self._wake(held, report)
            return None
        if found is None or execution.stopped_at is None:
            return AFTER_FAILURE_SECONDS
        early = execution.stopped_at + gap - found.checked_at
        if early > 0 and not found.running and not found.is_final:  # a start may still be in flight
            return math.ceil(early) + 1
        due = (held.holder.quiet_since or found.checked_at) + gap
        if found.newest is not None and found.is_final:
            due = found.newest.settles_at(held.process.settle_seconds)
        return self._next(held, self.dead.conclude(held, found, report, settle), due, report)

    def _next(self, held: Held, verdict: Verdict, due: float, report: RunReport) -> int | None:
        """The seconds until the next step after a check. `due`: when a check that came too soon is due."""
        match verdict:
            case Verdict.ALIVE:
                return WHILE_STOPPING_SECONDS
            case Verdict.FREED:
                self._wake(held, report)
                return None
            case Verdict.TOO_SOON:
                return min(MAX_WAIT_SECONDS, max(1, math.ceil(due - self.clock())) + 1)
            case Verdict.HOLDER_CHANGED:
                return 1
            case Verdict.NOT_SETTLED:
                return CLAIM_SECONDS
            case _:  # it was checked once
                return self.dead.check_gap + 1

    def _wake(self, held: Held, report: RunReport) -> None:
        # The janitor's next run repeats a failed wake, so the event needs no further delivery for it.
        with report.guard("Could not wake a waiting request", process_name=held.process.name):
            wake_next(self.slots, self.queue, held.process.name, self.clock())
