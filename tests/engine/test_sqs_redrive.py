"""sqs_redrive: dead letters return to a queue as new messages."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dev.emulator.aws import EmbeddedAws
from tests.engine.conftest import queue_arn
from tests.engine.test_sqs_handles import receive

ATTRIBUTES = {"code": {"DataType": "String", "StringValue": "Poison"}}


@pytest.fixture
def queues(aws: EmbeddedAws, unique: Callable[[str], str]) -> tuple[str, str]:
    """A queue that delivers a message once, and its dead-letter queue."""
    sqs = aws.client("sqs")
    dead = sqs.create_queue(QueueName=unique("dead"))["QueueUrl"]
    redrive = json.dumps({"deadLetterTargetArn": queue_arn(aws, dead), "maxReceiveCount": 1})
    attributes = {"RedrivePolicy": redrive, "MaximumMessageSize": "1024"}
    return sqs.create_queue(QueueName=unique("work"), Attributes=attributes)["QueueUrl"], dead


def redrive(aws: EmbeddedAws, source: str, destination: str | None = None) -> Any:
    """Redrive, and return the task's result."""
    sqs, arn = aws.client("sqs"), queue_arn(aws, source)
    where = {"DestinationArn": queue_arn(aws, destination)} if destination else {}
    assert sqs.start_message_move_task(SourceArn=arn, **where)["TaskHandle"]
    (task,) = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
    return task


def messages_in(aws: EmbeddedAws, url: str) -> int:
    answer = aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])


def test_f26_a_redriven_dead_letter_is_a_new_message_with_the_old_body_and_attributes(
    aws: EmbeddedAws, queues: tuple[str, str]
) -> None:
    sqs, (work, dead) = aws.client("sqs"), queues
    sent = sqs.send_message(QueueUrl=dead, MessageBody="body", MessageAttributes=ATTRIBUTES)
    task = redrive(aws, dead, work)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 1)
    message = sqs.receive_message(QueueUrl=work, MessageAttributeNames=["All"])["Messages"][0]
    assert message["MessageId"] != sent["MessageId"]
    assert (message["Body"], message["MessageAttributes"]) == ("body", ATTRIBUTES)
    assert messages_in(aws, dead) == 0


def test_a_message_that_sqs_moved_returns_to_its_source_and_a_message_without_source_stays(
    aws: EmbeddedAws, queues: tuple[str, str]
) -> None:
    sqs, (work, dead) = aws.client("sqs"), queues
    sqs.send_message(QueueUrl=work, MessageBody="moved")
    receive(sqs, work, visibility=0)
    assert "Messages" not in sqs.receive_message(QueueUrl=work)
    sqs.send_message(QueueUrl=dead, MessageBody="sent")
    task = redrive(aws, dead)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
    assert receive(sqs, work)["Body"] == "moved"
    assert receive(sqs, dead)["Body"] == "sent"


def test_a_message_that_the_destination_refuses_stays(aws: EmbeddedAws, queues: tuple[str, str]) -> None:
    sqs, (work, dead) = aws.client("sqs"), queues
    sqs.send_message(QueueUrl=dead, MessageBody="x" * 1024, MessageAttributes=ATTRIBUTES)
    assert redrive(aws, dead, work)["Status"] == "FAILED"
    assert (messages_in(aws, work), messages_in(aws, dead)) == (0, 1)


def test_only_a_dead_letter_queue_is_redriven(aws: EmbeddedAws, queues: tuple[str, str]) -> None:
    sqs, arn = aws.client("sqs"), queue_arn(aws, queues[0])
    with pytest.raises(ClientError, match="configured as a Dead Letter Queue"):
        sqs.start_message_move_task(SourceArn=arn)
    with pytest.raises(sqs.exceptions.ResourceNotFoundException):
        sqs.start_message_move_task(SourceArn=f"{arn}-unknown")
