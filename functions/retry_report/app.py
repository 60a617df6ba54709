"""The retry report (optional): on a schedule, publishes the failures of the last week to the alarm topic."""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
import time
from typing import Any

import boto3
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.aws.clients import client_config
from slotkeeper.observability import logger, metrics, tracer
from slotkeeper.retry.downstream.downstreams import DownstreamTable
from slotkeeper.retry.failures.reading import Bounds, read_report
from slotkeeper.retry.failures.report import Period, mail
from slotkeeper.retry.ledger import Ledger
from slotkeeper.settings import RetryReportSettings, load_settings

PERIOD_SECONDS = 7 * 86400
# Seconds of the invocation reserved for the last page of the ledger, the downstreams' table and the message.
RESERVED_SECONDS = 60

# A page of a scan takes longer than a read of an item.
_client_config = client_config(read_timeout=10, attempts=3)
_settings = load_settings(RetryReportSettings)
_dynamodb = boto3.client("dynamodb", config=_client_config)
_sns = boto3.client("sns", config=_client_config)
_ledger = Ledger(_dynamodb, _settings.request_ledger_table_name)
_downstreams = DownstreamTable(_dynamodb, _settings.downstream_table_name)


@metrics.log_metrics
@tracer.capture_lambda_handler(capture_response=False)
@logger.inject_lambda_context(clear_state=True)
def handler(_event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Publish the report; return the numbers of failures and of causes, and of rows that were read."""

    def seconds_left() -> float:
        return context.get_remaining_time_in_millis() / 1000 - RESERVED_SECONDS

    now = time.time()
    period = Period(now - PERIOD_SECONDS, now)
    try:
        found = read_report(_ledger, _downstreams, period, bounds=Bounds(seconds_left=seconds_left))
        message = mail(found, _settings.stack_name)
        _sns.publish(TopicArn=_settings.failure_topic_arn, Subject=message.subject, Message=message.text)
    except Exception:
        logger.exception("Could not publish the retry report; show it with: slotkeeper retry report --since 7d")
        raise
    counted = {"failures": found.failures, "causes": len(found.causes), "rows": found.reading.rows}
    logger.info("Published the retry report", numbers=counted, left_out=found.reading.left_out)
    metrics.add_metric("RetryReports", MetricUnit.Count, 1)
    return counted


cold_start.over()
