"""Requests that the starter receives and refuses, on the account of the operator's tests."""

from __future__ import annotations

from slotkeeper.slots.admission import Starter, Waiting
from slotkeeper.slots.request import Delivery, execution_name
from slotkeeper.slots.skipped_requests import SkippedRequests
from tests.cli.operator_account import Operator

NOW = 1_790_000_000.0


def starter(operator: Operator) -> Starter:
    skipped = SkippedRequests(operator.dynamodb, operator.outputs["SettledTableName"])
    return Starter(operator.slots, operator.queue, operator.workflow, skipped, 180, 1_209_600, 1000)


def receive(operator: Operator) -> Delivery:
    """Receive a request as the event source mapping does."""
    (received,) = operator.sqs.receive_message(
        QueueUrl=operator.outputs["RequestQueueUrl"], VisibilityTimeout=180, AttributeNames=["All"]
    )["Messages"]
    return Delivery(
        received["MessageId"],
        received["Body"],
        received["Attributes"]["MessageGroupId"],
        received["ReceiptHandle"],
        received["Attributes"]["SequenceNumber"],
        int(received["Attributes"]["ApproximateReceiveCount"]),
        NOW,
    )


def wait_first(operator: Operator, request_id: str = "a") -> str:
    """Let the starter refuse a request of a process without slots; return its execution name."""
    operator.processes.set_limit("sample", 0)
    operator.send(request_id)
    assert isinstance(starter(operator).admit(receive(operator), NOW), Waiting)
    return execution_name("sample", request_id, 1)
