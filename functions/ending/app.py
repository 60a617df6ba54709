"""Publishes how requests have ended, and settles those whose workflow could not: for each message of EndingQueue.

This is best effort. The janitor's runs do the same later, and are the guarantee.
"""

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
from slotkeeper.observability import logger, metrics, tracer
from slotkeeper.settings import EndingSettings, JanitorSettings, load_settings
from slotkeeper.slots.closed_executions import MESSAGE_SECONDS, ClosedExecutions, EndMessages
from slotkeeper.slots.dead_holders import DeadHolders
from slotkeeper.slots.doorbell import Doorbell
from slotkeeper.slots.endings import AFTER_EVENT_SECONDS, Endings
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.rows import RequestRows
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.work import Children, GlueRuns

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
    Settlement.from_settings(_settings, _workflow, _dynamodb, _children, _doorbell),
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
    messages = EndMessages(_closed, seconds_left)
    returning: list[dict[str, str]] = []
    for number, record in enumerate(event.records):
        seconds = _handle(record, messages) if number == 0 or seconds_left() >= MESSAGE_SECONDS else 0
        if seconds is not None:
            _sqs.change_message_visibility(
                QueueUrl=_queue_url,
                ReceiptHandle=record.receipt_handle,
                VisibilityTimeout=seconds,
            )
            returning.append({"itemIdentifier": record.message_id})
    return {"batchItemFailures": returning}


def _handle(record: SQSRecord, messages: EndMessages) -> int | None:
    report = RunReport()
    first_received = int(record.attributes.approximate_first_receive_timestamp or 0) / 1000
    seconds = messages.handle(record.body, first_received, report)
    for name, count in report.counts.items():
        metrics.add_metric(name, MetricUnit.Count, count)
    return seconds


cold_start.over()
