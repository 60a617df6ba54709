"""The queues of requests and work that did not succeed, and their messages.

    request    RequestDeadLetterQueue           requests that could not be used, or were cancelled; FIFO
    failed     FailedRequestQueue               requests that were started and did not succeed
    work       WorkDeadLetterQueue              work that failed for good
    schedule   RetryScheduleDeadLetterQueue     retries of work that EventBridge Scheduler could not send

Reading hides their messages for a short time; nothing else consumes these queues. RequestQueue and WorkQueue are never
read: their receipt handles belong to the function that works on the message.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from slotkeeper.slots.request import execution_name
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.stack_connection import StackConnection

# Visibility timeout in seconds: longer than it takes to send a batch on, each call with its retries.
HIDDEN_SECONDS = 120
# Long polling asks all of SQS's servers, so an empty answer is believed (SQS guide, "Amazon
# SQS short and long polling").
LONG_POLL_SECONDS = 1
_BATCH = 10


class DeadLetterQueueName(StrEnum):
    """The queues by the short names that commands take."""

    REQUEST = "request"
    FAILED = "failed"
    WORK = "work"
    SCHEDULE = "schedule"

    @property
    def full_name(self) -> str:
        """The name of its resource in the template."""
        return _NAMES[self]

    def is_deployed(self, stack: StackConnection) -> bool:
        """Whether a stack has it: the worker's two queues are deployed with the worker."""
        return f"{self.full_name}Url" in stack.outputs

    def url(self, stack: StackConnection) -> str:
        """Its URL in a stack."""
        return stack.outputs[f"{self.full_name}Url"]


_NAMES = {
    DeadLetterQueueName.REQUEST: "RequestDeadLetterQueue",
    DeadLetterQueueName.FAILED: "FailedRequestQueue",
    DeadLetterQueueName.WORK: "WorkDeadLetterQueue",
    DeadLetterQueueName.SCHEDULE: "RetryScheduleDeadLetterQueue",
}


@dataclass(frozen=True)
class DeadLetterMessage:
    """A message of one of the queues. `sent_at` is when SQS received it, in seconds since the epoch."""

    queue: DeadLetterQueueName
    message_id: str
    receipt_handle: str
    body: str
    group: str
    sent_at: float
    attributes: Mapping[str, str]

    @property
    def code(self) -> str:
        """Why it is there, in a word; `none` if SQS moved it by itself."""
        names = {DeadLetterQueueName.FAILED: "error", DeadLetterQueueName.SCHEDULE: "ERROR_CODE"}
        return self.attributes.get(names.get(self.queue, "code"), "none")

    @property
    def reason(self) -> str:
        """Why it is there, in a sentence or two."""
        names = {DeadLetterQueueName.FAILED: "cause", DeadLetterQueueName.SCHEDULE: "ERROR_MESSAGE"}
        moved = "SQS moved it by itself: it was received as often as its queue allows"
        return self.attributes.get(names.get(self.queue, "reason"), "" if self.attributes else moved)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The body, if it is a JSON object of characters; else nothing."""
        try:
            fields = json.loads(self.body)
            # An escaped half of a surrogate pair is JSON, and can be neither shown nor hashed.
            json.dumps(fields, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            return {}
        return fields if isinstance(fields, dict) else {}

    @property
    def request_id(self) -> str:
        """The idempotency key; for a request without one, the id of the message that brought it."""
        given = self.fields.get("request_id")
        if isinstance(given, str) and given:
            return given
        if self.queue in (DeadLetterQueueName.WORK, DeadLetterQueueName.SCHEDULE):
            return self.attributes.get("idempotency_key", "")
        # SQS keeps a message's id when it moves it by itself, and then there is no attribute. What failed without an id
        # was started manually, and has the id of this message.
        return self.attributes.get("source_message_id", self.message_id)

    @property
    def attempt(self) -> int:
        """Which attempt at its request this was."""
        if self.queue in (DeadLetterQueueName.WORK, DeadLetterQueueName.SCHEDULE):
            retries = self.fields.get("retries")
            made = len(retries) if isinstance(retries, list) else 0
            return made + (self.queue is DeadLetterQueueName.SCHEDULE)
        attempt = self.fields.get("attempt", 1)
        return attempt if isinstance(attempt, int) else 1

    @property
    def process(self) -> str:
        """The process of a request; empty if the message does not state it."""
        process = self.fields.get("process")
        return process if isinstance(process, str) else self.group

    @property
    def execution(self) -> str:
        """The name of a request's execution, whether it was started or not."""
        if self.queue in (DeadLetterQueueName.WORK, DeadLetterQueueName.SCHEDULE):
            return ""
        named = self.attributes.get("execution_name", "")
        return named or execution_name(self.process, self.request_id, self.attempt)

    def summary(self) -> dict[str, Any]:
        """The message as a list shows it."""
        data: dict[str, Any] = {
            "message_id": self.message_id,
            "code": self.code,
            "reason": self.reason,
            "request_id": self.request_id,
            "attempt": self.attempt,
            "since": iso(self.sent_at),
        }
        if self.queue in (DeadLetterQueueName.REQUEST, DeadLetterQueueName.FAILED):
            data |= {"process": self.process, "execution": self.execution}
        return data


