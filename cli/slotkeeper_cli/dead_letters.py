"""The dead-letter queues and their messages.

    request    RequestDeadLetterQueue           messages that are no requests; FIFO
    work       WorkDeadLetterQueue              work that was given up
    schedule   RetryScheduleDeadLetterQueue     retries of work that EventBridge Scheduler could not send

Nothing but commands consumes these queues; reading hides their messages for a short time. Commands never receive from
the other queues, since that would take their messages from the functions.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from slotkeeper.next_step import next_step
from slotkeeper.slots.request import without_token
from slotkeeper_cli.formatting import duration, iso
from slotkeeper_cli.requests import FIELD, HIDDEN, fields_in, hide_tokens
from slotkeeper_cli.stack_connection import DEAD_LETTER_QUEUES, StackConnection, received_or_visible
from slotkeeper_cli.unread import UnreadSource

# Messages that a sweep yields at a time, in the order of their requests. Each has at most 256 KiB, a request 65 KiB.
ORDERED = 500
# Visibility timeout in seconds: longer than it takes to audit, send and delete ORDERED messages, at 250 ms a call.
HIDDEN_SECONDS = 600
# Long polling queries all servers, so that an empty response means an empty queue (SQS guide, "Amazon SQS short and
# long polling").
LONG_POLL_SECONDS = 1
_BATCH = 10


class DeadLetterQueueName(StrEnum):
    """The short names of the dead-letter queues, as commands take them."""

    REQUEST = "request"
    WORK = "work"
    SCHEDULE = "schedule"

    @property
    def full_name(self) -> str:
        """The logical id of the queue in the template."""
        return dict(zip(DeadLetterQueueName, DEAD_LETTER_QUEUES, strict=True))[self]

    @property
    def has_requests(self) -> bool:
        """Whether its messages are requests; otherwise they are work messages."""
        return self is DeadLetterQueueName.REQUEST

    def is_deployed(self, stack: StackConnection) -> bool:
        """Whether a stack has the queue. The queues of work messages are deployed with the worker."""
        return f"{self.full_name}Url" in stack.outputs


@dataclass(frozen=True)
class DeadLetterMessage:
    """A dead-letter message, without the task token of a request.

    Args:
        sent_at: when SQS received it, in seconds since the epoch.
        had_token: whether its body contained a task token.
    """

    queue: DeadLetterQueueName
    message_id: str
    receipt_handle: str
    body: str
    sent_at: float
    attributes: Mapping[str, str]
    had_token: bool = False

    @property
    def code(self) -> str:
        """The reason as one word; `none` if SQS itself moved the message."""
        return self.attributes.get("ERROR_CODE" if self.queue is DeadLetterQueueName.SCHEDULE else "code", "none")

    @property
    def reason(self) -> str:
        """The reason as text."""
        name = "ERROR_MESSAGE" if self.queue is DeadLetterQueueName.SCHEDULE else "reason"
        moved = "SQS moved it: it was received maxReceiveCount times without being deleted"
        return self.attributes.get(name, "" if self.attributes else moved)

    @property
    def details(self) -> dict[str, str]:
        """The attributes that `code`, `reason` and `request_id` do not show."""
        shown = ("code", "reason", "ERROR_CODE", "ERROR_MESSAGE", "idempotency_key")
        return {name: value for name, value in self.attributes.items() if name not in shown}

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the body; empty if it is not a JSON object."""
        return fields_in(self.body)

    @property
    def request_id(self) -> str:
        """The idempotency key; for a request that was sent without one, the id of its original message."""
        given = self.fields.get("request_id")
        if isinstance(given, str) and given:
            return given
        if not self.queue.has_requests:
            return self.attributes.get("idempotency_key", "")
        # Without the attribute, SQS itself moved the message, which keeps its id.
        return self.attributes.get("source_message_id", self.message_id)

    @property
    def attempt(self) -> int:
        """The number of the attempt."""
        if not self.queue.has_requests:
            retries = self.fields.get("retries")
            made = len(retries) if isinstance(retries, list) else 0
            return made + (self.queue is DeadLetterQueueName.SCHEDULE)
        attempt = self.fields.get("attempt", 1)
        return attempt if isinstance(attempt, int) else 1

    @property
    def process(self) -> str:
        """The process of a request; empty if its body states none."""
        process = self.fields.get("process")
        return process if isinstance(process, str) else ""

    @property
    def order(self) -> float:
        """When its request was sent, in seconds since the epoch. SQS itself keeps no time of the original message."""
        sent_at = self.attributes.get("sent_at", "")
        return float(sent_at) if sent_at.isdecimal() else self.sent_at

    @property
    def label(self) -> str:
        """The request as a text, such as `order-1 (sample, attempt 2)`."""
        facts = [self.process] * bool(self.queue.has_requests and self.process) + [f"attempt {self.attempt}"]
        return f"{self.request_id or 'no request id'} ({', '.join(facts)})"

    def is_named(self, name: str) -> bool:
        """Whether this is the id of the request or of the message."""
        return bool(name) and name in (self.request_id, self.message_id)

    @property
    def shown_body(self) -> str:
        """The body, in which no task token can be read."""
        return hide_tokens(self.body)

    def summary(self) -> dict[str, Any]:
        """The message as `dlq list --json` shows it."""
        return {
            "message_id": self.message_id,
            "code": self.code,
            "reason": self.reason,
            "request_id": self.request_id,
            "attempt": self.attempt,
            "since": iso(self.sent_at),
            **({"process": self.process} if self.queue.has_requests else {}),
        }


