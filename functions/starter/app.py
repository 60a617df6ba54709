"""The starter: takes a slot for each request on RequestQueue and starts its workflow."""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
import time
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.data_classes import SQSEvent, event_source
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.aws.clients import client_config
from slotkeeper.events import CompletionEvents
from slotkeeper.observability import logger, measure_process, metrics, tracer
from slotkeeper.settings import StarterSettings, load_settings
from slotkeeper.slots.admission import Admission, Admitted, DeadLettered, Deferred, Repeated, Skipped, Starter, Waiting
from slotkeeper.slots.callers import AnswerOutcome, Callers
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue
from slotkeeper.slots.request import DEFAULT_PRIORITY, Delivery, Request
from slotkeeper.slots.request_events import RequestEvents
from slotkeeper.slots.skipped_requests import SkippedRequests

# Seconds of an invocation that publishing an event must leave, for the metrics and the answer.
AFTER_EVENT_SECONDS = 1


# Answers to callers that did not arrive -> the metric.
_UNANSWERED = {
    AnswerOutcome.SPENT: "AnswersSpent",
    AnswerOutcome.FAILED: "AnswersFailed",
    AnswerOutcome.DENIED: "AnswersFailed",
}
_LOG_KEYS = ("process", "request_id", "attempt", "priority", "weight")


def _add_log_keys(request: Request) -> None:
    keys = {name: getattr(request, name) for name in _LOG_KEYS}
    logger.append_keys(**{name: value for name, value in keys.items() if value is not None})


@cache
def _callers() -> Callers:
    # Only a dead-lettered or skipped request with a caller needs it. One attempt, since the message is not deleted
    # before its end.
    return Callers(boto3.client("stepfunctions", config=client_config(read_timeout=3, attempts=1)))


def _answer(token: str, code: str, reason: str) -> AnswerOutcome:
    return _callers().fail(token, code, reason)


# The function has 30 s. One call that succeeds at its third attempt and one that never succeeds take 29 s, with the
# waits between the attempts. A longer call would end the invocation before it could log the outcome of the message.
_client_config = client_config(read_timeout=3, attempts=3)
_settings = load_settings(StarterSettings)
_dynamodb = boto3.client("dynamodb", config=_client_config)
_starter = Starter(
    Slots(_dynamodb, _settings.slot_table_name),
    RequestQueue(
        boto3.client("sqs", config=_client_config), _settings.request_queue_url, _settings.request_dead_letter_queue_url
    ),
    Workflow(boto3.client("stepfunctions", config=_client_config), _settings.workflow_arn),
    SkippedRequests(_dynamodb, _settings.settled_table_name),
    _settings.queue_visibility_seconds,
    _settings.queue_retention_seconds,
    _settings.queue_max_receives,
    _add_log_keys,
    _answer,
)
_completion_events = CompletionEvents.from_environment()
_request_events = RequestEvents(_completion_events, _settings.request_dead_letter_queue_url)


@metrics.log_metrics(capture_cold_start_metric=True)
@tracer.capture_lambda_handler
@logger.inject_lambda_context(clear_state=True)
@event_source(data_class=SQSEvent)
def handler(event: SQSEvent, context: LambdaContext) -> dict[str, Any]:
    """Return the messages that must stay on the queue as failed items."""
    _completion_events.seconds_left = lambda: context.get_remaining_time_in_millis() / 1000 - AFTER_EVENT_SECONDS
    unconsumed: list[dict[str, str]] = []
    for record in event.records:
        # In a FIFO batch, messages after one that stays must stay too (Lambda guide, "Handling errors for an SQS event
        # source"). The template sets batches of one; a manually created event may have more.
        if unconsumed or not _consume(_delivery(record)):
            unconsumed.append({"itemIdentifier": record.message_id})
    return {"batchItemFailures": unconsumed}


