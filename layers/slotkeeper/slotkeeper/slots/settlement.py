"""Settlement: records how a request has ended whose workflow could not record it.

An execution that is aborted or times out runs no further state. The functions of the janitor record the outcome in the
request's row: of a holder once its work has ended (dead_holders.py), and before its slot is freed; of an execution
without a slot once it has closed. The row takes the first outcome, so any number of functions may do this.

A request whose Glue run or child execution has succeeded has succeeded, although its workflow did not end well.
A request whose workflow held no slot has started no work: it is queued again (returns.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from botocore.exceptions import ClientError

from slotkeeper.settings import CLOCK_SKEW_SECONDS, JanitorSettings
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.executions import FORGOTTEN_AFTER, Execution, Workflow
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.returns import NotRequeued, Requeued, Requeues
from slotkeeper.slots.rows import MalformedRequestRow, RequestRow, RequestRows
from slotkeeper.slots.run_report import RunReport, is_denied
from slotkeeper.slots.work import Children, Work

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Fail states of the workflow whose cause is "error: cause" of the failure, or this text.
WITH_FAILURE = ("RequestFailed", "WorkUnknown", "OutcomeNotRecorded")
WORK_HAS_SUCCEEDED = "The work has succeeded"
# The workflow could not read its child. The cause begins with the child's ARN.
CHILD_TOO_LARGE = "ChildTooLarge"
# As in the workflow's state RunStateMachine, which measures the output with its characters escaped.
MAX_OUTPUT_CHARACTERS = 204_800


@dataclass(frozen=True)
class Succeeded:
    """The request has succeeded. `answer`: JSON for its caller; "" if its output is not known."""

    answer: str = ""


@dataclass(frozen=True)
class Failed:
    """The request has failed."""

    code: str
    cause: str


def decide(execution: Execution | None, work: Work | None, target: str = "") -> Succeeded | Failed:
    """Decide how the request of a closed execution has ended, if its workflow has not recorded it.

    Args:
        execution: None if Step Functions does not know it any more.
        work: what ran in its slot, and has ended, if it is known.
        target: what ran: the job's name.
    """
    if work is not None and work.has_succeeded:
        return Succeeded(_answer(work, target))
    if execution is None:
        return Failed("ExecutionUnknown", "Step Functions does not know the execution, and no work of it is alive")
    if execution.status == "SUCCEEDED":  # its row was restored from a backup
        return Succeeded()
    if execution.status == "FAILED" and execution.error in WITH_FAILURE:
        if execution.cause == WORK_HAS_SUCCEEDED:
            return Succeeded()
        code, separator, cause = execution.cause.partition(": ")
        if separator:
            return Failed(code, cause)
    cause = execution.cause or f"The workflow ended with status {execution.status}"
    return Failed(execution.error or execution.status, cause)


def _is_older(execution: Execution, row: RequestRow | None) -> bool:
    """Whether an execution is that of an earlier request with the same id, whose row has expired.

    A dispatch rejects the request that waits (starts.py).
    """
    accepted = row.open if row is not None and not row.is_unpublished else None
    return accepted is not None and (execution.started_at or accepted) < accepted - CLOCK_SKEW_SECONDS


def _answer(work: Work, target: str) -> str:
    """As the workflow's states answer (RunGlueJob, RunStateMachine)."""
    if work.is_glue_run:
        return json.dumps({"Id": work.id, "JobName": target, "JobRunState": "SUCCEEDED"})
    if work.output and len(quote(work.output, safe="-_.!~*'()")) <= MAX_OUTPUT_CHARACTERS:
        return work.output
    return json.dumps({"ExecutionArn": work.id})


@dataclass(frozen=True)
class Settlement:
    """Settles requests.

    Args:
        clock: seconds since the epoch.
    """

    workflow: Workflow
    children: Children
    rows: RequestRows
    outcomes: Outcomes
    requeues: Requeues
    doorbell: Doorbell
    clock: Callable[[], float]

    @classmethod
    def from_settings(
        cls,
        settings: JanitorSettings,
        workflow: Workflow,
        dynamodb: DynamoDBClient,
        children: Children,
        doorbell: Doorbell,
    ) -> Settlement:
        """Create the settlement of a function."""
        table = settings.request_table_name
        rows, outcomes = RequestRows(dynamodb, table), Outcomes(dynamodb, table)
        return cls(workflow, children, rows, outcomes, Requeues.from_settings(settings, dynamodb), doorbell, time.time)

    def settle_held(self, process: str, name: str, work: Work | None, target: str, report: RunReport) -> bool:
        """Settle the request of a holder whose work has ended; False if its slot must stay: its execution runs.

        Args:
            work: its newest Glue run, or its child execution; None if nothing ran.
        """
        execution = self.workflow.describe(name)
        if execution is not None and not execution.is_closed:
            return False
        row: RequestRow | None = None
        with suppress(MalformedRequestRow):  # its slot must not stay for that
            row = self.rows.row(process, name) if work is None else None
        if execution is not None and _is_older(execution, row):
            return False
        if not (execution and execution.has_lost_its_slot) or (work is not None and work.has_succeeded):
            self._record(process, name, decide(execution, work, target), report)
        return True  # one that has lost its slot is queued again when this one is free

    def settle_unheld(self, row: RequestRow, report: RunReport) -> bool:
        """Settle a request whose execution holds no slot; False if that must be repeated. Safe to repeat."""
        execution = self.workflow.describe(row.execution)
        if execution is None:
            if row.started is None or self.clock() - row.started < FORGOTTEN_AFTER:
                return False
        elif not execution.is_closed or _is_older(execution, row):
            return True  # its next end has its own event
        elif execution.has_lost_its_slot:
            return self._give_back(row, report)
        self._record(row.process, row.execution, decide(execution, self._unread_child(execution)), report)
        return True

    def _give_back(self, row: RequestRow, report: RunReport) -> bool:
        outcome = self.requeues.give_back(row.process, row.execution, self.clock())
        if isinstance(outcome, NotRequeued) and outcome.is_temporary:
            return False
        # Also after a repeated event, whose first delivery may have ended before its ring. Timed, since its
        # start_before may have passed, and a full process is searched for such requests only then.
        self.doorbell.ring(Bell(row.process, self.clock()))
        if isinstance(outcome, Requeued):
            report.note("RequestsReturned", "Queued a request again that held no slot", execution=row.execution)
        return True

    def _unread_child(self, execution: Execution | None) -> Work | None:
        """The child that the workflow could not read, if its slot was released meanwhile: no holder names it.

        None if the target does not permit that it is read. An operator who releases such a slot has checked the work.
        """
        if execution is None or execution.status != "FAILED" or execution.error != CHILD_TOO_LARGE:
            return None
        arn = execution.cause.partition(" ")[0]
        target = arn.removesuffix(f":{execution.name}").replace(":execution:", ":stateMachine:")
        try:
            child = self.children.describe(target, execution.name, execution.arn)
        except ClientError as error:
            if not is_denied(error):
                raise
            return None
        return child if child is not None and child.is_closed else None

    def _record(self, process: str, name: str, outcome: Succeeded | Failed, report: RunReport) -> None:
        """Record an outcome, unless the workflow has. A manually started execution has no row."""
        now = self.clock()
        if isinstance(outcome, Succeeded):
            is_new = self.outcomes.succeeded(process, name, now, outcome.answer)
        else:
            is_new = self.outcomes.failed(process, name, now, outcome.code, outcome.cause)
        if is_new:
            report.settled.append((process, name))
            report.note("RequestsSettled", "Recorded the outcome of a request for its workflow", execution=name)
