"""Redrive a dead-letter message: send its request or work again, under the same key, as the next attempt.

The message is sent first and then deleted, so that a command that dies in between loses nothing. The message is then
redriven a second time without effect: both copies are the same attempt, and only one of them gets the execution's name,
or the ledger's row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from slotkeeper.aws import sqs as message_attributes
from slotkeeper.retry.message import InvalidMessage, Message, parse_message
from slotkeeper.slots.request import Delivery, InvalidRequest, Request, parse_request
from slotkeeper_cli.dead_letter_queues import DeadLetterMessage
from slotkeeper_cli.request_sender import group_of, message_of
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.task_tokens import FIELD

MAX_ATTEMPTS = 1_000_000  # request.schema.json

# The codes of messages that would be refused again (docs/retries-reference.md). A request with the id of another would
# be taken for that request's next attempt, whose own message has the same deduplication id: SQS drops the later one.
_NOT_REDRIVABLE = {
    "RequestIdReused": "its id belongs to another request: submit it with a different id",
    "TooLarge": "it is too large for WorkQueue: store its payload in S3, and send the key",
}


class NotRedrivable(ValueError):
    """The message would be refused again; the text states why."""


@dataclass(frozen=True)
class Redrive:
    """What to send for a dead-letter message: a `request` to RequestQueue, or a `message` to WorkQueue."""

    dlq_message: DeadLetterMessage
    body: str
    attempt: int
    request: Request | None = None
    message: Message | None = None

    def summary(self) -> dict[str, Any]:
        """The redrive as JSON shows it."""
        data = {**self.dlq_message.summary(), "attempt": self.attempt}
        if self.request is None:
            return data
        return (
            data
            | {"execution": self.request.execution_name}
            | ({FIELD: "removed"} if self.dlq_message.had_token else {})
        )


def plan(dead_letter: DeadLetterMessage, processes: Collection[str], malformed: Collection[str] = ()) -> Redrive:
    """Decide what to send for a dead-letter message.

    Args:
        processes: names of the processes that exist and can be read.
        malformed: names of the others.

    Raises:
        NotRedrivable: it would be refused again.
    """
    if dead_letter.code in _NOT_REDRIVABLE:
        raise NotRedrivable(_NOT_REDRIVABLE[dead_letter.code])
    if not dead_letter.queue.has_requests:
        return _plan_work(dead_letter)
    request = read_request(dead_letter)
    if request.process in malformed:
        raise NotRedrivable(
            f"the item of process {request.process!r} is malformed, so it would wait until it expires. Repair it "
            f"first: slotkeeper process repair {request.process}"
        )
    if request.process not in processes:
        raise NotRedrivable(
            f"there is no process {request.process!r}. Add it with: slotkeeper process add {request.process} --limit 1"
        )
    if request.attempt >= MAX_ATTEMPTS:
        raise NotRedrivable(f"it was attempt {request.attempt}, which is the maximum: submit it with a different id")
    again = replace(request, attempt=request.attempt + 1)
    return Redrive(dead_letter, again.to_json(), again.attempt, request=again)


def read_request(dead_letter: DeadLetterMessage) -> Request:
    """The request of a dead-letter message, with its id. Raises NotRedrivable."""
    # In its own group: a request that was refused for its group is valid in the right one.
    group = group_of(dead_letter.body)
    delivery = Delivery(dead_letter.request_id, dead_letter.body, group, "", "0", 1, dead_letter.sent_at)
    try:
        return parse_request(delivery)
    except InvalidRequest as error:
        raise NotRedrivable(f"it is not a valid request: {error}") from error


def _plan_work(dead_letter: DeadLetterMessage) -> Redrive:
    try:
        message = parse_message(dead_letter.body)
    except InvalidMessage as error:
        raise NotRedrivable(f"it is not a valid work message: {error}") from error
    return Redrive(dead_letter, dead_letter.body, message.attempt, message=message)


def send(stack: StackConnection, redrive: Redrive) -> None:
    """Send a request to RequestQueue, or a work message to WorkQueue. Errors of SQS pass through."""
    sqs = stack.client("sqs")
    if redrive.request is not None:
        sqs.send_message(QueueUrl=stack.outputs["RequestQueueUrl"], **message_of(redrive.request))
    elif redrive.message is not None:
        sqs.send_message(
            QueueUrl=stack.outputs["WorkQueueUrl"],
            MessageBody=redrive.body,
            MessageAttributes={
                "idempotency_key": message_attributes.text(redrive.message.request_id, 128),
                "retry_count": message_attributes.number(len(redrive.message.retries)),
            },
        )
