"""Redrive a dead-letter message: send its request or work again, under the same key, as the next attempt.

It is sent first and then deleted, so that nothing is lost in between. If the command dies there, the message is
redriven again later, and the second copy has no effect: it is the same attempt of the same request, and an execution's
name, or the ledger's row, is given only once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from slotkeeper.aws import sqs as message_attributes
from slotkeeper.retry.message import InvalidMessage, Message, parse_message
from slotkeeper.slots.request import Delivery, InvalidRequest, Request, parse_request
from slotkeeper_cli.dead_letter_queues import DeadLetterMessage, DeadLetterQueueName
from slotkeeper_cli.stack_connection import StackConnection

MAX_ATTEMPTS = 1_000_000  # request.schema.json

# What would be refused again as it is (docs/retries-reference.md). A request with another's id would be taken as
# the next attempt; but the other's own next attempt has the same name, and SQS drops whichever is sent second.
_NOT_REDRIVABLE = {
    "RequestIdReused": "its id belongs to another request: send it under an id of its own",
    "TooLarge": "it is too large for WorkQueue: put its payload into S3, and send the key",
}


class NotRedrivable(ValueError):
    """The message would only be refused again; the text states why."""


@dataclass(frozen=True)
class Redrive:
    """What to send for a dead-letter message. `request` or `message` states where to."""

    dlq_message: DeadLetterMessage
    body: str
    attempt: int
    request: Request | None = None
    message: Message | None = None

    def summary(self) -> dict[str, Any]:
        """The redrive as JSON shows it."""
        data = {**self.dlq_message.summary(), "attempt": self.attempt}
        return data | ({"execution": self.request.execution_name} if self.request else {})


def plan(dead_letter: DeadLetterMessage, processes: Collection[str]) -> Redrive:
    """Decide what to send for a dead-letter message.

    Args:
        processes: names of the processes that exist.

    Raises:
        NotRedrivable: it would only be refused again.
    """
    if dead_letter.code in _NOT_REDRIVABLE:
        raise NotRedrivable(_NOT_REDRIVABLE[dead_letter.code])
    if dead_letter.queue in (DeadLetterQueueName.WORK, DeadLetterQueueName.SCHEDULE):
        return _plan_work(dead_letter)
    request = read_request(dead_letter)
    if request.process not in processes:
        raise NotRedrivable(f"there is no process {request.process!r}. Add it with: slotkeeper process add")
    if request.attempt >= MAX_ATTEMPTS:
        raise NotRedrivable(f"it was attempt {request.attempt}, the last that there can be")
    again = replace(request, attempt=request.attempt + 1)
    return Redrive(dead_letter, again.to_json(), again.attempt, request=again)


def read_request(dead_letter: DeadLetterMessage) -> Request:
    """The request of a message, with its id written out. Raises NotRedrivable."""
    # The group is the process: a message that came in another group is valid as soon as it is in this one.
    delivery = Delivery(dead_letter.request_id, dead_letter.body, dead_letter.process, "", "0", 1, dead_letter.sent_at)
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
    """Send it to RequestQueue, in its process's group, or to WorkQueue. Errors of SQS pass through."""
    sqs = stack.client("sqs")
    if redrive.request is not None:
        sqs.send_message(
            QueueUrl=stack.outputs["RequestQueueUrl"],
            MessageBody=redrive.body,
            MessageGroupId=redrive.request.process,
            MessageDeduplicationId=redrive.request.execution_name,
        )
    elif redrive.message is not None:
        sqs.send_message(
            QueueUrl=stack.outputs["WorkQueueUrl"],
            MessageBody=redrive.body,
            MessageAttributes={
                "idempotency_key": message_attributes.text(redrive.message.request_id, 128),
                "retry_count": message_attributes.number(len(redrive.message.retries)),
            },
        )
