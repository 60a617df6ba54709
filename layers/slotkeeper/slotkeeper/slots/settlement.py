"""Settlement: keeps the request of each execution that closed without success and did not keep it itself.

An execution that is aborted or times out runs no further state, so it cannot keep its request. The janitor's functions
settle it: claim, keep, publish, record the outcome in its row, note (SettlementTable). A function that dies between
keeping and noting leaves its claim, and the next function after the claim's end keeps the request again. So a request
is kept at least once, and twice only in that case. The slot is freed after the outcome is recorded.

A request whose Glue run or child execution has succeeded has succeeded, although its workflow did not end well: it is
not kept. So the request of a holder is settled when its work has ended. Without a holder it is kept, unless the
workflow's error names the child (CHILD_TOO_LARGE).

A request whose workflow held no slot has started no work. It is queued again.

SettledTable contains the executions that closed without success and whose request is settled:

    execution_name  S, key: the execution's name; after a redrive with its count, "name#1" (Execution.closing)
    settled_at      N: when the request was settled
    settled_by      S: who kept the request or queued it again: workflow or janitor
    claimed_until   N, only without settled_at: until then one function may keep the request, and no other
    unanswered      M, only without settled_at: the request is kept or has succeeded, but its caller has no answer yet:
                    {has_succeeded, target, glue_run_id}
    expires_at      N: DynamoDB's TTL

Two further items are shared by the janitor's runs: "#settled-by" (SettlementTable) and "#run" (RunLease, janitor.py).
An execution name cannot contain "#". Times are seconds since the epoch.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Attributes, Item, MalformedAttribute, Table, number
from slotkeeper.events import CompletionEvents
from slotkeeper.observability import logger
from slotkeeper.settings import JanitorSettings
from slotkeeper.slots.callers import CallerAnswers, Callers, Unanswered, has_caller
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.executions import (
    ANSWER_FAILED,
    CHILD_TOO_LARGE,
    SUCCEEDED_CAUSE,
    Execution,
    Workflow,
    closing,
)
from slotkeeper.slots.queues import FailedRequestQueue
from slotkeeper.slots.request import process_of_execution, without_token
from slotkeeper.slots.request_events import RequestEvents
from slotkeeper.slots.request_table import RequestTable
from slotkeeper.slots.returns import NotRequeued, Requeued, Requeues
from slotkeeper.slots.rows import RequestRows
from slotkeeper.slots.run_report import RunReport, in_turns, is_outage
from slotkeeper.slots.work import Children, Work

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_stepfunctions import SFNClient

    from slotkeeper.slots.process import Holder

# A run lists executions from this many seconds before the time up to which all are settled, because the list is late by
# seconds (Step Functions API Reference, ListExecutions). One hour is about one page; 14 days are many.
_LIST_LAG_SECONDS = 3600
# Seconds of an invocation that publishing an event must leave: after it, the request is recorded as settled.
AFTER_EVENT_SECONDS = 10
# Minimum seconds between two writes of the time up to which all are settled.
_NOTE_INTERVAL_SECONDS = 600
_PAGE = 1000  # Step Functions API Reference, ListExecutions, maxResults


@dataclass(frozen=True)
class Keep:
    """Keep the request as failed. `owed`: the answer to its caller, if one waits."""

    owed: Unanswered


@dataclass(frozen=True)
class AnswerCaller:
    """Answer the caller, if one waits: the request has succeeded, or it is accounted for already.

    `publishes`: whether its success is published first, with the time `ended_at`, or that of the workflow's end.
    """

    owed: Unanswered
    publishes: bool = False
    ended_at: float | None = None


@dataclass(frozen=True)
class Done:
    """The workflow has accounted for the request, and no caller waits for an answer of the janitor."""


def decide(
    execution: Execution,
    run: Work | None,
    holder: Holder | None,
    noted: Unanswered | None,
    earlier: Unanswered | None,
    *,
    waits: bool,
    recorded: bool = False,
) -> Keep | AnswerCaller | Done:
    """Decide how the request of a closed execution is settled.

    Args:
        run: what ran in its slot, and has ended, if it is known. Succeeded work is a succeeded request, although its
            workflow was aborted.
        holder: its slot, if it holds one.
        noted: the answer that is owed since this end of the execution. Then the request is accounted for.
        earlier: the answer that is owed since an end before a redrive.
        waits: whether the request has a caller.
        recorded: whether the workflow has recorded a success, and was aborted after that.
    """
    if execution.is_accounted_for:
        # The workflow has answered, unless it could not, or has left that to the janitor: slot and answer, or only the
        # answer, which a failed attempt notes before it frees the slot.
        is_left = any(each is not None for each in (holder, noted, earlier))
        if not waits or not (execution.error == ANSWER_FAILED or is_left):
            return Done()
    if noted is not None:
        return AnswerCaller(noted)
    if execution.has_lost_its_slot and not recorded:
        return AnswerCaller(earlier) if earlier is not None else Done()
    owner = earlier or holder
    target = owner.target if owner else ""
    if execution.is_accounted_for:
        has_succeeded = execution.error == ANSWER_FAILED and execution.cause.startswith(SUCCEEDED_CAUSE)
        # The workflow publishes after the answer.
        return AnswerCaller(Unanswered(has_succeeded, target), publishes=has_succeeded)
    if recorded or (run is not None and run.has_succeeded):
        run_id = run.id if run is not None and run.is_glue_run else ""
        ended_at = run.stopped_at if run is not None else None
        return AnswerCaller(Unanswered(True, target, run_id), publishes=True, ended_at=ended_at)
    return Keep(Unanswered(False, target))


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
        answers: answers the callers of settled requests.
        doorbell: is rung after a request is queued again.
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
    answers: CallerAnswers = field(kw_only=True)
    requests: RequestTable = field(kw_only=True)
    rows: RequestRows = field(kw_only=True)
    requeues: Requeues = field(kw_only=True)
    doorbell: Doorbell = field(kw_only=True)
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
        table, slot_table = settings.request_table_name, settings.slot_table_name
        rows = RequestRows(dynamodb, table)

        def token_of(execution: str) -> str:
            process = process_of_execution(execution)
            return rows.task_token(process, execution) if process else ""

        return cls(
            workflow,
            FailedRequestQueue(sqs, settings.failed_request_queue_url),
            SettlementTable(dynamodb, settings.settled_table_name),
            settings.grace_seconds,
            on_kept=published.failed,
            on_succeeded=published.succeeded,
            answers=CallerAnswers(Callers(stepfunctions), workflow, Children(stepfunctions), token_of),
            requests=RequestTable(dynamodb, table, slot_table),
            rows=rows,
            requeues=Requeues(dynamodb, table, slot_table),
            doorbell=Doorbell(sqs, settings.dispatch_queue_url),
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
            holders: execution name -> holder, as the run has read them. An execution that holds a slot is settled when
                its work has ended (ChildChecks, GlueChecks).
            malformed: the processes whose holders could not be read. Their executions are settled by a later run.
        """
        memory = self.memory
        unsettled = [
            each
            for each in memory.unsettled.values()
            if process_of_execution(each.name) not in malformed and each.name not in holders
        ]
        # The oldest first, but behind those that were not tried yet: answers may be refused for days.
        unsettled.sort(key=lambda each: (each.closing in memory.tried, each.stopped_at or 0))
        for execution in in_turns(unsettled, lambda each: process_of_execution(each.name)):
            if self.clock() >= until:
                left = len(memory.unsettled)
                return report.cut_short("The run's time has ended; the next run settles the other requests", left=left)
            try:
                if self._settle_listed(execution, report):
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

    def _settle_listed(self, execution: Execution, report: RunReport) -> bool:
        if self.settled.has(execution.closing):
            return True
        known = self.workflow.describe(execution.name)  # the list has no input
        if known is None:
            return False
        # An execution that was redriven since is listed again when it ends.
        if not known.is_closed or known.status == "SUCCEEDED":
            return True
        return self.settle(known, report) is SettleOutcome.SETTLED

    def settle_dead(self, name: str, holder: Holder | None, run: Work | None, report: RunReport) -> bool:
        """Settle the request of a dead holder, as `settle_held`. The list of closed executions has no inputs."""
        execution = self.workflow.describe(name)
        if execution is None:
            forgotten = "Step Functions does not know the execution, and no work of it is alive"
            process = process_of_execution(name)
            self.requests.record(process, name, "FAILED", self.clock(), "ExecutionUnknown", forgotten)
            return True
        if execution.status == "SUCCEEDED":
            # Of a row that was restored from a backup: its work ran after that.
            self.requests.record(process_of_execution(name), name, "SUCCEEDED", self.clock())
            return True
        # An execution that was redriven since has no outcome yet.
        return execution.is_closed and self.settle_held(execution, holder, run, report)

    def settle_held(self, execution: Execution, holder: Holder | None, run: Work | None, report: RunReport) -> bool:
        """Settle the request of a holder whose work has ended; False if its slot must be kept until that is done.

        Args:
            run: its newest Glue run, or its child execution; None if nothing ran.
        """
        return self.settle(execution, report, run=run, holder=holder) is not SettleOutcome.CLAIMED

    def settle(
        self,
        execution: Execution,
        report: RunReport,
        *,
        run: Work | None = None,
        holder: Holder | None = None,
    ) -> SettleOutcome:
        """Settle the request of a closed execution, and answer its caller, if it has one.

        Args:
            run: what ran in its slot, and has ended; None if nothing ran, or if it is not known.
            holder: its slot, if it holds one.
        """
        key = execution.closing
        if self.settled.has(key):
            if holder is not None:  # its row was restored from a backup, and would be started again
                self._record(execution, Done())
            return SettleOutcome.SETTLED
        if execution.has_lost_its_slot and (outcome := self._give_back(execution, report, holder)):
            return outcome
        run = run or self._unread_child(execution)
        waits = has_caller(execution.input)
        noted, earlier = self._noted(execution) if waits else (None, None)
        recorded = self._has_recorded_success(execution)
        decision = decide(execution, run, holder, noted, earlier, waits=waits, recorded=recorded)
        if not isinstance(decision, Done):
            if not self.settled.claim(key, self.clock(), noted):
                # Accounted for: a claim that is left from a failed answer must not keep the slot.
                return SettleOutcome.UNANSWERED if noted is not None else SettleOutcome.CLAIMED
            if isinstance(decision, Keep):
                self._keep(execution, report, run.status if run and run.is_glue_run else "")
            elif decision.publishes:
                self.on_succeeded(execution, decision.ended_at)
                logger.info("Settled a request whose work has succeeded", execution=execution.name)
        if not execution.has_lost_its_slot:
            self._record(execution, decision)
        if not isinstance(decision, Done):
            child = None if run is None or run.is_glue_run else run
            if waits and not self.answers.answer_closed(execution, decision.owed, child, report):
                # The request is not kept again, and the slot need not be kept for the answer.
                self.settled.note_unanswered(key, decision.owed, self.clock())
                return SettleOutcome.UNANSWERED
        self.settled.add(key, "workflow" if execution.is_accounted_for else "janitor", self.clock())
        return SettleOutcome.SETTLED

    def _has_recorded_success(self, execution: Execution) -> bool:
        process = process_of_execution(execution.name)
        row = self.rows.row(process, execution.name) if process else None
        return row is not None and row.state == "SUCCEEDED"

    def _record(self, execution: Execution, decision: Keep | AnswerCaller | Done) -> None:
        """Record the outcome in the request's row, unless the workflow has. A manually started execution has no row.

        DynamoDB refuses an empty process, which the name of such an execution may have.
        """
        process, now = process_of_execution(execution.name), self.clock()
        if not process:
            return
        if not isinstance(decision, Done) and decision.owed.has_succeeded:
            self.requests.record(process, execution.name, "SUCCEEDED", now)
            return
        error, cause = _failure_of(execution)
        self.requests.record(process, execution.name, "FAILED", now, error, cause)

    def _give_back(self, execution: Execution, report: RunReport, holder: Holder | None) -> SettleOutcome | None:
        """Queue a request again that has started no work; its slot, if it has one again, is freed before.

        None if it could not be, and its caller may have no answer from an end before a redrive.
        """
        if holder is not None:
            return SettleOutcome.UNANSWERED
        if process := process_of_execution(execution.name):
            is_answered = any(self.settled.has(closing(execution.name, at)) for at in range(execution.redrives))
            outcome = self.requeues.give_back(process, execution.name, self.clock(), is_answered=is_answered)
            if isinstance(outcome, NotRequeued) and outcome.holds_slot:
                return SettleOutcome.CLAIMED
            # Also after a repeated event, whose first delivery may have ended before its ring. Timed, since its
            # start_before may have passed, and a full process is searched for such requests only then.
            self.doorbell.ring(Bell(process, self.clock()))
            if isinstance(outcome, NotRequeued) and not is_answered and has_caller(execution.input):
                return None
            if isinstance(outcome, Requeued):
                report.note("RequestsReturned", "Queued a request again that held no slot", execution=execution.name)
        self.settled.add(execution.closing, "janitor", self.clock())
        return SettleOutcome.SETTLED

    def _unread_child(self, execution: Execution) -> Work | None:
        """The child that the workflow could not read. If the workflow was redriven, no holder names its target."""
        if execution.status != "FAILED" or execution.error != CHILD_TOO_LARGE:
            return None
        arn = execution.cause.partition(" ")[0]
        target = arn.removesuffix(f":{execution.name}").replace(":execution:", ":stateMachine:")
        return self.answers.children.describe(target, execution.name, execution.arn)

    def _noted(self, execution: Execution) -> tuple[Unanswered | None, Unanswered | None]:
        """What is noted of this end, or else of one before a redrive: no list contains that one any more."""
        if noted := self.settled.unanswered(execution.closing):
            return noted, None
        ends = (closing(execution.name, number) for number in reversed(range(execution.redrives)))
        return None, next((due for end in ends if (due := self.settled.unanswered(end))), None)

    def _keep(self, execution: Execution, report: RunReport, glue_run_state: str) -> None:
        error, cause = _failure_of(execution)
        self.failed_requests.keep(_request_of(execution), execution.name, error, cause, glue_run_state)
        self.on_kept(execution, error, cause)
        report.note(
            "RequestsKept", "Kept the request of a workflow that ended without success", execution=execution.name
        )


