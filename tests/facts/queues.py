"""A queue for rows. A receive returns handles, and each message is known by its body.

FIFO queues have the properties of the template's.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.facts.account import Account
from tests.facts.facts import REAL, code_of

PREFIX = "AWS.SimpleQueueService."  # of most of the codes


class Queue:
    """A new queue.

    Args:
        visibility: the visibility timeout in seconds.
        attributes: further ones.
    """

    def __init__(self, aws: Account, *, fifo: bool = False, visibility: int = 60, **attributes: str) -> None:
        self._aws, self._fifo, self.client = aws, fifo, aws.client("sqs")
        attributes["VisibilityTimeout"] = str(visibility)
        if fifo:
            attributes |= {"FifoQueue": "true", "DeduplicationScope": "messageGroup"}
            attributes |= {"FifoThroughputLimit": "perMessageGroupId"}
        name = aws.name("queue") + ".fifo" * fifo
        self.url = self.client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        # A short poll of SQS asks some of its servers only; a long one asks all.
        self._poll = {"WaitTimeSeconds": 3} if aws.place == REAL else {}
        self.longer_than_two_receives = 8 if aws.place == REAL else 1  # seconds

    @property
    def arn(self) -> str:
        """The queue's ARN."""
        answer = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])
        return str(answer["Attributes"]["QueueArn"])

    def send(self, body: str, group: str = "g", delay: int = 0) -> str:
        """Send a message: the error's code, or "accepted".

        On a FIFO queue the body is its deduplication id; only a standard queue uses the delay.
        """
        fifo = {"MessageGroupId": group, "MessageDeduplicationId": body}
        return self._code("send_message", MessageBody=body, **(fifo if self._fifo else {"DelaySeconds": delay}))

    def receive(self, most: int = 1) -> dict[str, str]:
        """Receive up to `most` messages: body -> receipt handle, in the order received."""
        answer = self.client.receive_message(QueueUrl=self.url, MaxNumberOfMessages=most, **self._poll)
        return {message["Body"]: message["ReceiptHandle"] for message in answer.get("Messages", [])}

    def receive_one(self) -> str:
        """Receive a message that must be there; return its handle."""
        (handle,) = self.receive().values()
        return handle

    def take(self) -> Any:
        """Wait for the next message, delete it, and return its body, which is JSON."""
        ((body, handle),) = self._aws.wait(self.receive, "a message").items()
        self.delete(handle)
        return json.loads(body)

    def hide(self, handle: str, seconds: int) -> str:
        """ChangeMessageVisibility: the error's code, or "accepted"."""
        return self._code("change_message_visibility", ReceiptHandle=handle, VisibilityTimeout=seconds)

    def delete(self, handle: str) -> str:
        """DeleteMessage: the error's code, or "accepted"."""
        return self._code("delete_message", ReceiptHandle=handle)

    def let_expire(self) -> None:
        """Wait until the visibility timeouts and the delays of all messages have ended."""
        self._aws.stopped.wait(self._aws.timings.settle)  # the counts are approximate
        self._aws.wait(lambda: self.counts("NotVisible", "Delayed") == [0, 0], "the end of timeouts and delays")

    def counts(self, *kinds: str) -> list[int]:
        """The numbers of messages: "" is the visible ones, otherwise NotVisible or Delayed."""
        names = [f"ApproximateNumberOfMessages{each}" for each in kinds]
        attributes = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return [int(attributes[name]) for name in names]

    def _code(self, operation: str, **fields: Any) -> str:
        return code_of(partial(getattr(self.client, operation), QueueUrl=self.url, **fields)).removeprefix(PREFIX)


def target(aws: Account) -> Queue:
    """A queue to which EventBridge and SNS may send."""
    services = {"Service": ["events.amazonaws.com", "sns.amazonaws.com"]}
    allowed = {"Effect": "Allow", "Principal": services, "Action": "sqs:SendMessage", "Resource": "*"}
    allowed["Condition"] = {"StringEquals": {"aws:SourceAccount": aws.account_id}}
    return Queue(aws, Policy=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}))
