"""Collect the run's messages from shared queues. Other messages are made visible again immediately."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from dev.emulator.queue_reading import attributes

HIDDEN = 20  # seconds; matters only if this program dies before it makes a message visible again
BATCHES = 20  # receives per collect: bounds the reading of a queue with many other messages


@dataclass(frozen=True)
class RunMessage:
    """A message: its body, and its message attributes as text."""

    body: str
    attributes: dict[str, str]


@dataclass
class RunMessages:
    """The messages of this run, by queue.

    Args:
        mark: the run's name, which the body of each of its messages contains.
    """

    sqs: Any
    mark: str
    _taken: dict[str, list[RunMessage]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def collect(self, url: str) -> list[RunMessage]:
        """Delete the run's messages from this queue, and return all that were collected from it so far."""
        with self._lock:
            taken = self._taken.setdefault(url, [])
            foreign: list[str] = []
            try:
                for _ in range(BATCHES):
                    answer = self.sqs.receive_message(
                        QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=HIDDEN, MessageAttributeNames=["All"]
                    )
                    if not answer.get("Messages"):
                        break
                    for message in answer["Messages"]:
                        if self.mark not in message["Body"]:
                            foreign.append(message["ReceiptHandle"])
                            continue
                        taken.append(RunMessage(message["Body"], attributes(message)))
                        self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            finally:
                for handle in foreign:
                    self.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
            return list(taken)
