"""A Lambda event source handles several message groups of a FIFO queue at the same time.

AWS: "Lambda Developer Guide: Configuring scaling behavior for SQS event source mappings": for FIFO queues the
concurrency is the number of active message groups, or MaximumConcurrency if that is lower.
MiniStack has one batch in flight for the whole queue. The queue delivers no other message of a group with a message in
flight, so simultaneous batches keep the order of a group.
"""

from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import lambda_svc, wrap


def apply() -> None:
    """Count a FIFO queue's batches like those of a standard queue."""
    wrap(lambda_svc, "_sqs_esm_concurrency", _concurrency)


def _concurrency(
    original: Callable[..., int], mapping: Any, function: Any, config: Any, queue: dict[str, Any] | None = None
) -> int:
    as_standard = {**queue, "is_fifo": False} if queue else None
    return original(mapping, function, config, as_standard)
