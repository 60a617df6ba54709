"""The doorbell: a message on DispatchQueue, `{"process": ...}`, after which a dispatch of that process begins.

Each writer of something that may allow a start rings afterwards. SQS delivers the message until a dispatch that began
after the write has ended, so no wake is lost. Two rings cost one dispatch more, and start nothing twice.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from slotkeeper.slots.queued import Passed

# SQS API Reference, SendMessage, DelaySeconds. Standard queues alone have a delay for each message.
MAX_DELAY_SECONDS = 900


@dataclass(frozen=True)
class Bell:
    """A ring.

    Attributes:
        at: for a timed ring: when its dispatch begins, in seconds since the epoch.
        count: the number of dispatches that have rung for each other before it. Such a chain should be short.
        passed: the part of the queue in which the dispatch before it has found nothing that can start.
    """

    process: str
    at: float | None = None
    count: int = 0
    passed: Passed | None = None

    def to_json(self) -> str:
        """The body of its message."""
        fields = {"process": self.process, "at": self.at, "count": self.count, "passed": self.passed}
        return json.dumps({name: value for name, value in fields.items() if value})


class Doorbell:
    """DispatchQueue, for its senders."""

    def __init__(self, sqs: SQSClient, queue_url: str) -> None:
        self._sqs = sqs
        self._queue_url = queue_url

    def ring(self, bell: Bell, delay: float = 0) -> None:
        """Send the message. Raises ClientError or BotoCoreError.

        Args:
            delay: seconds after which SQS delivers it, rounded down: its dispatch waits for the rest of the second.
        """
        seconds = min(MAX_DELAY_SECONDS, max(0, math.floor(delay)))
        self._sqs.send_message(QueueUrl=self._queue_url, MessageBody=bell.to_json(), DelaySeconds=seconds)
