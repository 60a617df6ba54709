"""Settlement: keeps the request of each execution that closed without success and did not keep it itself.

An execution that is aborted or times out runs no further state, so it cannot keep its request. The janitor's functions
settle it: claim, keep, publish, record (settlement_table.py). A function that dies between keeping and recording leaves
its claim, and the next function after the claim's end keeps the request again. So a request is kept at least once, and
twice only in that case.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slotkeeper.events import CompletionEvents
from slotkeeper.settings import JanitorSettings
from slotkeeper.slots.executions import ACCOUNTED_FOR, Execution, Workflow
from slotkeeper.slots.queues import FailedRequestQueue
from slotkeeper.slots.request_events import RequestEvents
from slotkeeper.slots.run_report import RunReport, in_turns, is_outage
from slotkeeper.slots.settlement_table import HORIZON_SECONDS, SettlementTable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

# A run lists executions from this many seconds before the time up to which all are settled, because the list is late by
# seconds (Step Functions API Reference, ListExecutions). One hour is about one page; 14 days are many.
_LIST_LAG_SECONDS = 3600
# Seconds of an invocation that publishing an event must leave: after it, the request is recorded as settled.
AFTER_EVENT_SECONDS = 10
# Minimum seconds between two writes of the time up to which all are settled.
_NOTE_INTERVAL_SECONDS = 600
_PAGE = 1000  # Step Functions API Reference, ListExecutions, maxResults


@dataclass
class _Memory:
    """What a container remembers of its previous runs. It saves calls; a new container lists more."""

    settled_by: float | None = None  # every execution that had ended by then is settled
    noted: float = -math.inf  # the same, as stored in SettledTable
    unsettled: dict[str, Execution] = field(default_factory=dict)  # closing -> as listed
    # The rest of a list that was too long for one run, and when that list began. Newer executions are listed again.
    older: Iterator[Execution] | None = None
    older_started_at: float = 0


@dataclass
class Settlement:
    """Finds executions that closed without success, and settles their requests.

    Args:
        grace: seconds after an execution's end in which only its status event settles it.
        on_kept: receives each kept request, with error and cause, before it is recorded as settled.
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
        events: CompletionEvents,
    ) -> Settlement:
        """Create the settlement of the janitor's two functions, which publishes an event for each kept request."""
        return cls(
            workflow,
            FailedRequestQueue(sqs, settings.failed_request_queue_url),
            SettlementTable(dynamodb, settings.settled_table_name),
            settings.grace_seconds,
            on_kept=RequestEvents(events, settings.failed_request_queue_url).failed,
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

    def settle_found(self, report: RunReport, until: float) -> None:
        """Settle the executions that `find` found, the processes in turns, until `until` (epoch seconds)."""
        memory = self.memory
        # The oldest first.
        unsettled = sorted(memory.unsettled.values(), key=lambda each: each.stopped_at or 0)
        for execution in in_turns(unsettled, lambda each: each.name.rpartition("-")[0]):
            if self.clock() >= until:
                left = len(memory.unsettled)
                return report.cut_short("The run's time has ended; the next run settles the other requests", left=left)
            try:
                if self._settle_listed(execution, report):
                    del memory.unsettled[execution.closing]
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
        return not known.is_closed or known.status == "SUCCEEDED" or self.settle(known, report)

    def settle(self, execution: Execution, report: RunReport, glue_run_state: str = "") -> bool:
        """Settle the request of a closed execution; False if another caller has claimed it and may still fail.

        Args:
            glue_run_state: the state of its Glue run, or empty. A run may have succeeded although its workflow was
                aborted.
        """
        if self.settled.has(execution.closing):
            return True
        # The status must be FAILED: the caller of StopExecution can set any error on an aborted execution.
        if execution.status == "FAILED" and execution.error in ACCOUNTED_FOR:
            self.settled.add(execution.closing, "workflow", self.clock())
            return True
        if not self.settled.claim(execution.closing, self.clock()):
            return False
        error = execution.error or execution.status
        cause = execution.cause or f"The workflow ended with status {execution.status}"
        self.failed_requests.keep(_request_of(execution), execution.name, error, cause, glue_run_state)
        self.on_kept(execution, error, cause)
        report.note(
            "RequestsKept", "Kept the request of a workflow that ended without success", execution=execution.name
        )
        self.settled.add(execution.closing, "janitor", self.clock())
        return True


def _request_of(execution: Execution) -> str:
    # A manually started execution may have any input. It is kept too, so that operators find it in the queue.
    try:
        json.loads(execution.input)
    except ValueError:
        return json.dumps({"input": execution.input})
    except RecursionError:
        pass  # valid JSON, since Step Functions accepted it, but nested too deeply for this parser
    # JSON allows these two characters unescaped; SQS does not (SQS API Reference, SendMessage).
    return execution.input.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
