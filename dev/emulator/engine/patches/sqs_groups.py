"""A FIFO queue delivers a message unless an earlier one of its group is hidden.

AWS: recorded in tests/conformance/test_sqs.py (fifo_delivers_before_one_in_flight).
MiniStack delivers no message of a group while any message of the group is in flight.
"""

from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import sqs, wrap


def apply() -> None:
    """Collect from the messages before the first hidden one of each group."""
    wrap(sqs, "_collect_fifo", _collect)


def _collect(
    original: Callable[..., Any], queue: dict[str, Any], count: int, visibility: int, now: float
) -> list[dict[str, Any]]:
    blocked: set[str] = set()
    deliverable = []
    for message in queue["messages"]:
        if message["visible_at"] > now:
            blocked.add(message["group_id"])
        elif message["group_id"] not in blocked:
            deliverable.append(message)
    received: list[dict[str, Any]] = original({**queue, "messages": deliverable}, count, visibility, now)
    return received
