"""Messages of our own, taken out of queues that hold others' too. Theirs are put back at once, as they were."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

HIDDEN = 20  # seconds; only if this program dies between taking a message and putting it back
BATCHES = 20  # a queue of many others' messages is not read to its end at once


@dataclass(frozen=True)
class RunMessage:
    """One message: its body, and its message attributes as text."""

    body: str
    attributes: dict[str, str]


@dataclass
class RunMessages:
    """The messages about this run, by the queue that they were in.

    Args:
        mark: the run's name, which every message of ours has in its body.
    """

    sqs: Any
    mark: str
    _taken: dict[str, list[RunMessage]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def collect(self, url: str) -> list[RunMessage]:
        """All messages taken from this queue so far, and now. They are deleted from it."""
        with self._lock:
            taken = self._taken.setdefault(url, [])
            foreign: list[str] = []
            try:
                for _ in range(BATCHES):
                    if not self._take(url, taken, foreign):
                        break
            finally:
                self._put_back(url, foreign)
            return list(taken)

    def _take(self, url: str, taken: list[RunMessage], foreign: list[str]) -> bool:
        answer = self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=HIDDEN, MessageAttributeNames=["All"]
        )
        for message in answer.get("Messages", []):
            if self.mark not in message["Body"]:
                foreign.append(message["ReceiptHandle"])
                continue
            attributes = message.get("MessageAttributes", {})
            taken.append(RunMessage(message["Body"], {key: each["StringValue"] for key, each in attributes.items()}))
            self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return bool(answer.get("Messages"))

    def _put_back(self, url: str, handles: Iterable[str]) -> None:
        for handle in handles:
            self.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
