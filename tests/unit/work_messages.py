"""Messages on the way to a worker, and schedules that will bring some."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

# What SQS takes in a body or a text attribute (SQS API Reference, SendMessage).
ALLOWED = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


@dataclass(eq=False)
class QueuedMessage:
    """A message on the work queue, sent at `sent_at`, to be received from `visible_at` on."""

    body: str
    visible_at: float
    message_id: str
    attributes: dict[str, Any]
    receives: int = 1
    sent_at: float = 0.0

    @property
    def handle(self) -> str:
        """Of the delivery that is under way."""
        return f"{self.message_id}/{self.receives}"

    @property
    def record(self) -> SQSRecord:
        """As the event source mapping hands it over."""
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
    """When a one-time schedule comes, in seconds since the epoch."""
    expression = schedule["ScheduleExpression"].removeprefix("at(").removesuffix(")")
    return datetime.fromisoformat(expression).replace(tzinfo=UTC).timestamp()
