"""The starter: queues each request of RequestQueue, and starts what can start; dispatches for DispatchQueue's rings."""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import boto3
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.data_classes import SQSEvent, event_source
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.aws.clients import client_config
from slotkeeper.observability import logger, measure_process, metrics, tracer
from slotkeeper.settings import StarterSettings, load_settings
from slotkeeper.slots.dispatch import Report, Tools
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.ending_queue import EndingQueue
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.intake import Acceptance, Rejected, SameAgain
from slotkeeper.slots.queues import RequestDeadLetterQueue
from slotkeeper.slots.request import DEFAULT_PRIORITY, Delivery, Request
from slotkeeper.slots.request_table import RequestTable
from slotkeeper.slots.starter import Observer, Starter
from slotkeeper.slots.starts import ReservationStarter, Starts


class _Measured(Observer):
    """Logs and counts what the starter does."""

    def accepted(self, request: Request, acceptance: Acceptance, sent_at: float) -> None:
        keys = {"process": request.process, "request_id": request.request_id, "execution": acceptance.execution}
        keys |= {"key": request.key} if request.key else {}
        match acceptance:
            case SameAgain():
                _log(logger.warning, "Deleted the message of a request that was sent before", **keys)
                metrics.add_metric("RequestsRepeated", MetricUnit.Count, 1)
            case Rejected(code=code):
                _log(logger.warning, "Rejected a request", code=code, **keys)
            case _:
                _log(logger.info, "Queued a request", sent_at=sent_at, priority=request.priority, **keys)

    def dead_lettered(self, delivery: Delivery, code: str, reason: str) -> None:
        logger.warning(
            "Moved a message to the dead-letter queue", code=code, reason=reason, message_id=delivery.message_id
        )
        metrics.add_metric("RequestsDeadLettered", MetricUnit.Count, 1)

    def dispatched(self, process: str, report: Report) -> None:
        now = time.time()
        for execution, row in report.started.items():
            waited = now - row.sent
            keys = {"process": process, "execution": execution, "waited_seconds": int(waited)}
            keys |= {"key": row.key} if row.key else {}
            _log(logger.info, "Started the workflow", **keys)
            metrics.add_metric("RequestsAdmitted", MetricUnit.Count, 1)
            # For the default priority the metrics would repeat the process's if only it is used.
            priority = "" if row.priority == DEFAULT_PRIORITY else row.priority
            measure_process(process, MetricUnit.Seconds, of_priority=priority, RequestWait=waited)
        if report.put_back:
            keys = {"process": process, "executions": report.put_back}
            _log(logger.warning, "Could not start requests; they stay queued", **keys)
            metrics.add_metric("StarterErrors", MetricUnit.Count, 1)

    def failed(self, message: str, error: Exception, **details: object) -> None:
        _log(partial(logger.error, exc_info=error), message, **details)
        metrics.add_metric("StarterErrors", MetricUnit.Count, 1)

    def rang(self, bell: Bell) -> None:
        metrics.add_metric("DispatchChain", MetricUnit.Count, bell.count)


def _log(write: Callable[..., None], message: str, **keys: object) -> None:
    """Log with these keys. As arguments of `write`, `process` would be refused: a log record has such an attribute."""
    with logger.append_context_keys(**keys):
        write(message, stacklevel=3)  # the location is the caller's


# One call that succeeds at its third attempt and one that never succeeds take 29 s of the function's 30, with the waits
# between the attempts.
_client_config = client_config(read_timeout=3, attempts=3)
_settings = load_settings(StarterSettings)
_dynamodb = boto3.client("dynamodb", config=_client_config)
_sqs = boto3.client("sqs", config=_client_config)
_grants = Grants(_dynamodb, _settings.slot_table_name)
_requests = RequestTable(_dynamodb, _settings.request_table_name, _settings.slot_table_name)
_start_config = client_config(read_timeout=4, attempts=1)  # as Starts demands
_starts = Starts(boto3.client("stepfunctions", config=_start_config), _settings.workflow_arn)
_starter = Starter(
    Tools(
        _grants,
        _requests,
        ReservationStarter(_starts, _grants, _requests, time.time),
        Doorbell(_sqs, _settings.dispatch_queue_url),
    ),
    EndingQueue(_sqs, _settings.ending_queue_url),
    RequestDeadLetterQueue(_sqs, _settings.request_dead_letter_queue_url),
    _Measured(),
)
# The last part of its ARN, by which the two event sources are distinguished.
_DISPATCH_QUEUE = _settings.dispatch_queue_url.rpartition("/")[2]


@metrics.log_metrics(capture_cold_start_metric=True)
@tracer.capture_lambda_handler
@logger.inject_lambda_context(clear_state=True)
@event_source(data_class=SQSEvent)
def handler(event: SQSEvent, context: LambdaContext) -> dict[str, Any]:
    """Return the messages that must stay on their queue as failed items."""

    def seconds_left() -> float:
        return context.get_remaining_time_in_millis() / 1000

    starter = replace(_starter, tools=replace(_starter.tools, seconds_left=seconds_left))
    deliveries: list[Delivery] = []
    rings: list[tuple[str, str]] = []
    for record in event.records:
        if record.event_source_arn.rpartition(":")[2] == _DISPATCH_QUEUE:
            rings.append((record.message_id, record.body))
        else:
            deliveries.append(_delivery(record))
    kept = starter.receive(deliveries) + starter.rung(rings)
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in kept]}


def _delivery(record: SQSRecord) -> Delivery:
    attributes = record.attributes
    return Delivery(
        message_id=record.message_id,
        body=record.body,
        group_id=attributes.message_group_id or "",
        sequence=attributes.sequence_number or "0",
        sent_at=int(attributes.sent_timestamp) / 1000,
    )


cold_start.over()
