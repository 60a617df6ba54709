"""Handles status events of workflows that closed without success: keeps the request, stops the run, frees the slot.

This is best effort. The janitor's runs do the same later, and are the guarantee.
"""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
import json
import time
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
from slotkeeper.slots.closed_executions import AFTER_FAILURE_SECONDS, ClosedExecutions
from slotkeeper.slots.dead_holders import DeadHolders
from slotkeeper.slots.doorbell import Doorbell
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.settlement import AFTER_EVENT_SECONDS, Settlement
from slotkeeper.slots.work import Children, GlueRuns

_client_config = client_config(read_timeout=3, attempts=3)
# A page of a list takes longer. If a service does not answer, a call lasts for up to 24 s.
_list_config = client_config(read_timeout=10, attempts=2)
_settings = load_settings(JanitorSettings)
_events = load_settings(EndingSettings)
_dynamodb = boto3.client("dynamodb", config=_client_config)
_sqs = boto3.client("sqs", config=_client_config)
_stepfunctions = boto3.client("stepfunctions", config=_client_config)
_workflow = Workflow(_stepfunctions, _settings.workflow_arn)
_slots = Slots(_dynamodb, _settings.slot_table_name)
_completion_events = CompletionEvents.from_environment()
_closed = ClosedExecutions(
    _slots,
    Doorbell(_sqs, _settings.dispatch_queue_url),
    _workflow,
    Settlement.from_settings(_settings, _workflow, _dynamodb, _sqs, _stepfunctions, _completion_events),
    DeadHolders(
        _slots,
        GlueRuns(boto3.client("glue", config=_list_config)),
        Children(_stepfunctions),
        _settings.check_gap_seconds,
        time.time,
    ),
    time.time,
)


@metrics.log_metrics
@tracer.capture_lambda_handler
@logger.inject_lambda_context(clear_state=True)
@event_source(data_class=SQSEvent)
def handler(event: SQSEvent, context: LambdaContext) -> dict[str, Any]:
    """Return the events that must be delivered again as failed items, with their visibility timeout set."""
    _completion_events.seconds_left = lambda: context.get_remaining_time_in_millis() / 1000 - AFTER_EVENT_SECONDS
    returning: list[dict[str, str]] = []
    for record in event.records:
        seconds = _handle(record)
        if seconds is not None:
            _sqs.change_message_visibility(
                QueueUrl=_events.ending_queue_url,
                ReceiptHandle=record.receipt_handle,
                VisibilityTimeout=seconds,
            )
            returning.append({"itemIdentifier": record.message_id})
    return {"batchItemFailures": returning}


def _handle(record: SQSRecord) -> int | None:
    report = RunReport()
    try:
        detail = json.loads(record.body)["detail"]
        logger.append_keys(execution=detail["name"])
        seconds = _closed.handle(detail["name"], detail.get("redriveCount", 0), report)
        metrics.add_metric("EndingsHandled", MetricUnit.Count, int(seconds is None))
    except Exception as error:
        # After any exception the event is delivered again until the queue drops it. The janitor's runs do the rest.
        report.failed("Could not handle a status event; it is delivered again", error)
        seconds = AFTER_FAILURE_SECONDS
    for name, count in report.counts.items():
        metrics.add_metric(name, MetricUnit.Count, count)
    return seconds


cold_start.over()
