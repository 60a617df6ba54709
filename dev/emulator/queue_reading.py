"""Reading the queues of a stack."""

from __future__ import annotations

from typing import Any


def depth(sqs: Any, queue_url: str) -> dict[str, int]:
    """The number of messages that are visible, in flight and delayed."""
    names = {"visible": "", "in flight": "NotVisible", "delayed": "Delayed"}
    wanted = {state: f"ApproximateNumberOfMessages{name}" for state, name in names.items()}
    answer = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=list(wanted.values()))["Attributes"]
    return {state: int(answer.get(name, 0)) for state, name in wanted.items()}


def total(sqs: Any, queue_url: str) -> int:
    """All messages on the queue."""
    return sum(depth(sqs, queue_url).values())


def drain(sqs: Any, queue_url: str) -> list[dict[str, Any]]:
    """Receive and delete every message. A FIFO queue returns no more of a group while some are in flight."""
    messages: list[dict[str, Any]] = []
    while batch := _receive(sqs, queue_url):
        messages += batch
        for message in batch:
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    return messages


def peek(sqs: Any, queue_url: str) -> list[dict[str, Any]]:
    """Receive every message and make it visible again, so that it stays on the queue."""
    messages: list[dict[str, Any]] = []
    try:
        while batch := _receive(sqs, queue_url, VisibilityTimeout=30):
            messages += batch
    finally:
        for message in messages:
            handle = message["ReceiptHandle"]
            sqs.change_message_visibility(QueueUrl=queue_url, ReceiptHandle=handle, VisibilityTimeout=0)
    return messages


def attributes(message: dict[str, Any]) -> dict[str, str]:
    """The texts of its message attributes."""
    return {name: value["StringValue"] for name, value in message.get("MessageAttributes", {}).items()}


def _receive(sqs: Any, queue_url: str, **options: Any) -> list[dict[str, Any]]:
    answer = sqs.receive_message(
        QueueUrl=queue_url,
        MaxNumberOfMessages=10,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["SentTimestamp"],
        **options,
    )
    messages: list[dict[str, Any]] = answer.get("Messages", [])
    return messages
