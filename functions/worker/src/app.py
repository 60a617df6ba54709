"""The worker: handles the requests of WorkQueue, three at a time, and retries failed ones later.

The package `work` is the shipped work. Everything else is in slotkeeper.retry. docs/retries.md shows how to replace it.
"""

from __future__ import annotations

from slotkeeper import cold_start

# isort: split
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.observability import tracer
from slotkeeper.retry import RetryingWorker
from work.perform import perform

_worker = RetryingWorker.from_environment(perform)


@tracer.capture_lambda_handler
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Return the messages that must stay on the queue as failed items."""
    return _worker.handle(event, context)


cold_start.over()
