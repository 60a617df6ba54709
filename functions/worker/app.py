"""The worker: does what the messages of WorkQueue ask for, three at a time, and brings back later what fails.

The work itself is the package `work`, to replace by your own; all the rest is slotkeeper.retry.
"""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.observability import logger, metrics, tracer
from slotkeeper.retry import RetryingWorker
from work.perform import perform

_worker = RetryingWorker.from_environment(perform)


@metrics.log_metrics(capture_cold_start_metric=True)
@tracer.capture_lambda_handler
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Reports each message that must come back as a failed item."""
    return _worker.handle(event, context)


cold_start.over()
