"""Publishes how requests have ended, and settles those whose workflow could not: for each message of EndingQueue.

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
        seconds = _handle(record) if number == 0 or seconds_left() >= _MESSAGE_SECONDS else 0
        if seconds is not None and not _is_given_up(record):
            _sqs.change_message_visibility(
                QueueUrl=_queue_url,
                ReceiptHandle=record.receipt_handle,
                VisibilityTimeout=seconds,
            )
            returning.append({"itemIdentifier": record.message_id})
    return {"batchItemFailures": returning}


def _handle(record: SQSRecord) -> int | None:
    """Handle a message; return the seconds after which it must come again, None if it is done."""
    report = RunReport()
    try:
        seconds = _publish(json.loads(record.body), report)
        metrics.add_metric("EndingsHandled", MetricUnit.Count, int(seconds is None))
    except Exception as error:
        # After any exception the message is delivered again.
        report.failed("Could not handle an end; its message is delivered again", error)
        seconds = AFTER_FAILURE_SECONDS
    for name, count in report.counts.items():
        metrics.add_metric(name, MetricUnit.Count, count)
    return seconds


def _publish(message: dict[str, Any], report: RunReport) -> int | None:
    if detail := message.get("detail"):  # a status event
        logger.append_keys(execution=detail["name"])
        return _closed.handle(detail["name"], detail["status"], report)
    if refused := message.get("refused"):
        return None if _endings.refused(refused) else AFTER_FAILURE_SECONDS
    process = message["process"]
    executions = message.get("executions")
    if executions is None:
        executions = [execution for execution, _ in _rows.unpublished(process).rows]
    return AFTER_FAILURE_SECONDS if _endings.publish(process, executions) else None


def _is_given_up(record: SQSRecord) -> bool:
    """Whether the janitor does the rest of a status event. It does not do all of the other messages."""
    first_receive = int(record.attributes.approximate_first_receive_timestamp or 0) / 1000
    return time.time() - first_receive >= MAX_WAIT_SECONDS and '"detail"' in record.body


cold_start.over()
