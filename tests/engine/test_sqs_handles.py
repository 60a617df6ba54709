"""sqs_handles: the validity of receipt handles; and other behavior of SQS that the request queue needs."""

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


def test_a_visible_message_cannot_be_hidden(aws: EmbeddedAws, fifo: Callable[..., str]) -> None:
    sqs, url = aws.client("sqs"), fifo()
    send(sqs, url)
    handle = receive(sqs, url)["ReceiptHandle"]
    hide(sqs, url, handle, 0)
    with pytest.raises(sqs.exceptions.MessageNotInflight):
        hide(sqs, url, handle, 60)
    assert receive(sqs, url)["Attributes"]["ApproximateReceiveCount"] == "2"


def test_an_older_handle_neither_hides_nor_deletes(aws: EmbeddedAws, fifo: Callable[..., str]) -> None:
    sqs, url = aws.client("sqs"), fifo()
    send(sqs, url)
    older = receive(sqs, url, visibility=0)["ReceiptHandle"]
    newer = receive(sqs, url)["ReceiptHandle"]
    with pytest.raises(ClientError, match="handle has expired"):
        hide(sqs, url, older, 0)
    with pytest.raises(ClientError, match="handle has expired"):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=older)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=newer)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=newer)  # already deleted: the request succeeds


def test_an_expired_handle_does_not_delete(aws: EmbeddedAws, fifo: Callable[..., str]) -> None:
    sqs, url = aws.client("sqs"), fifo()
    send(sqs, url)
    handle = receive(sqs, url)["ReceiptHandle"]
    hide(sqs, url, handle, 0)
    entries = [{"Id": "a", "ReceiptHandle": handle}]
    failed = sqs.delete_message_batch(QueueUrl=url, Entries=entries)["Failed"]
    assert failed[0]["Code"] == "InvalidParameterValue"
    assert receive(sqs, url)["Body"] == "x"


def test_a_deleted_message_cannot_be_woken(aws: EmbeddedAws, fifo: Callable[..., str]) -> None:
    sqs, url = aws.client("sqs"), fifo()
    send(sqs, url)
    handle = receive(sqs, url)["ReceiptHandle"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    with pytest.raises(ClientError, match="does not exist or is not available"):
        hide(sqs, url, handle, 0)


def test_deduplication_is_per_group_if_the_queue_has_that_scope(aws: EmbeddedAws, fifo: Callable[..., str]) -> None:
    sqs = aws.client("sqs")
    url = fifo(DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    for group in ("a", "b", "a"):
        send(sqs, url, "same", group)
    count = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    assert count["Attributes"]["ApproximateNumberOfMessages"] == "2"


def test_a_body_over_the_maximum_is_refused(aws: EmbeddedAws, fifo: Callable[..., str]) -> None:
    sqs, url = aws.client("sqs"), fifo(MaximumMessageSize="1024")
    send(sqs, url, "x" * 1024)
    with pytest.raises(ClientError, match="shorter than 1024"):
        send(sqs, url, "x" * 1025)
