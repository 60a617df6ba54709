"""The stack's queues and their attributes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.stack_connection import StackConnection

QUEUES = (
    "RequestQueue",
    "RequestDeadLetterQueue",
    "FailedRequestQueue",
    "WorkQueue",
    "WorkDeadLetterQueue",
    "RetryScheduleDeadLetterQueue",
)
DEAD_LETTER_QUEUES = tuple(queue for queue in QUEUES if queue not in ("RequestQueue", "WorkQueue"))
_COUNTS = {
    "visible": "ApproximateNumberOfMessages",
    "in_flight": "ApproximateNumberOfMessagesNotVisible",
    "delayed": "ApproximateNumberOfMessagesDelayed",
}


def queue_attributes(stack: StackConnection, queue: str) -> dict[str, str]:
    """The attributes of a queue, by its logical id (GetQueueAttributes)."""
    sqs, url = stack.client("sqs"), stack.outputs[f"{queue}Url"]
    attributes: dict[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return attributes


def all_queue_attributes(stack: StackConnection) -> dict[str, dict[str, str]]:
    """The attributes of each deployed queue, by logical id."""
    deployed = [queue for queue in QUEUES if f"{queue}Url" in stack.outputs]
    return dict(zip(deployed, in_parallel(partial(queue_attributes, stack), deployed), strict=True))


def message_counts(attributes: Mapping[str, str]) -> dict[str, int]:
    """The approximate numbers of messages of a queue: `visible`, `in_flight` (hidden) and `delayed`."""
    return {name: int(attributes.get(attribute, 0)) for name, attribute in _COUNTS.items()}


def received_or_visible(stack: StackConnection, queue: str) -> int:
    """The approximate number of messages of a queue, without the delayed ones."""
    counts = message_counts(queue_attributes(stack, queue))
    return counts["visible"] + counts["in_flight"]


def event_source_mappings(stack: StackConnection, queue_arn: str) -> list[dict[str, Any]]:
    """The event source mappings of a queue: the functions that receive its messages (ListEventSourceMappings)."""
    pages = stack.client("lambda").get_paginator("list_event_source_mappings").paginate(EventSourceArn=queue_arn)
    return [one for page in pages for one in page["EventSourceMappings"]]
