"""sqs_sizes: the size of a message is that of its body and its attributes."""

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from dev.emulator.aws import EmbeddedAws


def test_a_message_is_refused_if_body_and_attributes_exceed_the_maximum(
    aws: EmbeddedAws, unique: Callable[[str], str]
) -> None:
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName=unique("small"), Attributes={"MaximumMessageSize": "1024"})["QueueUrl"]
    attributes = {"code": {"DataType": "String", "StringValue": "Poison"}}  # 16 bytes
    sqs.send_message(QueueUrl=url, MessageBody="x" * 1024)
    sqs.send_message(QueueUrl=url, MessageBody="x" * 1008, MessageAttributes=attributes)
    with pytest.raises(ClientError, match="must be shorter than 1024 bytes"):
        sqs.send_message(QueueUrl=url, MessageBody="x" * 1009, MessageAttributes=attributes)
    entry = {"Id": "1", "MessageBody": "x" * 1009, "MessageAttributes": attributes}
    assert sqs.send_message_batch(QueueUrl=url, Entries=[entry])["Failed"][0]["Code"] == "InvalidParameterValue"
