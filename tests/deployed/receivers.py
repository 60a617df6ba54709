"""Queues that receive what the deployed stack publishes: events by docs/completion-events.yaml, and notifications."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.deployment import STACK_NAME
from tests.deployed.deployed_stack import created
from tests.simulation.account.completion_events import checked
from tests.waiting import wait_until

TEMPLATE = Path(__file__).parents[2] / "docs" / "completion-events.yaml"


class Inbox:
    """Collects the JSON messages of a queue. `read`: returns what a message's body is about."""

    def __init__(self, sqs: Any, url: str, read: Callable[[Any], dict[str, Any]]) -> None:
        self._sqs, self._url, self._read = sqs, url, read
        self._received: list[dict[str, Any]] = []

    def receives(self, **fields: Any) -> list[dict[str, Any]]:
        """Wait for messages that have these fields; return them, the oldest first."""

        def found() -> list[dict[str, Any]]:
            for message in self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages", []):
                self._received.append(self._read(json.loads(message["Body"])))
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
            return [each for each in self._received if fields.items() <= each.items()]

        return wait_until(found, f"a message with {fields}") or []

    def receives_one(self, **fields: Any) -> dict[str, Any]:
        """Wait for the one message that has these fields."""
        (message,) = self.receives(**fields)
        return message


def subscribed(aws: EmbeddedAws, name: str) -> Inbox:
    """Subscribe a new queue to FailureTopic."""
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    aws.client("sns").subscribe(TopicArn=aws.outputs["FailureTopicArn"], Protocol="sqs", Endpoint=arn)
    return Inbox(sqs, url, lambda body: json.loads(body["Message"]))


def consumer(aws: EmbeddedAws) -> Inbox:
    """Deploy docs/completion-events.yaml."""
    url = created(aws, "producer", TEMPLATE.read_text(), SlotkeeperStack=STACK_NAME)["EventQueueUrl"]
    return Inbox(aws.client("sqs"), url, _event)


def _event(body: dict[str, Any]) -> dict[str, Any]:
    """The checked detail of an event."""
    detail = checked({"Source": body["source"], "DetailType": body["detail-type"], "Detail": body["detail"]})
    assert detail["stack"] == STACK_NAME
    return detail
