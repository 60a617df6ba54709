"""sqs_handles: the validity of receipt handles in a batch; and the maximum size of a body."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dev.emulator.aws import EmbeddedAws
from tests.support.waiting import wait_until


def receive(sqs: Any, url: str, visibility: int = 30) -> dict[str, Any]:
    def read() -> dict[str, Any] | None:
        answer = sqs.receive_message(
            QueueUrl=url, VisibilityTimeout=visibility, MessageSystemAttributeNames=["ApproximateReceiveCount"]
        )
        return answer["Messages"][0] if "Messages" in answer else None

    return wait_until(read, "a message")


def send(sqs: Any, url: str, body: str = "x", group: str = "g") -> None:
    sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group)


def hide(sqs: Any, url: str, handle: str, seconds: int) -> None:
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=seconds)


def test_an_expired_handle_does_not_delete(aws: EmbeddedAws, fifo: Callable[..., str]) -> None:
    sqs, url = aws.client("sqs"), fifo()
    send(sqs, url)
    handle = receive(sqs, url)["ReceiptHandle"]
    hide(sqs, url, handle, 0)
    entries = [{"Id": "a", "ReceiptHandle": handle}]
    failed = sqs.delete_message_batch(QueueUrl=url, Entries=entries)["Failed"]
    assert failed[0]["Code"] == "InvalidParameterValue"
    assert receive(sqs, url)["Body"] == "x"


def test_a_body_over_the_maximum_is_refused(aws: EmbeddedAws, fifo: Callable[..., str]) -> None:
    sqs, url = aws.client("sqs"), fifo(MaximumMessageSize="1024")
    send(sqs, url, "x" * 1024)
    with pytest.raises(ClientError, match="shorter than 1024"):
        send(sqs, url, "x" * 1025)
