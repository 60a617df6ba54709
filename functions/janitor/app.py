"""The janitor: on a schedule, frees slots of dead holders, publishes ends and dispatches every queue."""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
import time
from typing import Any

import boto3
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.aws.clients import client_config
from slotkeeper.events import CompletionEvents
from slotkeeper.observability import logger, measure_process, metrics, tracer
from slotkeeper.settings import JanitorSettings, load_settings
from slotkeeper.slots.dispatch import Tools
from slotkeeper.slots.doorbell import Doorbell
from slotkeeper.slots.endings import AFTER_EVENT_SECONDS, Endings
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.janitor import Janitor
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request_table import RequestTable
from slotkeeper.slots.rows import RequestRows
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.starts import ReservationStarter, Starts
from slotkeeper.slots.work import Children, GlueRuns

_client_config = client_config(read_timeout=3, attempts=3)
# A page of a list takes longer. If a service does not answer, a call lasts for up to 24 s.
_list_config = client_config(read_timeout=10, attempts=2)
_settings = load_settings(JanitorSettings)
_dynamodb = boto3.client("dynamodb", config=_client_config)
_sqs = boto3.client("sqs", config=_client_config)
_stepfunctions = boto3.client("stepfunctions", config=_list_config)
_workflow = Workflow(_stepfunctions, _settings.workflow_arn)
_completion_events = CompletionEvents.from_environment()
_children = Children(_stepfunctions)
_rows = RequestRows(_dynamodb, _settings.request_table_name)
_doorbell = Doorbell(_sqs, _settings.dispatch_queue_url)
_grants = Grants(_dynamodb, _settings.slot_table_name)
_requests = RequestTable(_dynamodb, _settings.request_table_name, _settings.slot_table_name)
_start_config = client_config(read_timeout=4, attempts=1)  # as Starts demands
_starts = Starts(boto3.client("stepfunctions", config=_start_config), _settings.workflow_arn)
_janitor = Janitor(
    Slots(_dynamodb, _settings.slot_table_name),
    Processes(_dynamodb, _settings.slot_table_name),
    Tools(
        _grants,
        _requests,
        ReservationStarter(_starts, _grants, _requests, time.time),
        _doorbell,
    ),
    _rows,
    Endings.from_settings(
        _settings, _workflow, _dynamodb, _stepfunctions, boto3.client("sns", config=_client_config), _completion_events
    ),
    _workflow,
    GlueRuns(boto3.client("glue", config=_list_config)),
    _children,
    Settlement.from_settings(_settings, _workflow, _dynamodb, _children, _doorbell),
    _settings.grace_seconds,
    _settings.check_gap_seconds,
)


@metrics.log_metrics
@tracer.capture_lambda_handler
@logger.inject_lambda_context(clear_state=True)
def handler(_event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Do one run; return metric name -> count."""

    def seconds_left() -> float:
        return context.get_remaining_time_in_millis() / 1000

    _completion_events.seconds_left = lambda: seconds_left() - AFTER_EVENT_SECONDS
    report = _janitor.run(seconds_left())
    metrics.add_metric("JanitorRuns", MetricUnit.Count, 1)
    for name, count in report.counts.items():
        metrics.add_metric(name, MetricUnit.Count, count)
    for process in report.processes:
        measure_process(process.name, MetricUnit.Count, SlotsInUse=process.held_weight, SlotLimit=process.slot_limit)
    for name, queue in report.queues.items():
        measure_process(name, MetricUnit.Count, QueuedRequests=queue.length)
        measure_process(name, MetricUnit.Seconds, OldestQueuedSeconds=queue.oldest)
    return dict(report.counts)


cold_start.over()
