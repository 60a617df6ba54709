"""The janitor: on a schedule, frees slots of dead holders, keeps their requests and wakes waiting requests."""

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
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.hand_off import HandOffs
from slotkeeper.slots.janitor import Janitor, RunLease
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.settlement import AFTER_EVENT_SECONDS, Settlement
from slotkeeper.slots.work import Children, GlueRuns

# Maximum seconds of listing executions if Step Functions does not answer.
HAND_OFF_SECONDS = 25

_client_config = client_config(read_timeout=3, attempts=3)
# A page of a list takes longer. If a service does not answer, a call lasts for up to 24 s.
_list_config = client_config(read_timeout=10, attempts=2)
_settings = load_settings(JanitorSettings)
_dynamodb = boto3.client("dynamodb", config=_client_config)
_sqs = boto3.client("sqs", config=_client_config)
_stepfunctions = boto3.client("stepfunctions", config=_list_config)
_workflow = Workflow(_stepfunctions, _settings.workflow_arn)
_hand_offs = HandOffs(_workflow)
_completion_events = CompletionEvents.from_environment()
_lease = RunLease(_dynamodb, _settings.settled_table_name)
_janitor = Janitor(
    Slots(_dynamodb, _settings.slot_table_name),
    Processes(_dynamodb, _settings.slot_table_name),
    RequestQueue(_sqs, _settings.request_queue_url),
    _workflow,
    GlueRuns(boto3.client("glue", config=_list_config)),
    Children(_stepfunctions),
    Settlement.from_settings(_settings, _workflow, _dynamodb, _sqs, _stepfunctions, _completion_events),
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
    if not _lease.take(seconds_left()):
        logger.warning("Skipped this run: another run has not ended")
        metrics.add_metric("JanitorRunsSkipped", MetricUnit.Count, 1)
        return {"JanitorRunsSkipped": 1}
    try:
        report = _janitor.run(seconds_left())
        metrics.add_metric("JanitorRuns", MetricUnit.Count, 1)
        if seconds_left() > HAND_OFF_SECONDS:
            _measure_hand_offs(report)
    finally:
        _lease.release()
    for name, count in report.counts.items():
        metrics.add_metric(name, MetricUnit.Count, count)
    for process in report.processes:
        measure_process(process.name, MetricUnit.Count, SlotsInUse=process.held_weight, SlotLimit=process.slot_limit)
    _measure_blocked(report)
    return dict(report.counts)


def _measure_blocked(report: RunReport) -> None:
    """Count and log the waiting requests that cannot start before their process's limit is raised."""
    blocked = [(process, waiting) for process in report.processes for waiting in process.blocked]
    metrics.add_metric("BlockedRequests", MetricUnit.Count, len(blocked))  # also 0, which ends the alarm
    for process, waiting in blocked:
        logger.warning(
            "A waiting request is blocked: its weight is above the limit",
            process_name=process.name,
            request_id=waiting.request_id,
            priority=waiting.priority,
            weight=waiting.weight,
            slot_limit=process.slot_limit,
        )


def _measure_hand_offs(report: RunReport) -> None:
    with report.guard("Could not measure for how long slots were free"):
        for name, seconds in _hand_offs.measure(report.processes, time.time()).items():
            measure_process(name, MetricUnit.Seconds, HandOff=seconds)


cold_start.over()