class DeadLetterQueueReader:
    """One of the queues on a stack."""

    def __init__(self, stack: StackConnection, queue: DeadLetterQueueName) -> None:
        self.queue = queue
        self._sqs = stack.client("sqs")
        self._url = queue.url(stack)
        self._deleted: set[str] = set()

    def size(self) -> int:
        """Approximate number of messages, hidden ones included."""
        counted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=counted)["Attributes"]
        return sum(int(attributes.get(name, 0)) for name in counted)

    def receive(self) -> list[DeadLetterMessage]:
        """Receive up to ten messages, hidden until they are deleted or made visible; none if there are no more."""
        answer = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_BATCH,
            VisibilityTimeout=HIDDEN_SECONDS,
            WaitTimeSeconds=LONG_POLL_SECONDS,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return [self._dead_letter(message) for message in answer.get("Messages", [])]

    def peek(self, limit: int) -> list[DeadLetterMessage]:
        """Read the first messages of the queue, and leave them there.

        Of RequestDeadLetterQueue at most ten a process: a FIFO queue shows no more of a group behind hidden ones.
        """
        seen: dict[str, DeadLetterMessage] = {}
        taken: list[DeadLetterMessage] = []
        try:
            while len(seen) < limit and (batch := self.receive()):
                taken += batch
                # A message that is visible again too early is received again: without this the loop would not end.
                if all(message.message_id in seen for message in batch):
                    break
                seen |= {message.message_id: message for message in batch}
        finally:
            self.make_visible(taken)
        return list(seen.values())[:limit]

    def make_visible(self, messages: list[DeadLetterMessage]) -> None:
        """Make messages visible again. A deleted or expired one is no error."""
        remaining = [message for message in messages if message.message_id not in self._deleted]
        for start in range(0, len(remaining), _BATCH):
            entries = [
                {"Id": str(number), "ReceiptHandle": message.receipt_handle, "VisibilityTimeout": 0}
                for number, message in enumerate(remaining[start : start + _BATCH])
            ]
            self._sqs.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)

    def delete(self, message: DeadLetterMessage) -> None:
        """Delete a received message."""
        self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message.receipt_handle)
        self._deleted.add(message.message_id)

    def sweep(self) -> Generator[list[DeadLetterMessage]]:
        """All messages, each once, in batches; the caller deletes what need not stay.

        What stays is hidden until the others were received, and then made visible. A FIFO queue returns nothing of a
        group behind a hidden message, so it is read again until nothing new appears; ten messages that stay at the head
        of a group hide the others of it.
        """
        known: set[str] = set()
        while True:
            before = len(known)
            taken: list[DeadLetterMessage] = []
            try:
                while batch := self.receive():
                    taken += batch
                    new = [message for message in batch if message.message_id not in known]
                    if not new:
                        break  # they were hidden for long enough for others, and come again
                    known |= {message.message_id for message in new}
                    yield new
            finally:
                self.make_visible(taken)
            if len(known) == before or self.queue is not DeadLetterQueueName.REQUEST:
                return

    def _dead_letter(self, message: Mapping[str, Any]) -> DeadLetterMessage:
        attributes = message.get("MessageAttributes", {})
        return DeadLetterMessage(
            queue=self.queue,
            message_id=message["MessageId"],
            receipt_handle=message["ReceiptHandle"],
            body=message["Body"],
            group=message["Attributes"].get("MessageGroupId", ""),
            sent_at=int(message["Attributes"]["SentTimestamp"]) / 1000,
            attributes={name: value["StringValue"] for name, value in attributes.items() if "StringValue" in value},
        )
