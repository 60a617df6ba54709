"""Publishes ends: the only sender of answers, completion events of requests, and notifications.

An end is recorded in the request's row first. Then it is published in this order, each step after the one before it:

1. Its caller is answered, if one waits. Step Functions accepts one answer for each task token: a second is refused.
2. Its completion event is sent.
3. FailureTopic is notified, if it has failed.
4. Its row is marked: it leaves the index `open`, loses token and answer, and expires after its retention.

If a step fails, the row stays unpublished, with the number of steps that are done, and the janitor's next run publishes
it: each step happens at least once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aws_lambda_powertools.metrics import MetricUnit
from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws.dynamodb import Item, Table, number
from slotkeeper.events import CompletionEvents
from slotkeeper.observability import logger, measure_process, metrics
from slotkeeper.settings import JanitorSettings
from slotkeeper.slots.callers import AnswerOutcome, Callers
from slotkeeper.slots.executions import Workflow, failure_reason
from slotkeeper.slots.notices import FailureNotices
from slotkeeper.slots.request_events import RequestEvents
from slotkeeper.slots.rows import MalformedRequestRow, RequestRow, read_row

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_stepfunctions import SFNClient

# Seconds of an invocation that sending an event must leave for the notification and the mark.
AFTER_EVENT_SECONDS = 10
MARK_UPDATE = "SET expires = :expires REMOVE #open, task_token, answer, published"
MARK_REASON = ", reason = :reason"
# The end that was published: a redriven execution may have recorded another one meanwhile.
MARK_CONDITION = "#state = :state AND #open = :open"
NOTE_UPDATE = "SET published = :done"
MAX_REASON = 2000
# State -> the metric that counts it.
_METRICS = {
    "FAILED": "RequestsFailed",
    "REJECTED": "RequestsRejected",
    "SKIPPED": "RequestsSkipped",
    "TOO_LATE": "RequestsTooLate",
    "CANCELLED": "RequestsCancelled",
}


@dataclass(frozen=True)
class Retention:
    """Seconds for which rows are kept once their ends were published."""

    succeeded: float
    failed: float


class Endings:
    """Publishes ends. Errors of DynamoDB pass through as ClientError or BotoCoreError.

    Args:
        execution_arn: returns the ARN of the execution of this name.
        clock: seconds since the epoch.
        on_published: receives each row after it was marked.
        count: counts a metric.
    """

    def __init__(
        self,
        dynamodb: DynamoDBClient,
        table_name: str,
        callers: Callers,
        events: RequestEvents,
        notices: FailureNotices,
        retention: Retention,
        execution_arn: Callable[[str], str],
        clock: Callable[[], float],
        on_published: Callable[[RequestRow], object] = lambda _: None,
        count: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._table = Table(dynamodb, table_name, "process_name", "execution")
        self._callers, self._events, self._notices = callers, events, notices
        self._retention, self._execution_arn, self._clock = retention, execution_arn, clock
        self._on_published, self._count = on_published, count

    @classmethod
    def from_settings(
        cls,
        settings: JanitorSettings,
        workflow: Workflow,
        dynamodb: DynamoDBClient,
        stepfunctions: SFNClient,
        sns: SNSClient,
        events: CompletionEvents,
    ) -> Endings:
        """Create the sender of a function, which logs and counts what it does."""
        table = settings.request_table_name
        return cls(
            dynamodb,
            table,
            Callers(stepfunctions),
            RequestEvents(events, table, settings.request_dead_letter_queue_url.rpartition("/")[2]),
            FailureNotices(sns, settings.failure_topic_arn),
            Retention(settings.request_retention_days * 86400, settings.failed_retention_days * 86400),
            workflow.execution_arn,
            time.time,
            _measure,
            _count,
        )

    def publish(self, process: str, executions: Iterable[str]) -> list[str]:
        """Publish the ends of these requests, if they are not published; return those that must be published again.

        A caller that has ended, or has an answer, counts as answered.
        """
        left = []
        for execution in executions:
            try:
                is_published = self._publish(process, execution)
            except MalformedRequestRow as error:
                logger.error("The row of an ended request is malformed", error=str(error))
                self._count("MalformedRequests")
                is_published = False
            if not is_published:
                left.append(execution)
        return left

    def refused(self, refused: Mapping[str, str]) -> bool:
        """Publish that a message is no request (EndingQueue.refused); False if that must be repeated."""
        token = refused.get("task_token", "")
        if token and not self._answered(self._callers.fail(token, refused["code"], refused["reason"])):
            return False
        return self._events.dead_lettered(refused)

    def _publish(self, process: str, execution: str) -> bool:
        item = self._table.read((process, execution))
        row = read_row(item) if item else None
        if row is None or not row.is_unpublished:
            return True
        reason = row.reason
        if row.state == "FAILED":
            reason = (failure_reason(row.cause) or row.code)[:MAX_REASON]
        arn = self._execution_arn(execution)
        steps: list[Callable[[], bool]] = [
            lambda: not row.task_token or self._answered(self._answer(row, reason)),
            lambda: self._events.ended(row, reason, arn),
            lambda: row.state != "FAILED" or self._notify(row, reason, arn),
        ]
        for done, step in enumerate(steps):
            if done >= row.published and not step():
                if done > row.published:  # so that a removed receiver does not repeat the others each minute
                    self._update(row, NOTE_UPDATE, {":done": number(done)})
                return False
        if not self._mark(row, reason):
            return False
        self._on_published(row)
        return True

    def _answer(self, row: RequestRow, reason: str) -> AnswerOutcome:
        if row.state == "SUCCEEDED":
            # Without an answer it is not known, or too long: the caller can read the execution.
            unknown = json.dumps({"ExecutionArn": self._execution_arn(row.execution)})
            return self._callers.succeed(row.task_token, row.answer or unknown)
        return self._callers.fail(row.task_token, row.code, reason)

    def _answered(self, given: AnswerOutcome) -> bool:
        if given is not AnswerOutcome.GIVEN:
            self._count("AnswersSpent" if given is AnswerOutcome.SPENT else "AnswersFailed")
        return given is not AnswerOutcome.FAILED

    def _notify(self, row: RequestRow, reason: str, arn: str) -> bool:
        try:
            self._notices.publish(row, reason, arn)
        except (ClientError, BotoCoreError) as error:
            logger.error("Could not notify that a request has failed", error=str(error), execution=row.execution)
            self._count("NoticesNotSent")
            return False
        return True

    def _mark(self, row: RequestRow, reason: str) -> bool:
        kept = self._retention.succeeded if row.state == "SUCCEEDED" else self._retention.failed
        expires = number(int(self._clock() + kept))
        if row.state != "FAILED":
            return self._update(row, MARK_UPDATE, {":expires": expires})
        update = MARK_UPDATE.replace(" REMOVE", MARK_REASON + " REMOVE")
        return self._update(row, update, {":expires": expires, ":reason": {"S": reason}})

    def _update(self, row: RequestRow, update: str, values: Item) -> bool:
        """Update the row, if it still has the end that is published."""
        seen: Item = {":state": {"S": row.state}, ":open": number(row.open or 0)}
        key, names = (row.process, row.execution), {"#state": "state", "#open": "open"}
        return self._table.update(key, update, MARK_CONDITION, seen | values, names).held


def _count(metric: str) -> None:
    metrics.add_metric(metric, MetricUnit.Count, 1)


def _measure(row: RequestRow) -> None:
    keys = {"request_id": row.request_id, "execution": row.execution, "state": row.state, "code": row.code}
    # As an argument of the logger, `process` would be refused: a log record has such an attribute.
    with logger.append_context_keys(process=row.process, **keys):
        logger.info("Published how a request has ended")
    if row.state in _METRICS:
        _count(_METRICS[row.state])
    if row.state == "FAILED":
        measure_process(row.process, MetricUnit.Count, RequestsFailed=1)
    if row.code == "CallerGone":
        _count("CallersGone")
