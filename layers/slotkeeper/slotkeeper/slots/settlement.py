"""Settlement: each request of an execution that closed without success is kept, by the workflow or else by the janitor.

An execution that is aborted or times out runs no further state, so it cannot keep its request. The janitor's functions
do it then: claim, keep, publish, note (settlement_table.py). A function that ends between keeping and noting leaves its
claim, and the next function after the claim's end keeps the request once more. So a request is kept at least once, and
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

# A fortnight's failed executions are many pages of a list, and the last hour's one. Seconds by which a run lists
# further back than where all was settled: the list is late by seconds (Step Functions API Reference, ListExecutions).
_LIST_LAG_SECONDS = 3600
# Seconds of an invocation that publishing an event must leave: after it, the request is recorded as settled.
AFTER_EVENT_SECONDS = 10
# Seconds between two notes of where all was settled.
_NOTE_INTERVAL_SECONDS = 600
_PAGE = 1000  # Step Functions API Reference, ListExecutions, maxResults


@dataclass
class _Memory:
    """What a container knows from its runs before. It saves calls; a container without it lists more."""

    settled_by: float | None = None  # every execution that had ended by then was accounted for
    noted: float = -math.inf  # the same, as SettledTable has it
    unsettled: dict[str, Execution] = field(default_factory=dict)  # closing -> as listed
    # The rest of a list that was too long for one run, and when that was begun. Newer executions are listed anew.
    older: Iterator[Execution] | None = None
    older_begun: float = 0


@dataclass
class Settlement:
    """Finds what has closed without success, and accounts for its requests.

    Args:
        grace: seconds for which a closed execution is left to its status event.
        on_kept: receives each request that was kept, with error and cause, before that is noted.
        clock: seconds since the epoch.

    Attributes:
        closed: execution name -> as the newest listing had it, for those that closed lately.
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
        """As the janitor's two functions have it: each request that was kept is published."""
        return cls(
            workflow,
            FailedRequestQueue(sqs, settings.failed_request_queue_url),
            SettlementTable(dynamodb, settings.settled_table_name),
            settings.grace_seconds,
            on_kept=RequestEvents(events, settings.failed_request_queue_url).failed,
        )

    def find(self, until: float) -> None:
        """Lists what has closed without success since all was settled, the newest first, until a moment has come.

        Errors of Step Functions and DynamoDB pass through.
        """
        memory, now = self.memory, self.clock()
        self.closed, self._all_found = {}, False
        if memory.settled_by is None:
            memory.settled_by = memory.noted = self.settled.settled_by() or -math.inf
        # An iterator that has failed seems to have ended: it is put back only after it has been left in time.
        older, memory.older = memory.older, None
        newer_than = memory.settled_by if older is None else memory.older_begun
        listed = self.workflow.unsuccessful(max(now - HORIZON_SECONDS, newer_than - _LIST_LAG_SECONDS))
        if not self._take(listed, now, until, self.closed):
            if older is None:
                memory.older, memory.older_begun = listed, now
        elif older is not None and not self._take(older, now, until, {}):
            memory.older = older
        else:
            self._all_found = True

    def _take(self, listed: Iterator[Execution], now: float, until: float, closed: dict[str, Execution]) -> bool:
        """Sorts a list into what is settled and what is not; False if time was over before its end."""
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
        # The status event of what has just closed is on its way, and its function keeps the request.
        old = {each.closing: each for each in page if now - (each.stopped_at or now) >= self.grace}
        missing = self.settled.missing(old)
        self.memory.unsettled.update((closing, each) for closing, each in old.items() if closing in missing)

    def settle_found(self, report: RunReport, until: float) -> None:
        """Settles what was found, the processes in turns, until a moment has come."""
        memory = self.memory
        # The oldest first.
        unsettled = sorted(memory.unsettled.values(), key=lambda each: each.stopped_at or 0)
        for execution in in_turns(unsettled, lambda each: each.name.rpartition("-")[0]):
            if self.clock() >= until:
                return report.cut_short("Executions are left to settle", left=len(memory.unsettled))
            try:
                if self._settle_listed(execution, report):
                    del memory.unsettled[execution.closing]
            except Exception as error:
                report.failed("Could not settle an execution", error, execution=execution.name)
                if is_outage(error):
                    return None
        return None

    def note_settled(self, begun: float) -> None:
        """Notes that all was settled which had closed when a run began, if it was. Call it after `find`."""
        memory = self.memory
        if not self._all_found or memory.unsettled:
            return
        memory.settled_by = begun - self.grace
        if memory.settled_by - memory.noted >= _NOTE_INTERVAL_SECONDS:
            self.settled.note_settled_by(memory.settled_by)
            memory.noted = memory.settled_by

    def _settle_listed(self, execution: Execution, report: RunReport) -> bool:
        if self.settled.has(execution.closing):
            return True
        known = self.workflow.describe(execution.name)  # the list has no input
        if known is None:
            return False
        # One that was redriven since is listed again when it ends.
        return not known.is_closed or known.status == "SUCCEEDED" or self.settle(known, report)

    def settle(self, execution: Execution, report: RunReport, glue_run_state: str = "") -> bool:
        """Accounts for the request of a closed execution; False if another caller has claimed it, and may fail.

        Args:
            glue_run_state: of its Glue run, where that is known. A run may have succeeded whose workflow was aborted.
        """
        if self.settled.has(execution.closing):
            return True
        # Only the workflow's own Fail states are believed: StopExecution takes any error from its caller.
        if execution.status == "FAILED" and execution.error in ACCOUNTED_FOR:
            self.settled.add(execution.closing, "workflow", self.clock())
            return True
        if not self.settled.claim(execution.closing, self.clock()):
            return False
        error = execution.error or execution.status
        cause = execution.cause or f"The workflow ended as {execution.status}"
        self.failed_requests.keep(_request_of(execution), execution.name, error, cause, glue_run_state)
        self.on_kept(execution, error, cause)
        report.note("RequestsKept", "Kept the request of a workflow that has ended", execution=execution.name)
        self.settled.add(execution.closing, "janitor", self.clock())
        return True


def _request_of(execution: Execution) -> str:
    # An execution started by hand may have any input; whatever it is, whoever reads the queue should see it.
    try:
        json.loads(execution.input)
    except ValueError:
        return json.dumps({"input": execution.input})
    except RecursionError:
        pass  # JSON, as Step Functions says; only too deep to be read here
    # The two characters that JSON allows as they are, and SQS does not (SQS API Reference, SendMessage).
    return execution.input.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
