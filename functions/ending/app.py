"""Publishes how requests have ended, and settles those whose workflow could not: for each message of EndingQueue.

This is best effort. The janitor's runs do the same later, and are the guarantee.
"""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
import json
import time
from collections.abc import Callable
from typing import Any

import boto3
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.data_classes import SQSEvent, event_source
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.aws.clients import client_config
from slotkeeper.events import CompletionEvents
from slotkeeper.observability import logger, metrics, tracer
from slotkeeper.settings import EndingSettings, JanitorSettings, load_settings
from slotkeeper.slots.closed_executions import AFTER_FAILURE_SECONDS, MAX_WAIT_SECONDS, ClosedExecutions
from slotkeeper.slots.dead_holders import DeadHolders
from slotkeeper.slots.doorbell import Doorbell
from slotkeeper.slots.endings import AFTER_EVENT_SECONDS, Endings
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.returns import Requeues
from slotkeeper.slots.rows import RequestRows
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.work import Children, GlueRuns

# Seconds that a message may take: a search of Glue runs. With fewer left, the messages that follow are returned.
_MESSAGE_SECONDS = 40

# Kind of a message -> the texts that it has.
_FIELDS = {
    "detail": ("name", "status"),
    "refused": ("message_id", "group_id", "code", "reason"),
    "process": ("process",),
}

_client_config = client_config(read_timeout=3, attempts=3)
# A page of a list takes longer. If a service does not answer, a call lasts for up to 24 s.
_list_config = client_config(read_timeout=10, attempts=2)
_settings = load_settings(JanitorSettings)
_queue_url = load_settings(EndingSettings).ending_queue_url
_dynamodb = boto3.client("dynamodb", config=_client_config)
_sqs = boto3.client("sqs", config=_client_config)
_stepfunctions = boto3.client("stepfunctions", config=_client_config)
_workflow = Workflow(_stepfunctions, _settings.workflow_arn)
_slots = Slots(_dynamodb, _settings.slot_table_name)
_rows = RequestRows(_dynamodb, _settings.request_table_name)
_children = Children(_stepfunctions)
_doorbell = Doorbell(_sqs, _settings.dispatch_queue_url)
_completion_events = CompletionEvents.from_environment()
_endings = Endings.from_settings(
    _settings, _workflow, _dynamodb, _stepfunctions, boto3.client("sns", config=_client_config), _completion_events
)
_closed = ClosedExecutions(
    _slots,
    _rows,
    _doorbell,
    _workflow,
    Settlement(
        _workflow,
        _children,
        _rows,
        Outcomes(_dynamodb, _settings.request_table_name),
        Requeues.from_settings(_settings, _dynamodb),
        _doorbell,
        time.time,
    ),
    DeadHolders(
        _slots,
        GlueRuns(boto3.client("glue", config=_list_config)),
        _children,
        _settings.check_gap_seconds,
        time.time,
    ),
    _endings,
    time.time,
)


@metrics.log_metrics
@tracer.capture_lambda_handler
@logger.inject_lambda_context(clear_state=True)
@event_source(data_class=SQSEvent)
def handler(event: SQSEvent, context: LambdaContext) -> dict[str, Any]:
    """Return the messages that must be delivered again as failed items, with their visibility timeout set."""

    def seconds_left() -> float:
        return context.get_remaining_time_in_millis() / 1000

    _completion_events.seconds_left = lambda: seconds_left() - AFTER_EVENT_SECONDS
    returning: list[dict[str, str]] = []
    for number, record in enumerate(event.records):
        seconds = _handle(record, seconds_left) if number == 0 or seconds_left() >= _MESSAGE_SECONDS else 0
        if seconds is not None:
            _sqs.change_message_visibility(
                QueueUrl=_queue_url,
                ReceiptHandle=record.receipt_handle,
                VisibilityTimeout=seconds,
            )
            returning.append({"itemIdentifier": record.message_id})
    return {"batchItemFailures": returning}


def _handle(record: SQSRecord, seconds_left: Callable[[], float]) -> int | None:
    """Handle a message; return the seconds after which it must come again, None if it is done."""
    report = RunReport()
    seconds: int | None = AFTER_FAILURE_SECONDS
    kind, fields = _parsed(record.body)
    logger.append_keys(execution=fields.get("name"))  # replaces that of the message before
    try:
        match kind:
            case "detail":  # a status event
                seconds = _closed.handle(fields["name"], fields["status"], report)
            case "refused":
                seconds = None if _endings.refused(fields) else AFTER_FAILURE_SECONDS
            case "process":
                seconds = _publish(fields["process"], fields.get("executions"), seconds_left)
            case _:
                logger.error("Deleted a message that is no end", message_id=record.message_id)
                seconds = None
        metrics.add_metric("EndingsHandled", MetricUnit.Count, int(seconds is None))
    except Exception as error:
        report.failed("Could not handle an end; its message is delivered again", error)
    for name, count in report.counts.items():
        metrics.add_metric(name, MetricUnit.Count, count)
    # The janitor does the rest of a status event, but not all of the others.
    is_given_up = kind == "detail" and time.time() - _first_receive(record) >= MAX_WAIT_SECONDS
    return None if is_given_up else seconds


def _parsed(body: str) -> tuple[str, dict[str, Any]]:
    """The kind of a message, and its fields; an empty kind if it is of another sender."""
    try:
        message = json.loads(body)
        kind = next((each for each in _FIELDS if each in message), "")
        fields = message[kind] if kind in ("detail", "refused") else message
    except (ValueError, TypeError, RecursionError):
        return "", {}
    is_known = isinstance(fields, dict) and kind and all(isinstance(fields.get(each), str) for each in _FIELDS[kind])
    return (kind, fields) if is_known and isinstance(fields.get("executions", []), list) else ("", {})


def _publish(process: str, executions: list[str] | None, seconds_left: Callable[[], float]) -> int | None:
    """Publish these ends; with None all of the process, of which none is visited by the janitor if it is gone."""
    is_cut = False
    if executions is None:
        listed = _rows.unpublished(process)
        executions, is_cut = [execution for execution, _ in listed.rows], listed.is_cut
    left = []
    for execution in executions:
        if seconds_left() < _MESSAGE_SECONDS / 2:
            return 0
        left += _endings.publish(process, [str(execution)])
    if left:
        return AFTER_FAILURE_SECONDS
    return 0 if is_cut else None


def _first_receive(record: SQSRecord) -> float:
    return int(record.attributes.approximate_first_receive_timestamp or 0) / 1000


cold_start.over()
