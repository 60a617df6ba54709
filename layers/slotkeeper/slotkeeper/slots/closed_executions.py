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

from slotkeeper.slots.dead_holders import CheckOutcome, DeadHolders, Held
from slotkeeper.slots.executions import Execution, Workflow, closing
from slotkeeper.slots.process import PROCESS_NAME, MalformedProcess, Process
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue, wake_next
from slotkeeper.slots.request import process_of_execution
from slotkeeper.slots.run_report import MALFORMED_ITEM, RunReport
from slotkeeper.slots.settlement import CLAIM_SECONDS, Settlement, SettleOutcome, Work
from slotkeeper.slots.targets import is_state_machine
from slotkeeper.slots.work import JobRunSearch, NoSuchJob

# Seconds until a message is delivered again: while a run is stopping, and after a failure.
WHILE_STOPPING_SECONDS = 10
AFTER_FAILURE_SECONDS = 30
# The most. The queue drops a message after 900 s, and the janitor's runs then do the rest.
MAX_WAIT_SECONDS = 900
# Pages of a job's runs. A holder that needs more is left to the janitor's runs, which can continue a search.
_MAX_PAGES = 20


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
        if held is not None and held.holder.state == "RUNNING" and is_state_machine(held.target):
            return self._handle_child(held, execution, report)
        search = None
        if held is not None and held.holder.state == "RUNNING":
            with report.guard("Could not search the Glue runs of a workflow that has ended", execution=name):
                search = self._search(held)
        run = search.newest.get(name) if search else None
        if held is not None and held.holder.state == "RUNNING" and held.holder.task_token:
            # Its caller is answered when its run has ended.
            settle = self._settle(held, execution, report, run)
            return self._free(held, execution, search, report, settle)
        # Its run may be alive. The janitor's runs, which keep such a request too, do not know it.
        settled = self.settlement.settle(execution, report, glue_run_state=run.state if run else "", holder=holder)
        is_settled = settled is SettleOutcome.SETTLED
        # A function that has claimed the settlement and fails leaves the token only in the slot.
        is_answerable = settled is not SettleOutcome.CLAIMED or not (holder and holder.task_token)
        again = self._free(held, execution, search, report) if held and is_answerable else None
        return again if is_settled else min(again or CLAIM_SECONDS, CLAIM_SECONDS)

    def _process_of(self, name: str) -> Process | None:
        process_name = process_of_execution(name)
        if not PROCESS_NAME.fullmatch(process_name):
            return None  # started manually, under a name that no request can have
        return self.slots.read(process_name)

    def _search(self, held: Held) -> JobRunSearch | None:
        """Search the holder's Glue runs; None if the search needs more than _MAX_PAGES pages."""
        search = self.dead.glue.search_runs(held.target, self.clock(), [held.name])
        try:
            for _ in range(_MAX_PAGES):
                search.read_page()
                if search.covers(held.holder.since):
                    return search
        except NoSuchJob:
            return search
        return None

    def _settle(self, held: Held, execution: Execution, report: RunReport, work: Work | None) -> Callable[[], bool]:
        """What settles the request of a holder, once its work has ended."""

        def settle() -> bool:
            settled = self.settlement.settle(execution, report, work=work, holder=held.holder)
            return settled is not SettleOutcome.CLAIMED

        return settle

    def _free(
        self,
        held: Held,
        execution: Execution,
        search: JobRunSearch | None,
        report: RunReport,
        settle: Callable[[], bool] = lambda: True,
    ) -> int | None:
        gap = self.dead.look_gap
        if held.holder.state == "RESERVED":
            # No run can have been started. A confirm that is still in flight, or a redrive, fails without the slot.
            if not self.dead.cancel(held, report):
                return 1  # the workflow confirmed first
            self._wake(held, report)
            return None
        if search is None or execution.stopped_at is None:
            return AFTER_FAILURE_SECONDS
        early = execution.stopped_at + gap - search.started_at
        if early > 0 and not search.alive.get(held.name):
            return math.ceil(early) + 1
        outcome = self.dead.conclude(held, search, report, settle)
        return self._next(held, outcome, (held.holder.quiet_since or search.started_at) + gap, report)

    def _handle_child(self, held: Held, execution: Execution, report: RunReport) -> int | None:
        checked_at, gap = self.clock(), self.dead.look_gap
        child = self.dead.children.describe(held.target, held.name, execution.arn)
        is_absent = child is None or not child.is_ours
        early = (execution.stopped_at or checked_at) + gap - checked_at
        if is_absent and early > 0:  # a start may still be in flight
            return math.ceil(early) + 1

        settle = self._settle(held, execution, report, child)
        outcome = self.dead.conclude_child(held, child, checked_at, report, settle)
        settles_at = child.settles_at(held.process.settle_seconds) if child and child.is_ours else 0
        return self._next(held, outcome, settles_at or (held.holder.quiet_since or checked_at) + gap, report)

    def _next(self, held: Held, outcome: CheckOutcome, due: float, report: RunReport) -> int | None:
        """The seconds until the next step after a check. `due`: when a check that came too soon is due."""
        match outcome:
            case CheckOutcome.WORK_ALIVE:
                return WHILE_STOPPING_SECONDS
            case CheckOutcome.FREED:
                self._wake(held, report)
                return None
            case CheckOutcome.TOO_SOON:
                return min(MAX_WAIT_SECONDS, max(1, math.ceil(due - self.clock())) + 1)
            case CheckOutcome.HOLDER_CHANGED:
                return 1
            case CheckOutcome.CHECKED_ONCE:
                return self.dead.look_gap + 1
            case CheckOutcome.NOT_SETTLED:
                return CLAIM_SECONDS

    def _wake(self, held: Held, report: RunReport) -> None:
        # The janitor's next run repeats a failed wake, so the event needs no further delivery for it.
        with report.guard("Could not wake a waiting request", process_name=held.process.name):
            wake_next(self.slots, self.queue, held.process.name, self.clock())
