"""The dead-letter queues and their messages.

    request    RequestDeadLetterQueue           requests that never started: invalid, expired or cancelled; FIFO
    failed     FailedRequestQueue               requests that started and did not succeed
    work       WorkDeadLetterQueue              work that was given up
    schedule   RetryScheduleDeadLetterQueue     retries of work that EventBridge Scheduler could not send

Nothing but commands consumes these queues; reading hides their messages for a short time. Commands never receive from
RequestQueue and WorkQueue, since that would invalidate the receipt handles that the functions use.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from slotkeeper.slots.failure_reason import failed_run, failure_reason
from slotkeeper.slots.request import DEFAULT_PRIORITY, Priority, execution_name, process_of
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.queue_attributes import DEAD_LETTER_QUEUES, received_or_visible
from slotkeeper_cli.request_fields import fields_in, priority_in, weight_in
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.task_tokens import FIELD, HIDDEN, Body, hide_tokens, without_token

# Visibility timeout in seconds: longer than it takes to redrive a batch, each call with its retries.
HIDDEN_SECONDS = 120
# Long polling queries all servers, so that an empty response means an empty queue (SQS guide, "Amazon SQS short and
# long polling").
LONG_POLL_SECONDS = 1
_BATCH = 10


class DeadLetterQueueName(StrEnum):
    """The short names of the dead-letter queues, as commands take them."""

    REQUEST = "request"
    FAILED = "failed"
    WORK = "work"
    SCHEDULE = "schedule"

    @property
    def full_name(self) -> str:
        """The logical id of the queue in the template."""
        return dict(zip(DeadLetterQueueName, DEAD_LETTER_QUEUES, strict=True))[self]

    @property
    def has_requests(self) -> bool:
        """Whether its messages are requests; otherwise they are work messages."""
        return self in (DeadLetterQueueName.REQUEST, DeadLetterQueueName.FAILED)

    def is_deployed(self, stack: StackConnection) -> bool:
        """Whether a stack has the queue. The queues of work messages are deployed with the worker."""
        return f"{self.full_name}Url" in stack.outputs


@dataclass(frozen=True)
class DeadLetterMessage:
    """A dead-letter message, without the task token of a request.

    Args:
        sent_at: when SQS received it, in seconds since the epoch.
        caller: what identifies the caller of a request in its execution name; empty without a task token.
        had_token: whether its body contained a task token.
    """

    queue: DeadLetterQueueName
    message_id: str
    receipt_handle: str
    body: str
    group: str
    sent_at: float
    attributes: Mapping[str, str]
    caller: str = ""
    had_token: bool = False

    @property
    def code(self) -> str:
        """The reason as one word; `none` if SQS itself moved the message."""
        names = {DeadLetterQueueName.FAILED: "error", DeadLetterQueueName.SCHEDULE: "ERROR_CODE"}
        return self.attributes.get(names.get(self.queue, "code"), "none")

    @property
    def reason(self) -> str:
        """The reason as text: for a failed Glue run, Glue's own error message."""
        if self.queue is DeadLetterQueueName.FAILED:
            return failure_reason(self.attributes.get("cause", ""))
        name = "ERROR_MESSAGE" if self.queue is DeadLetterQueueName.SCHEDULE else "reason"
        moved = "SQS moved it: it was received maxReceiveCount times without being deleted"
        return self.attributes.get(name, "" if self.attributes else moved)

    @property
    def details(self) -> dict[str, str]:
        """The attributes that `code`, `reason`, `request_id` and `execution` do not show, and the failed Glue run."""
        shown = ("code", "reason", "error", "cause", "ERROR_CODE", "ERROR_MESSAGE", "idempotency_key", "execution_name")
        run = failed_run(self.attributes.get("cause", ""))
        others = {name: value for name, value in self.attributes.items() if name not in shown}
        return {"glue_run": run, **others} if run else others

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
        # Without the attribute, SQS itself moved the message, which keeps its id; or the request failed in an execution
        # that was started manually without an id, and uses the id of this message.
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
        """The process of a request, by its body or else by its message group."""
        process = self.fields.get("process")
        return process if isinstance(process, str) else process_of(self.group)

    @property
    def priority(self) -> Priority:
        """The priority of a request."""
        return priority_in(self.fields)

    @property
    def weight(self) -> int | None:
        """The weight that a request states; None means the process's default weight."""
        return weight_in(self.fields)

    @property
    def execution(self) -> str:
        """The name of a request's execution, whether or not it was started; empty for a work message."""
        if not self.queue.has_requests:
            return ""
        named = self.attributes.get("execution_name", "")
        return named or execution_name(self.process, self.request_id, self.attempt, self.caller)

    @property
    def label(self) -> str:
        """The request as a text, such as `order-1 (sample, attempt 2)` or `order-1 (sample, attempt 2, high)`."""
        facts = [self.process] * bool(self.execution) + [f"attempt {self.attempt}"]
        if self.execution:
            facts += [self.priority] * (self.priority != DEFAULT_PRIORITY)
            facts += [f"weight {self.weight}"] * (self.weight is not None)
        return f"{self.request_id or 'no request id'} ({', '.join(facts)})"

    def is_named(self, name: str) -> bool:
        """Whether this is the id of the request, of its execution or of the message."""
        return bool(name) and name in (self.request_id, self.execution, self.message_id)

    @property
    def shown_body(self) -> str:
        """The body, in which no task token can be read."""
        return hide_tokens(self.body)

    def summary(self) -> dict[str, Any]:
        """The message as `dlq list --json` shows it."""
        data: dict[str, Any] = {
            "message_id": self.message_id,
            "code": self.code,
            "reason": self.reason,
            "request_id": self.request_id,
            "attempt": self.attempt,
            "since": iso(self.sent_at),
        }
        if self.queue.has_requests:
            data |= {"process": self.process, "priority": self.priority, "weight": self.weight}
            data["execution"] = self.execution
        return data