def _consume(delivery: Delivery) -> bool:
    """Handle a message; True if it can be deleted."""
    logger.remove_keys(_LOG_KEYS)  # of the previous message in the batch
    logger.append_keys(message_id=delivery.message_id, message_group=delivery.group_id)
    now = time.time()
    # For every request: also if its process is paused, or a call fails.
    metrics.add_metric("RequestAge", MetricUnit.Seconds, now - delivery.sent_at)
    try:
        admission = _starter.admit(delivery, now)
    except Exception as error:
        # After any exception the next delivery of the message continues from the steps that are done.
        logger.exception("Left the message on the queue after an error")
        metrics.add_metric("StarterErrors", MetricUnit.Count, 1)
        deferred = _defer(delivery, now, error)
        if not isinstance(deferred, DeadLettered):
            return False
        admission = deferred
    _report(admission, delivery.sent_at, now - delivery.sent_at)
    if isinstance(admission, DeadLettered):
        _request_events.dead_lettered(delivery, admission.request, admission.code, admission.reason)
    elif isinstance(admission, Skipped):
        _request_events.skipped(delivery, admission.request, admission.reason)
    return not isinstance(admission, Waiting | Deferred)


def _defer(delivery: Delivery, now: float, error: Exception) -> Admission | None:
    try:
        return _starter.defer(delivery, now, error)
    except Exception:
        logger.exception("Could not defer the message; it comes back after the queue's visibility timeout")
        return None


def _report(admission: Admission, sent_at: float, waited: float) -> None:
    match admission:
        case Admitted(request):
            # `slotkeeper audit` and `what-if` read this line: no other record has the time of sending after the start.
            logger.info(
                "Started the workflow",
                execution=request.execution_name,
                sent_at=sent_at,
                waited_seconds=int(waited),
            )
            metrics.add_metric("RequestsAdmitted", MetricUnit.Count, 1)
            measure_process(
                request.process, MetricUnit.Seconds, of_priority=_unless_default(request), RequestWait=waited
            )
        case Repeated(execution):
            logger.warning("Deleted the message of a request that has run before", execution=execution)
            metrics.add_metric("RequestsRepeated", MetricUnit.Count, 1)
        case DeadLettered(code, reason):
            logger.warning("Moved the message to the dead-letter queue", code=code, reason=reason)
            metrics.add_metric("RequestsDeadLettered", MetricUnit.Count, 1)
            _report_answer(admission.answered)
        case Skipped(_, reason):
            logger.info("Skipped the request", reason=reason)
            metrics.add_metric("RequestsSkipped", MetricUnit.Count, 1)
            _report_answer(admission.answered)
        case Waiting(request, because):
            logger.info("The request waits", because=because, waited_seconds=int(waited))
            metrics.add_metric("RequestsRefused", MetricUnit.Count, 1)
            measure_process(
                request.process, MetricUnit.Seconds, of_priority=_unless_default(request), RequestWaitSoFar=waited
            )
        case Deferred(_, reason):
            logger.error("Left the message on the queue", reason=reason)
            metrics.add_metric("StarterErrors", MetricUnit.Count, 1)


def _report_answer(answered: AnswerOutcome | None) -> None:
    if answered in _UNANSWERED:
        metrics.add_metric(_UNANSWERED[answered], MetricUnit.Count, 1)


def _unless_default(request: Request) -> str:
    """The request's priority; "" for the default, whose metrics would repeat the process's if only it is used."""
    return "" if request.priority == DEFAULT_PRIORITY else request.priority


def _delivery(record: SQSRecord) -> Delivery:
    attributes = record.attributes
    return Delivery(
        message_id=record.message_id,
        body=record.body,
        group_id=attributes.message_group_id or "",
        receipt_handle=record.receipt_handle,
        sequence=attributes.sequence_number or "0",
        receives=int(attributes.approximate_receive_count),
        sent_at=int(attributes.sent_timestamp) / 1000,
    )


cold_start.over()