def _failure_of(execution: Execution) -> tuple[str, str]:
    """The error and the cause of a closed execution."""
    return execution.error or execution.status, execution.cause or f"The workflow ended with status {execution.status}"


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


# How far back the janitor lists executions, in seconds: as long as Step Functions allows a redrive.
HORIZON_SECONDS = 14 * 86400
# An entry outlives the horizon by a week, because TTL deletions and clocks are not exact.
_KEEP = HORIZON_SECONDS + 7 * 86400
# Seconds. Longer than the claim's owner needs to keep a request, publish the event and record both, each call with all
# its attempts (functions/janitor/app.py); shorter than the time between two runs of the janitor.
CLAIM_SECONDS = 45

CLAIM_CONDITION = "attribute_not_exists(execution_name) OR (attribute_not_exists(settled_at) AND claimed_until <= :now)"
_BATCH = 100  # DynamoDB API Reference, BatchGetItem: at most 100 items
_SETTLED_BY = "#settled-by"
_TEXTS = ("target", "glue_run_id")  # of Unanswered


class SettlementTable:
    """Reads and writes SettledTable. It caches settled entries, which never change.

    Args:
        claim: seconds for which a claim prevents other functions from keeping the same request.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str, claim: float = CLAIM_SECONDS) -> None:
        self._table = Table(dynamodb, table_name, "execution_name")
        self._claim = claim
        self._known: set[str] = set()

    def missing(self, closings: Iterable[str]) -> set[str]:
        """Return those of these ends of executions that are not settled."""
        wanted = sorted(set(closings) - self._known)
        for start in range(0, len(wanted), _BATCH):
            items = self._read(wanted[start : start + _BATCH], "execution_name, settled_at")
            # Unprocessed keys count as missing; `claim` then fails for the settled ones.
            self._known.update(item["execution_name"]["S"] for item in items if "settled_at" in item)
        return set(wanted) - self._known

    def has(self, closing: str) -> bool:
        return not self.missing([closing])

    def claim(self, closing: str, now: float, unanswered: Unanswered | None = None) -> bool:
        """Claim the right to keep a request; False if it is settled, or claimed by another caller.

        If the caller fails afterwards, its claim ends after `claim` seconds, and the next caller keeps the request.

        Args:
            unanswered: as it was read, so that the claim preserves it.
        """
        # Otherwise the claim of a function that read earlier would drop what was noted since.
        condition = CLAIM_CONDITION if unanswered else f"({CLAIM_CONDITION}) AND attribute_not_exists(unanswered)"
        return self._put_claim(closing, now + self._claim, now, unanswered, condition, {":now": number(int(now))})

    def unanswered(self, closing: str) -> Unanswered | None:
        """Read what `note_unanswered` has recorded; None if nothing, or if the item is not of the documented types."""
        items = self._read([closing], "unanswered")
        try:
            noted = Attributes(items[0] if items else {}).map("unanswered", None)
            if noted is None:
                return None
            texts = (noted.text(name, "") for name in _TEXTS)
            return Unanswered(noted.flag("has_succeeded"), *texts)
        except MalformedAttribute:
            return None

    def note_unanswered(self, closing: str, unanswered: Unanswered, now: float) -> bool:
        """Record that only the answer is missing; False if the request is settled.

        The claim continues, so that each janitor run tries the answer once.
        """
        return self._put_claim(closing, now + self._claim, now, unanswered, "attribute_not_exists(settled_at)")

    def _put_claim(
        self,
        closing: str,
        until: float,
        now: float,
        unanswered: Unanswered | None,
        condition: str,
        values: Item | None = None,
    ) -> bool:
        item: Item = {"claimed_until": number(int(until)), "expires_at": number(int(now + _KEEP))}
        if unanswered is not None:
            noted = {"has_succeeded": {"BOOL": unanswered.has_succeeded}}
            item["unanswered"] = {
                "M": noted | {name: {"S": text} for name in _TEXTS if (text := getattr(unanswered, name))}
            }
        return self._table.put({"execution_name": {"S": closing}, **item}, condition, values).held

    def add(self, closing: str, by: str, now: float) -> bool:
        """Record a request as settled by `by`, workflow or janitor; False if it was settled already."""
        item = {"settled_by": {"S": by}, "settled_at": number(int(now)), "expires_at": number(int(now + _KEEP))}
        added = self._table.put({"execution_name": {"S": closing}, **item}, "attribute_not_exists(settled_at)")
        self._known.add(closing)
        return added.held

    def settled_by(self) -> float | None:
        """Read the time up to which every execution that had ended is settled, epoch seconds; None if not recorded."""
        items = self._read([_SETTLED_BY], "settled_by")
        return float(items[0]["settled_by"]["N"]) if items else None

    def note_settled_by(self, moment: float) -> None:
        """Record that time for the janitor's next containers, which then do not list 14 days."""
        self._table.dynamodb.put_item(
            TableName=self._table.name,
            Item={"execution_name": {"S": _SETTLED_BY}, "settled_by": number(int(moment))},
        )

    def _read(self, keys: list[str], attributes: str) -> list[dict[str, Any]]:
        answer = self._table.dynamodb.batch_get_item(
            RequestItems={
                self._table.name: {
                    "Keys": [{"execution_name": {"S": key}} for key in keys],
                    "ProjectionExpression": attributes,
                    "ConsistentRead": True,
                }
            }
        )
        return answer["Responses"].get(self._table.name, [])