class DeadLetterQueueReader:
    """Reads one of the queues of a stack."""

    def __init__(self, stack: StackConnection, queue: DeadLetterQueueName) -> None:
        self.queue = queue
        self._stack = stack
        self._sqs, self._url = stack.client("sqs"), stack.outputs[f"{queue.full_name}Url"]
        self._deleted: set[str] = set()

    def size(self) -> int:
        """The approximate number of messages, including hidden ones."""
        return received_or_visible(self._stack, self.queue.full_name)

    def receive(self) -> list[DeadLetterMessage]:
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

    def peek(self, limit: int) -> list[DeadLetterMessage]:
        """Read the first messages of the queue, and make them visible again.

        At most ten per message group of RequestDeadLetterQueue: a FIFO queue returns no more of a group behind hidden
        ones.
        """
        seen: dict[str, DeadLetterMessage] = {}
        taken: list[DeadLetterMessage] = []
        try:
            while len(seen) < limit and (batch := self.receive()):
                taken += batch
                # A message that becomes visible again too early is received again; the loop must end all the same.
                if all(message.message_id in seen for message in batch):
                    break
                seen |= {message.message_id: message for message in batch}
        finally:
            self.make_visible(taken)
        return list(seen.values())[:limit]

    def make_visible(self, messages: list[DeadLetterMessage]) -> None:
        """Make messages visible again, except deleted ones. An expired receipt handle is not an error.

        On a standard queue it may make a message visible that another operator has received. Redriven twice, it is
        one request all the same, by its id.
        """
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
        """Yield every message once, in batches. The caller deletes messages; the others are made visible at the end.

        A FIFO queue returns no message of a group behind hidden ones, so it is read again until no new message appears.
        Ten messages that the caller leaves at the head of a group hide the rest of that group.
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
                        break  # their visibility timeout has passed, so that they are received again
                    known |= {message.message_id for message in new}
                    yield new
            finally:
                self.make_visible(taken)
            if len(known) == before or self.queue is not DeadLetterQueueName.REQUEST:
                return

    def _dead_letter(self, message: Mapping[str, Any]) -> DeadLetterMessage:
        attributes = message.get("MessageAttributes", {})
        # A work message is redriven as it is. Its body is hidden where it is shown.
        body = without_token(message["Body"]) if self.queue.has_requests else Body(message["Body"])
        return DeadLetterMessage(
            queue=self.queue,
            message_id=message["MessageId"],
            receipt_handle=message["ReceiptHandle"],
            body=body.text,
            group=message["Attributes"].get("MessageGroupId", ""),
            sent_at=int(message["Attributes"]["SentTimestamp"]) / 1000,
            attributes={
                name: HIDDEN if name == FIELD else hide_tokens(value["StringValue"])
                for name, value in attributes.items()
                if "StringValue" in value
            },
            caller=body.caller,
            had_token=body.had_token,
        )
