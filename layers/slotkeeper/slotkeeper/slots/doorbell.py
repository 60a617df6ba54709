"""The doorbell: a message on DispatchQueue, `{"process": ...}`, after which a dispatch of that process begins.

Each writer of something that may allow a start rings afterwards. SQS delivers the message until a dispatch that began
after the write has ended, so no wake is lost. Two rings cost one dispatch more, and start nothing twice.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

# SQS API Reference, SendMessage, DelaySeconds. Standard queues alone have a delay for each message.
MAX_DELAY_SECONDS = 900


@dataclass(frozen=True)
class Bell:
    """A ring.

    Attributes:
        at: for a timed ring: when its dispatch begins, in seconds since the epoch.
        count: the number of dispatches that have rung for each other before it. Such a chain should be short.
        ended: executions whose requests an operator has ended without a start. Their callers are answered after the
            ring, because operators may not answer callers.
    """

    process: str
    at: float | None = None
    count: int = 0
    ended: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The body of its message."""
        fields: dict[str, Any] = {"process": self.process}
        if self.at is not None:
            fields["at"] = self.at
        if self.count:
            fields["count"] = self.count
        if self.ended:
            fields["ended"] = list(self.ended)
        return json.dumps(fields)


def parse_bell(body: str) -> Bell:
    """Parse the body of a message. Raises ValueError: what it is, and what was expected."""
    try:
        fields = json.loads(body)
        at = fields.get("at")
        return Bell(
            str(fields["process"]),
            None if at is None else float(at),
            int(fields.get("count", 0)),
            tuple(map(str, fields.get("ended", ()))),
        )
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise ValueError(f'must be {{"process": NAME}}, got {body[:200]!r}') from error


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