class DeadLetterQueueReader:
    """Reads one of the queues of a stack."""

    def __init__(self, stack: StackConnection, queue: DeadLetterQueueName) -> None:
        self.queue = queue
        self._stack = stack
        self._sqs, self._url = stack.client("sqs"), stack.outputs[f"{queue.full_name}Url"]
        self._size: int | None = None
        self._read: set[str] = set()  # the ids of the messages that were read
        self._deleted: set[str] = set()

    def size(self) -> int:
        """The approximate number of messages, including hidden ones, as counted before the first was read."""
        if self._size is None:
            self._size = received_or_visible(self._stack, self.queue.full_name)
        return self._size

    def unread(self, limit: int | None = None) -> UnreadSource | None:
        """The messages that the last peek or sweep has not read; None if it read all. `limit`: that of the peek."""
        size, read = self.size(), len(self._read)
        if limit is not None and read >= limit < size:
            why = f"the command reads at most {limit:,}. List all with: {next_step('dlq list', self.queue, limit=size)}"
            return UnreadSource(self.queue.full_name, why, size - limit)
        if size <= read:
            return None
        why = (
            f"another command is reading them (run this again, at the latest after {duration(HIDDEN_SECONDS)}), they "
            "are behind the first ten of their message group (redrive or discard those first), or they were deleted in "
            "the last minute, since the number is approximate"
        )
        return UnreadSource(self.queue.full_name, why, size - read)

    def peek(self, limit: int) -> list[DeadLetterMessage]:
        """Read up to `limit` messages of the queue, and make them visible again."""
        self.size()
        self._read = set()
        taken: dict[str, str] = {}
        try:
            return self._take(limit, taken)[:limit]
        finally:
            self._make_visible(taken)

    def sweep(self) -> Generator[list[DeadLetterMessage]]:
        """Yield every message once, in lists of up to ORDERED messages that are in the order of their requests.

        The caller deletes messages; the others are made visible at the end. A queue of more than ORDERED messages
        yields them in no order across lists, since SQS returns those of different message groups in no order.

        Of a message group SQS returns no more than ten hidden messages (those that SQS itself moved may share one), so
        after some were deleted the queue is read again.
        """
        self.size()
        self._read = set()
        while True:
            deleted = len(self._deleted)
            taken: dict[str, str] = {}
            try:
                while messages := self._take(ORDERED, taken):
                    yield messages
            finally:
                self._make_visible(taken)
            if len(self._deleted) == deleted or self.unread() is None:
                return

    def delete(self, message: DeadLetterMessage) -> None:
        """Delete a received message."""
        self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message.receipt_handle)
        self._deleted.add(message.message_id)

    def _take(self, most: int, taken: dict[str, str]) -> list[DeadLetterMessage]:
        """Receive and hide messages that were not read yet, in the order of their requests.

        Args:
            most: receive no more after this many new ones.
            taken: the receipt handles of the messages that are hidden, by message id. Those received are added.
        """
        new: dict[str, DeadLetterMessage] = {}
        while len(new) < most and (batch := self._receive()):
            # Their visibility timeout has passed, so that they are received again: the loop must end all the same.
            is_repeated = all(message.message_id in taken for message in batch)
            taken |= {message.message_id: message.receipt_handle for message in batch}
            if is_repeated:
                break
            new |= {message.message_id: message for message in batch if message.message_id not in self._read}
            self._read |= new.keys()
        return sorted(new.values(), key=lambda message: message.order)

    def _receive(self) -> list[DeadLetterMessage]:
        """Receive up to ten messages, and hide them for HIDDEN_SECONDS; empty if no message is visible."""
        answer = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_BATCH,
            VisibilityTimeout=HIDDEN_SECONDS,
            WaitTimeSeconds=LONG_POLL_SECONDS,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return [self._dead_letter(message) for message in answer.get("Messages", [])]

    def _make_visible(self, taken: Mapping[str, str]) -> None:
        """Make messages visible again, except deleted ones. An expired receipt handle is not an error.

        On a standard queue it may make a message visible that another operator has received. Redriven twice, it is
        one request all the same, by its id.
        """
        remaining = [handle for message_id, handle in taken.items() if message_id not in self._deleted]
        for start in range(0, len(remaining), _BATCH):
            entries = [
                {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                for number, handle in enumerate(remaining[start : start + _BATCH])
            ]
            self._sqs.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)

    def _dead_letter(self, message: Mapping[str, Any]) -> DeadLetterMessage:
        attributes = message.get("MessageAttributes", {})
        # A work message is redriven as it is. Its body is hidden where it is shown.
        given = message["Body"]
        body = without_token(given) if self.queue.has_requests else given
        return DeadLetterMessage(
            queue=self.queue,
            message_id=message["MessageId"],
            receipt_handle=message["ReceiptHandle"],
            body=body,
            sent_at=int(message["Attributes"]["SentTimestamp"]) / 1000,
            attributes={
                name: HIDDEN if name == FIELD else hide_tokens(value["StringValue"])
                for name, value in attributes.items()
                if "StringValue" in value
            },
            had_token=FIELD in given and body != given,
        )
