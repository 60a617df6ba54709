"""Settlement: keeps the request of each execution that closed without success and did not keep it itself.

An execution that is aborted or times out runs no further state, so it cannot keep its request. The janitor's functions
settle it: claim, keep, publish, record (settlement_table.py). A function that dies between keeping and recording leaves
its claim, and the next function after the claim's end keeps the request again. So a request is kept at least once, and
twice only in that case.

A request whose child execution has succeeded has succeeded, although its workflow did not end well: it is not kept.
Neither is one whose Glue run has succeeded and whose caller waits for the answer. Without a caller it is kept
immediately, when the run may still be alive. The holder contains target and token, so this is known only while the slot
is held. After the workflow has released the slot, the request is kept, unless the workflow's error names the child
(CHILD_TOO_LARGE).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from slotkeeper.events import CompletionEvents
from slotkeeper.observability import logger
from slotkeeper.settings import JanitorSettings
from slotkeeper.slots.caller_answers import CallerAnswers, has_caller
from slotkeeper.slots.callers import Callers
from slotkeeper.slots.children import Child, Children
from slotkeeper.slots.executions import (
    ACCOUNTED_FOR,
    ANSWER_FAILED,
    CHILD_TOO_LARGE,
    REQUEST_FAILED,
    SUCCEEDED_CAUSE,
    Execution,
    Workflow,
    closing,
)
from slotkeeper.slots.glue import GlueRun
from slotkeeper.slots.process import Holder
from slotkeeper.slots.queues import FailedRequestQueue
from slotkeeper.slots.request import process_of_execution
from slotkeeper.slots.request_events import RequestEvents
from slotkeeper.slots.run_report import RunReport, in_turns, is_outage
from slotkeeper.slots.settlement_table import HORIZON_SECONDS, SettlementTable, Unanswered
from slotkeeper.slots.targets import is_state_machine
from slotkeeper.slots.task_tokens import without_token

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_stepfunctions import SFNClient

# A run lists executions from this many seconds before the time up to which all are settled, because the list is late by
# seconds (Step Functions API Reference, ListExecutions). One hour is about one page; 14 days are many.
_LIST_LAG_SECONDS = 3600
# Seconds of an invocation that publishing an event must leave: after it, the request is recorded as settled.
AFTER_EVENT_SECONDS = 10
# Minimum seconds between two writes of the time up to which all are settled.
_NOTE_INTERVAL_SECONDS = 600
_PAGE = 1000  # Step Functions API Reference, ListExecutions, maxResults


Work = Child | GlueRun


class SettleOutcome(Enum):
    """The result of settling a request."""

    SETTLED = auto()
    UNANSWERED = auto()  # accounted for, but its caller must still be answered
    CLAIMED = auto()  # by another function, which may still fail


@dataclass
class _Memory:
    """What a container remembers of its previous runs. It saves calls; a new container lists more."""

    settled_by: float | None = None  # every execution that had ended by then is settled
    noted: float = -math.inf  # the same, as stored in SettledTable
    unsettled: dict[str, Execution] = field(default_factory=dict)  # closing -> as listed
    tried: set[str] = field(default_factory=set)  # closings whose caller could not be answered
    # The rest of a list that was too long for one run, and when that list began. Newer executions are listed again.
    older: Iterator[Execution] | None = None
    older_started_at: float = 0


@dataclass
class Settlement:
    """Finds executions that closed without success, and settles their requests.

    Args:
        grace: seconds after an execution's end in which only its status event settles it.
        on_kept: receives each kept request, with error and cause, before it is recorded as settled.
        on_succeeded: receives each request that was settled as succeeded, with the time of its end in epoch seconds.
        answers: answers the callers of settled requests. None: no request has a caller.
        clock: seconds since the epoch.

    Attributes:
        closed: execution name -> the execution, for those that the newest list contained.
    """

    workflow: Workflow
    failed_requests: FailedRequestQueue
    settled: SettlementTable
    grace: int
    clock: Callable[[], float] = time.time
    on_kept: Callable[[Execution, str, str], object] = lambda *_: None
    on_succeeded: Callable[[Execution, float | None], object] = lambda *_: None
    answers: CallerAnswers | None = None
    closed: dict[str, Execution] = field(default_factory=dict, init=False)
    memory: _Memory = field(default_factory=_Memory, init=False)
    _all_found: bool = field(default=False, init=False)  # by the last `find`

    @classmethod
    def from_settings(
        cls,
        settings: JanitorSettings,
        workflow: Workflow,
        dynamodb: DynamoDBClient,
        sqs: SQSClient,
        stepfunctions: SFNClient,
        events: CompletionEvents,
    ) -> Settlement:
        """Create the settlement of the janitor's two functions, which publishes an event for each kept request."""
        published = RequestEvents(events, settings.failed_request_queue_url)
        return cls(
            workflow,
            FailedRequestQueue(sqs, settings.failed_request_queue_url),
            SettlementTable(dynamodb, settings.settled_table_name),
            settings.grace_seconds,
            on_kept=published.failed,
            on_succeeded=published.succeeded,
            answers=CallerAnswers(Callers(stepfunctions), workflow, Children(stepfunctions)),
        )

    def find(self, until: float) -> None:
        """List the executions that closed without success and may be unsettled, newest first, until `until`.

        `until` is in seconds since the epoch. Errors of Step Functions and DynamoDB pass through.
        """
        memory, now = self.memory, self.clock()
        self.closed, self._all_found = {}, False
        if memory.settled_by is None:
            memory.settled_by = memory.noted = self.settled.settled_by() or -math.inf
        # An iterator that has failed looks like one that has reached its end. So it is kept only if no call failed.
        older, memory.older = memory.older, None
        newer_than = memory.settled_by if older is None else memory.older_started_at
        listed = self.workflow.unsuccessful(max(now - HORIZON_SECONDS, newer_than - _LIST_LAG_SECONDS))
        if not self._take(listed, now, until, self.closed):
            if older is None:
                memory.older, memory.older_started_at = listed, now
        elif older is not None and not self._take(older, now, until, {}):
            memory.older = older
        else:
            self._all_found = True

    def _take(self, listed: Iterator[Execution], now: float, until: float, closed: dict[str, Execution]) -> bool:
        """Sort listed executions into settled and unsettled; False if `until` came before the end of the list."""
        page: list[Execution] = []
        for execution in listed:
            closed[execution.name] = execution
            page.append(execution)
            if len(page) == _PAGE:
                self._sort(page, now)
                page = []
                if self.clock() >= until:
                    return False
        self._sort(page, now)
        return True

    def _sort(self, page: list[Execution], now: float) -> None:
        # The status event of an execution that has just closed is in flight, and its function keeps the request.
        old = {each.closing: each for each in page if now - (each.stopped_at or now) >= self.grace}
        missing = self.settled.missing(old)
        self.memory.unsettled.update((closing, each) for closing, each in old.items() if closing in missing)

    def settle_found(
        self,
        report: RunReport,
        until: float,
        holders: Mapping[str, Holder],
        malformed: Collection[str] = (),
    ) -> None:
        """Settle the executions that `find` found, the processes in turns, until `until` (epoch seconds).

        Args:
            holders: execution name -> holder, as the run has read them. An execution that holds a slot for a state
                machine, or has a waiting caller, is settled when its work has ended (ChildChecks, GlueChecks).
            malformed: the processes whose holders could not be read. Their executions are settled by a later run.
        """
        memory = self.memory
        unsettled = [
            each
            for each in memory.unsettled.values()
            if process_of_execution(each.name) not in malformed and not _is_checked(holders.get(each.name))
        ]
        # The oldest first, but behind those that were not tried yet: answers may be refused for days.
        unsettled.sort(key=lambda each: (each.closing in memory.tried, each.stopped_at or 0))
        for execution in in_turns(unsettled, lambda each: process_of_execution(each.name)):
            if self.clock() >= until:
                left = len(memory.unsettled)
                return report.cut_short("The run's time has ended; the next run settles the other requests", left=left)
            try:
                if self._settle_listed(execution, report, holders.get(execution.name)):
                    del memory.unsettled[execution.closing]
                    memory.tried.discard(execution.closing)
                else:
                    memory.tried.add(execution.closing)
            except Exception as error:
                report.failed("Could not settle a request; the next run retries", error, execution=execution.name)
                if is_outage(error):
                    return None
        return None

    def note_settled(self, started_at: float) -> None:
        """Record the time up to which all executions are settled, if none is left. Call it after `find`.

        Args:
            started_at: when the run began, seconds since the epoch.
        """
        memory = self.memory
        if not self._all_found or memory.unsettled:
            return
        memory.settled_by = started_at - self.grace
        if memory.settled_by - memory.noted >= _NOTE_INTERVAL_SECONDS:
            self.settled.note_settled_by(memory.settled_by)
            memory.noted = memory.settled_by

    def _settle_listed(self, execution: Execution, report: RunReport, holder: Holder | None) -> bool:
        if self.settled.has(execution.closing):
            return True
        known = self.workflow.describe(execution.name)  # the list has no input
        if known is None:
            return False
        # An execution that was redriven since is listed again when it ends.
        if not known.is_closed or known.status == "SUCCEEDED":
            return True
        return self.settle(known, report, holder=holder) is SettleOutcome.SETTLED

    def settle(
        self,
        execution: Execution,
        report: RunReport,
        *,
        glue_run_state: str = "",
        work: Work | None = None,
        holder: Holder | None = None,
    ) -> SettleOutcome:
        """Settle the request of a closed execution, and answer its caller, if it has one.

        Args:
            glue_run_state: the state of its Glue run now, or empty; kept with the request. The run may be alive.
            work: what ran in its slot, and has ended; None if nothing ran, or if it is not known. Succeeded work is a
                succeeded request, although its workflow was aborted.
            holder: its slot, if it holds one. It contains the caller's token.
        """
        if self.settled.has(execution.closing):
            return SettleOutcome.SETTLED
        work = work or self._unread_child(execution)
        # The status must be FAILED: the caller of StopExecution can set any error on an aborted execution.
        by_workflow = execution.status == "FAILED" and execution.error in ACCOUNTED_FOR
        must_answer = self.answers is not None and has_caller(execution.input)
        if by_workflow:
            # The workflow has answered, unless it could not, or has left that to the janitor. A request that it has
            # returned to the queue is answered by the next attempt.
            must_answer = must_answer and (
                execution.error == ANSWER_FAILED or self._is_left_to_janitor(execution, holder)
            )
        if not by_workflow or must_answer:
            outcome = self._claim_and_settle(execution, report, glue_run_state, work, holder, must_answer)
            if outcome is not SettleOutcome.SETTLED:
                return outcome
        self.settled.add(execution.closing, "workflow" if by_workflow else "janitor", self.clock())
        return SettleOutcome.SETTLED

    def _unread_child(self, execution: Execution) -> Child | None:
        """The child that the workflow could not read. If the workflow was redriven, no holder names its target."""
        if execution.status != "FAILED" or execution.error != CHILD_TOO_LARGE or self.answers is None:
            return None
        arn = execution.cause.partition(" ")[0]
        target = arn.removesuffix(f":{execution.name}").replace(":execution:", ":stateMachine:")
        return self.answers.children.describe(target, execution.name, execution.arn)

    def _claim_and_settle(
        self,
        execution: Execution,
        report: RunReport,
        glue_run_state: str,
        work: Work | None,
        holder: Holder | None,
        must_answer: bool,
    ) -> SettleOutcome:
        due = self.settled.unanswered(execution.closing) if must_answer else None
        if not self.settled.claim(execution.closing, self.clock(), due):
            # Accounted for, with the token noted: a claim that is left from a failed answer must not keep the slot.
            is_noted = due is not None and (due.task_token or not (holder and holder.task_token))
            return SettleOutcome.UNANSWERED if is_noted else SettleOutcome.CLAIMED
        if due is None:
            succeeded = self._account_for(execution, report, glue_run_state, work)
            known = (self._noted(execution) if must_answer else None) or holder
            due = Unanswered(succeeded, known.task_token, known.target) if known else Unanswered(succeeded)
            if succeeded and isinstance(work, GlueRun):
                due = replace(due, glue_run_id=work.id)
        if must_answer and self.answers is not None and not self.answers.answer(execution, due, work, report):
            # The request is not kept again, and the slot need not be kept for the answer.
            self.settled.note_unanswered(execution.closing, due, self.clock())
            return SettleOutcome.UNANSWERED
        return SettleOutcome.SETTLED

    def _is_left_to_janitor(self, execution: Execution, holder: Holder | None) -> bool:
        """Whether the workflow has left slot and answer. A failed attempt notes the answer, and frees the slot."""
        return execution.error == REQUEST_FAILED and (holder is not None or self._noted(execution) is not None)

    def _noted(self, execution: Execution) -> Unanswered | None:
        """What is noted of this end, or of one before a redrive: no list contains that one any more."""
        ends = (closing(execution.name, number) for number in reversed(range(execution.redrives + 1)))
        return next((due for end in ends if (due := self.settled.unanswered(end))), None)

    def _account_for(self, execution: Execution, report: RunReport, glue_run_state: str, work: Work | None) -> bool:
        """Keep the request, or publish that it has succeeded; return whether it has."""
        if execution.status == "FAILED" and execution.error in ACCOUNTED_FOR:
            succeeded = execution.error == ANSWER_FAILED and execution.cause.startswith(SUCCEEDED_CAUSE)
            if succeeded:  # the workflow publishes after the answer
                self.on_succeeded(execution, None)
            return succeeded
        if work is not None and work.has_succeeded:
            self.on_succeeded(execution, work.stopped_at)
            logger.info("Settled a request whose work has succeeded", execution=execution.name)
            return True
        self._keep(execution, report, glue_run_state or (work.state if isinstance(work, GlueRun) else ""))
        return False

    def _keep(self, execution: Execution, report: RunReport, glue_run_state: str) -> None:
        error = execution.error or execution.status
        cause = execution.cause or f"The workflow ended with status {execution.status}"
        self.failed_requests.keep(_request_of(execution), execution.name, error, cause, glue_run_state)
        self.on_kept(execution, error, cause)
        report.note(
            "RequestsKept", "Kept the request of a workflow that ended without success", execution=execution.name
        )


def _is_checked(holder: Holder | None) -> bool:
    """Whether the request is settled when the work has ended: a child decides the outcome, or a caller waits for it."""
    if holder is None or holder.state != "RUNNING":
        return False
    return is_state_machine(holder.target) or bool(holder.task_token)


def _request_of(execution: Execution) -> str:
    # A manually started execution may have any input. It is kept too, so that operators find it in the queue.
    try:
        json.loads(execution.input)
    except ValueError:
        return json.dumps({"input": execution.input})
    except RecursionError:
        pass  # valid JSON, since Step Functions accepted it, but nested too deeply for this parser
    # JSON allows these two characters unescaped; SQS does not (SQS API Reference, SendMessage).
    return without_token(execution.input).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
