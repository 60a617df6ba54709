"""The starter: takes a slot for each request on RequestQueue and starts its workflow."""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
import time
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
from slotkeeper.slots.admission import Admission, Admitted, DeadLettered, Deferred, Repeated, Starter, Waiting
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue
from slotkeeper.slots.request import Delivery, Request
from slotkeeper.slots.request_events import RequestEvents

# Of an invocation, for what comes after an event: metrics, and the answer.
AFTER_EVENT_SECONDS = 1


def _name(request: Request) -> None:
    logger.append_keys(process=request.process, request_id=request.request_id, attempt=request.attempt)


# Two calls, the first of them answered only at its third attempt and the second never, take 29 s with the waits between
# the attempts, and the function has 30. A call that hung for longer would end the invocation before it could log what
# happened to the message.
_client_config = client_config(read_timeout=3, attempts=3)
_settings = load_settings(StarterSettings)
_starter = Starter(
    Slots(boto3.client("dynamodb", config=_client_config), _settings.slot_table_name),
    RequestQueue(
        boto3.client("sqs", config=_client_config), _settings.request_queue_url, _settings.request_dead_letter_queue_url
    ),
    Workflow(boto3.client("stepfunctions", config=_client_config), _settings.workflow_arn),
    _settings.queue_visibility_seconds,
    _settings.queue_retention_seconds,
    _settings.queue_max_receives,
    _name,
)
_completion_events = CompletionEvents.from_environment()
_request_events = RequestEvents(_completion_events, _settings.request_dead_letter_queue_url)


@metrics.log_metrics(capture_cold_start_metric=True)
@tracer.capture_lambda_handler
@logger.inject_lambda_context(clear_state=True)
@event_source(data_class=SQSEvent)
def handler(event: SQSEvent, context: LambdaContext) -> dict[str, Any]:
    """Reports each message that must come back as a failed item; raising would hide why from the queue's metrics."""
    _completion_events.seconds_left = lambda: context.get_remaining_time_in_millis() / 1000 - AFTER_EVENT_SECONDS
    unconsumed: list[dict[str, str]] = []
    for record in event.records:
        # In a FIFO batch whatever follows a message that stays must stay too (Lambda guide, "Handling errors for an SQS
        # event source"). The template asks for batches of one; an event made by hand may hold more.
        if unconsumed or not _consume(_delivery(record)):
            unconsumed.append({"itemIdentifier": record.message_id})
    return {"batchItemFailures": unconsumed}


def _consume(delivery: Delivery) -> bool:
    """True if the message is done with."""
    logger.remove_keys(["process", "request_id", "attempt"])  # the message's before this one in the batch
    logger.append_keys(message_id=delivery.message_id, message_group=delivery.group_id)
    now = time.time()
    # Of every request, whatever comes of it: also of a paused process, or where a call fails.
    metrics.add_metric("RequestAge", MetricUnit.Seconds, now - delivery.sent_at)
    try:
        admission = _starter.admit(delivery, now)
    except Exception as error:
        # Whatever it was, the next delivery of the message finds what was done so far.
        logger.exception("Left the message on the queue")
        metrics.add_metric("StarterErrors", MetricUnit.Count, 1)
        deferred = _defer(delivery, now, error)
        if not isinstance(deferred, DeadLettered):
            return False
        admission = deferred
    _report(admission, now - delivery.sent_at)
    if isinstance(admission, DeadLettered):
        _request_events.dead_lettered(delivery, admission.request, admission.code, admission.reason)
    return not isinstance(admission, Waiting | Deferred)


def _defer(delivery: Delivery, now: float, error: Exception) -> Admission | None:
    try:
        return _starter.defer(delivery, now, error)
    except Exception:
        logger.exception("The message comes back after the queue's visibility timeout: it could not be deferred")
        return None


def _report(admission: Admission, waited: float) -> None:
    match admission:
        case Admitted(execution, process):
            logger.info("Started the workflow", execution=execution, waited_seconds=int(waited))
            metrics.add_metric("RequestsAdmitted", MetricUnit.Count, 1)
            measure_process(process, MetricUnit.Seconds, RequestWait=waited)
        case Repeated(execution):
            logger.warning("Dropped a request that has run before", execution=execution)
            metrics.add_metric("RequestsRepeated", MetricUnit.Count, 1)
        case DeadLettered(code, reason):
            logger.warning("Moved the message to the dead-letter queue", code=code, reason=reason)
            metrics.add_metric("RequestsDeadLettered", MetricUnit.Count, 1)
        case Waiting(process, because):
            logger.info("No slot; the message waits", because=because, waited_seconds=int(waited))
            metrics.add_metric("RequestsRefused", MetricUnit.Count, 1)
            measure_process(process, MetricUnit.Seconds, RequestWaitSoFar=waited)
        case Deferred(_, reason):
            logger.error("Left the message on the queue", reason=reason)
            metrics.add_metric("StarterErrors", MetricUnit.Count, 1)


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
