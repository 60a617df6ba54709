"""Queues for the rows of SQS: the same calls on the embedded and on the simulated AWS.

FIFO queues have the properties of the template's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from dev.emulator.aws import EmbeddedAws
from tests.facts.facts import code_of
from tests.facts.workflows import unique
from tests.simulation.aws import sqs
from tests.simulation.frozen import Record, freeze, record
from tests.waiting import wait_until

URL = "queue"
PREFIX = "AWS.SimpleQueueService."  # of most of the codes


class Queue(ABC):
    """One queue. A receive returns handles, and each message is known by its body."""

    @abstractmethod
    def send(self, body: str, group: str = "g", delay: int = 0) -> str:
        """Send a message: the error's code, or "accepted".

        On a FIFO queue the body is its deduplication id; only a standard queue uses the delay.
        """

    @abstractmethod
    def receive(self, most: int = 1) -> dict[str, str]:
        """Receive up to `most` messages: body -> receipt handle, in the order received."""

    @abstractmethod
    def hide(self, handle: str, seconds: int) -> str:
        """ChangeMessageVisibility: the error's code, or "accepted"."""

    @abstractmethod
    def delete(self, handle: str) -> str:
        """DeleteMessage: the error's code, or "accepted"."""

    @abstractmethod
    def let_expire(self) -> None:
        """Wait until the visibility timeouts and the delays of all messages have ended."""

    def receive_one(self) -> str:
        """Receive a message that must be there; return its handle."""
        (handle,) = self.receive().values()
        return handle


type MakeQueue = Callable[..., Queue]  # with `fifo` and `visibility` in seconds


class EngineQueue(Queue):
    """A queue of the embedded AWS."""

    def __init__(self, aws: EmbeddedAws, *, fifo: bool = False, visibility: int = 60) -> None:
        self._client = aws.client("sqs")
        self._fifo = fifo
        attributes = {"VisibilityTimeout": str(visibility)}
        if fifo:
            attributes |= {"FifoQueue": "true", "DeduplicationScope": "messageGroup"}
            attributes |= {"FifoThroughputLimit": "perMessageGroupId"}
        name = unique("queue") + ".fifo" * fifo
        self._url = self._client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    def send(self, body: str, group: str = "g", delay: int = 0) -> str:
        fields = _sent(self._fifo, body, group, delay)
        return self._code("send_message", MessageBody=body, **fields)

    def receive(self, most: int = 1) -> dict[str, str]:
        answer = self._client.receive_message(QueueUrl=self._url, MaxNumberOfMessages=most)
        return {message["Body"]: message["ReceiptHandle"] for message in answer.get("Messages", [])}

    def hide(self, handle: str, seconds: int) -> str:
        return self._code("change_message_visibility", ReceiptHandle=handle, VisibilityTimeout=seconds)

    def delete(self, handle: str) -> str:
        return self._code("delete_message", ReceiptHandle=handle)

    def let_expire(self) -> None:
        names = [f"ApproximateNumberOfMessages{each}" for each in ("NotVisible", "Delayed")]

        def ended() -> bool:
            answer = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=names)
            return {answer["Attributes"][name] for name in names} == {"0"}

        wait_until(ended, "the end of the visibility timeouts and delays")

    def _code(self, operation: str, **fields: Any) -> str:
        return code_of(lambda: getattr(self._client, operation)(QueueUrl=self._url, **fields)).removeprefix(PREFIX)


def _sent(fifo: bool, body: str, group: str, delay: int) -> dict[str, Any]:
    return {"MessageGroupId": group, "MessageDeduplicationId": body} if fifo else {"DelaySeconds": delay}


class SimulatedQueue(Queue):
    """A queue of the simulated AWS, with a clock of its own."""

    def __init__(self, *, fifo: bool = False, visibility: int = 60) -> None:
        self._queues = record({URL: sqs.queue(visibility, fifo)})
        self._now = 0.0
        self._fifo = fifo

    def send(self, body: str, group: str = "g", delay: int = 0) -> str:
        fields = _sent(self._fifo, body, group, delay)
        return self._perform("send_message", MessageBody=body, **fields)

    def receive(self, most: int = 1) -> dict[str, str]:
        messages = sqs.receivable(self._queue, self._now, together=most > 1)[:most]
        handles = {}
        for message in messages:
            queue, answer = sqs.receive(self._queue, message, self._now)
            self._queues = record({URL: queue})
            (taken,) = answer.value["Messages"]
            handles[taken["body"]] = taken["handle"]
        return handles

    def hide(self, handle: str, seconds: int) -> str:
        return self._perform("change_message_visibility", ReceiptHandle=handle, VisibilityTimeout=seconds)

    def delete(self, handle: str) -> str:
        return self._perform("delete_message", ReceiptHandle=handle)

    def let_expire(self) -> None:
        self._now = max(message["visible_at"] for message in self._queue["messages"])

    @property
    def _queue(self) -> Record:
        queue: Record = self._queues[URL]
        return queue

    def _perform(self, operation: str, **fields: Any) -> str:
        given = freeze({"QueueUrl": URL} | fields)
        self._queues, answer = sqs.perform(self._queues, operation, given, self._now)
        return answer.error.removeprefix(PREFIX) or "accepted"
