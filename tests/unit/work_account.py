"""The worker function's resources in moto, and its environment variables."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import boto3

from tests.simulation.account.function_environment import OF_THE_WORKER
from tests.simulation.account.tables import create_table


class WorkAccount:
    """The worker's queues, ledger, schedule group and policy."""

    def __init__(self) -> None:
        self.sqs, self.dynamodb = boto3.client("sqs"), boto3.client("dynamodb")
        self.queue_url = self.sqs.create_queue(QueueName="work")["QueueUrl"]
        self.dead_letter_url = self.sqs.create_queue(QueueName="work-dead")["QueueUrl"]
        create_table(self.dynamodb, "ledger", "request_id")
        boto3.client("scheduler").create_schedule_group(Name="retries")
        boto3.client("ssm").put_parameter(Name="/policy", Value="{}", Type="String")

    @property
    def environment(self) -> dict[str, str]:
        return OF_THE_WORKER | {
            "WORK_QUEUE_URL": self.queue_url,
            "WORK_DEAD_LETTER_QUEUE_URL": self.dead_letter_url,
            "REQUEST_LEDGER_TABLE_NAME": "ledger",
        }

    def dead_letters(self) -> list[dict[str, Any]]:
        answer = self.sqs.receive_message(
            QueueUrl=self.dead_letter_url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        return list(answer.get("Messages", []))


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
