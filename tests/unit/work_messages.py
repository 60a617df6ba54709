"""Messages on the work queue, and one-time schedules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

# The characters that SQS allows in a body or a text attribute (SQS API Reference, SendMessage).
ALLOWED = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


@dataclass(eq=False)
class QueuedMessage:
    """A message on the work queue, visible from `visible_at`."""

    body: str
    visible_at: float
    message_id: str
    attributes: dict[str, Any]
    receives: int = 1
    sent_at: float = 0.0

    @property
    def handle(self) -> str:
        """The receipt handle of the current delivery."""
        return f"{self.message_id}/{self.receives}"

    @property
    def texts(self) -> dict[str, str]:
        """The values of its attributes."""
        return {name: str(value["StringValue"]) for name, value in self.attributes.items()}

    @property
    def record(self) -> SQSRecord:
        """The message as the event source mapping delivers it."""
        attributes = {
            name: {"dataType": value["DataType"], "stringValue": value["StringValue"]}
            for name, value in self.attributes.items()
        }
        return SQSRecord(
            {
                "messageId": self.message_id,
                "receiptHandle": self.handle,
                "body": self.body,
                "attributes": {
                    "ApproximateReceiveCount": str(self.receives),
                    "SentTimestamp": str(int(self.sent_at * 1000)),
                },
                "messageAttributes": attributes,
            }
        )


def due(schedule: dict[str, Any]) -> float:
    """The time of a one-time schedule, in seconds since the epoch."""
    expression = schedule["ScheduleExpression"].removeprefix("at(").removesuffix(")")
    return datetime.fromisoformat(expression).replace(tzinfo=UTC).timestamp()
