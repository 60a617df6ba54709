"""The janitor: frees slots whose holder is provably dead. Runs on a schedule, which is the guarantee, and on the status
events of workflows that closed without success, which are best effort."""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
import time
from typing import Any

import boto3
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.clients import PATIENT
from slotkeeper.completion_news import CompletionNews, RequestNews
from slotkeeper.glue_runs import GlueRuns
from slotkeeper.hand_offs import HandOffs
from slotkeeper.observability import logger, measure_process, metrics, tracer
from slotkeeper.processes import Processes
from slotkeeper.reclaim import Janitor
from slotkeeper.request_queue import FailedRequestQueue, RequestQueue
from slotkeeper.settings import JanitorSettings
from slotkeeper.settled import Settled
from slotkeeper.slots import Slots
from slotkeeper.workflow import Workflow

# Of an invocation, for what comes after an event: noting that a request is settled.
KEPT_SECONDS = 10

_settings = JanitorSettings.from_environment()
_dynamodb = boto3.client("dynamodb", config=PATIENT)
_sqs = boto3.client("sqs", config=PATIENT)
_workflow = Workflow(boto3.client("stepfunctions", config=PATIENT), _settings.workflow_arn)
_hand_offs = HandOffs(_workflow)
_news = CompletionNews.from_environment()
_janitor = Janitor(
    Slots(_dynamodb, _settings.slot_table_name),
    Processes(_dynamodb, _settings.slot_table_name),
    RequestQueue(_sqs, _settings.request_queue_url),
    _workflow,
    GlueRuns(boto3.client("glue", config=PATIENT)),
    FailedRequestQueue(_sqs, _settings.failed_request_queue_url),
    Settled(_dynamodb, _settings.settled_table_name),
    _settings.grace,
    _settings.look_gap,
    on_kept=RequestNews(_news, _settings.failed_request_queue_url).failed,
)


@metrics.log_metrics
@tracer.capture_lambda_handler
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Answers what it did, as metric name -> count. Anything but a status event means a round."""
    _news.seconds_left = lambda: context.get_remaining_time_in_millis() / 1000 - KEPT_SECONDS
    if event.get("detail-type") == "Step Functions Execution Status Change":
        findings = _janitor.visit(event["detail"]["name"])
        metrics.add_metric("JanitorVisits", MetricUnit.Count, 1)
    else:
        findings = _janitor.round()
        metrics.add_metric("JanitorRounds", MetricUnit.Count, 1)
        with findings.guard("Could not measure how long slots stood free"):
            for name, seconds in _hand_offs.measure(findings.processes, time.time()).items():
                measure_process(name, MetricUnit.Seconds, HandOff=seconds)
    for name, count in findings.counts.items():
        metrics.add_metric(name, MetricUnit.Count, count)
    for process in findings.processes:
        measure_process(process.name, MetricUnit.Count, SlotsInUse=len(process.holders), SlotLimit=process.slot_limit)
    return dict(findings.counts)


cold_start.over()
