"""The worker: handles the requests of WorkQueue, three at a time, and retries failed ones later.

The work itself is the package `work`, which you replace by your own. Everything else is in slotkeeper.retry.
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
    """Return the messages that must stay on the queue as failed items."""
    return _worker.handle(event, context)


cold_start.over()
