"""The dead-letter queues and their messages.

    request    RequestDeadLetterQueue           messages that are no requests; FIFO
    work       WorkDeadLetterQueue              work that was given up
    schedule   RetryScheduleDeadLetterQueue     retries of work that EventBridge Scheduler could not send

Nothing but commands consumes these queues; reading hides their messages for a short time. Commands never receive from
the other queues, since that would take their messages from the functions.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
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
    group: str
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
    def shared_group(self) -> str:
        """The message group of a message that SQS itself moved, which others may have; else "", as of the starter."""
        return "" if self.group == self.attributes.get("source_message_id") else self.group

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


@dataclass(frozen=True)
class Read:
    """The messages that were read, in the order of their requests, and what could not be read."""

    messages: list[DeadLetterMessage]
    unread: UnreadSource | None


def unread(
    queue: DeadLetterQueueName, size: int, read: int, groups: Collection[str], limit: int | None = None
) -> UnreadSource | None:
    """What could not be read of a queue; None if all was read.

    Args:
        size: the approximate number of messages, counted before they were read.
        read: the number of messages that were read.
        groups: the shared message groups of those that are still in the queue.
        limit: the maximum that was read; None for no maximum.
    """
    if size <= read:
        return None
    if limit is not None and read >= limit:
        why = f"the command reads at most {limit:,}. List all with: {next_step('dlq list', queue, limit=size)}"
        return UnreadSource(queue.full_name, why, size - read)
    why = (
        f"another command is reading them (run this again, at the latest after {duration(HIDDEN_SECONDS)}), or they "
        "were deleted in the last minute, since the number is approximate"
    )
    if names := ", ".join(sorted(set(groups) - {""})):
        why = f"SQS returns the first ten of message group {names} only (redrive or discard those first), or {why}"
    return UnreadSource(queue.full_name, why, size - read)


class DeadLetterQueueReader:
    """Reads one of the queues of a stack."""

    def __init__(self, stack: StackConnection, queue: DeadLetterQueueName) -> None:
        self.queue = queue
        self._stack = stack
        self._sqs, self._url = stack.client("sqs"), stack.outputs[f"{queue.full_name}Url"]
        self._size: int | None = None
        self._groups: dict[str, str] = {}  # the shared group of each message that was read, by its id
        self._deleted: set[str] = set()

    def size(self) -> int:
        """The approximate number of messages, including hidden ones, as counted before the first was read."""
        if self._size is None:
            self._size = received_or_visible(self._stack, self.queue.full_name)
        return self._size

    def unread(self) -> UnreadSource | None:
        """What the last sweep could not read."""
        staying = {group for message_id, group in self._groups.items() if message_id not in self._deleted}
        return unread(self.queue, self.size(), len(self._groups), staying)

    def peek(self, limit: int) -> Read:
        """Read up to `limit` messages of the queue, and make them visible again."""
        size, self._groups = self.size(), {}
        taken: dict[str, str] = {}
        try:
            messages = self._take(limit, taken)[:limit]
        finally:
            self._make_visible(taken)
        groups = {message.shared_group for message in messages}
        return Read(messages, unread(self.queue, size, len(messages), groups, limit))

    def sweep(self) -> Generator[list[DeadLetterMessage]]:
        """Yield every message once, in lists of up to ORDERED messages that are in the order of their requests.

        The caller deletes messages; the others are made visible at the end. A queue of more than ORDERED messages
        yields them in no order across lists, since SQS returns those of different message groups in no order.

        SQS returns no message of a group behind hidden ones, so a queue with shared groups is read again until no new
        message appears. Ten messages that the caller leaves at the head of a group hide the rest of that group.
        """
        self.size()
        self._groups = {}
        while True:
            before = set(self._groups)
            taken: dict[str, str] = {}
            try:
                while messages := self._take(ORDERED, taken):
                    yield messages
            finally:
                self._make_visible(taken)
            if not any(group for message_id, group in self._groups.items() if message_id not in before):
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
            new |= {message.message_id: message for message in batch if message.message_id not in self._groups}
            self._groups |= {message.message_id: message.shared_group for message in batch}
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
            group=message["Attributes"].get("MessageGroupId", ""),
            sent_at=int(message["Attributes"]["SentTimestamp"]) / 1000,
            attributes={
                name: HIDDEN if name == FIELD else hide_tokens(value["StringValue"])
                for name, value in attributes.items()
                if "StringValue" in value
            },
            had_token=FIELD in given and body != given,
        )
