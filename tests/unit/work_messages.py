"""Messages on the work queue and as they are delivered, and one-time schedules."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord


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


_TIMES = ("SentTimestamp", "ApproximateFirstReceiveTimestamp")


def record(body: Any, message_id: str = "m1", **attributes: str) -> dict[str, Any]:
    """A message as the event source mapping delivers it."""
    return {
        "messageId": message_id,
        "receiptHandle": f"handle-{message_id}",
        "body": body if isinstance(body, str) else json.dumps(body),
        "attributes": {"ApproximateReceiveCount": "1"} | dict.fromkeys(_TIMES, "1800000000000"),
        "messageAttributes": {name: {"dataType": "Number", "stringValue": value} for name, value in attributes.items()},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:work",
    }


def invocation(seconds: float = 120.0) -> Any:
    """The context of an invocation with this much time left."""
    return SimpleNamespace(
        function_name="worker",
        memory_limit_in_mb=512,
        invoked_function_arn="arn:aws:lambda:::function:worker",
        aws_request_id="1",
        get_remaining_time_in_millis=lambda: int(seconds * 1000),
    )
