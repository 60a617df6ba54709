"""Sending a letter's request or work once more: under the same key, as the next attempt.

It is sent first and deleted then, so that nothing is lost in between. Should the command die there, the letter is
redriven once more some day, and the second message has no effect: it is the same attempt of the same request, to which
an execution's name, or the ledger's row, is given only once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from slotkeeper.aws import sqs as message_attributes
from slotkeeper.retry.message import InvalidMessage, Message, parse_message
from slotkeeper.slots.request import Delivery, InvalidRequest, Request, parse_request
from slotkeeper_cli.letters import Letter, Queue
from slotkeeper_cli.stack import Stack

MOST_ATTEMPTS = 1_000_000  # request.schema.json

# What would be refused again as it is (docs/retries.md, "Dead letters"). A request with another's id would be taken as
# the next attempt; but the other's own next attempt has the same name, and SQS drops whichever is sent second.
_HOPELESS = {
    "RequestIdReused": "its id belongs to another request: send it under an id of its own",
    "TooLarge": "it is too large for WorkQueue: put its payload into S3, and send the key",
}


class Hopeless(ValueError):
    """A letter that would only be refused again; the text says why."""


@dataclass(frozen=True)
class Redrive:
    """What is to be sent for a letter: the body, and where to."""

    letter: Letter
    body: str
    attempt: int
    request: Request | None = None
    message: Message | None = None

    def summary(self) -> dict[str, Any]:
        """What the result tells of it."""
        told = {**self.letter.summary(), "attempt": self.attempt}
        return told | ({"execution": self.request.execution_name} if self.request else {})


def plan(letter: Letter, processes: Collection[str]) -> Redrive:
    """What to send for a letter.

    Args:
        processes: the names of those that there are.

    Raises:
        Hopeless: see there.
    """
    if letter.code in _HOPELESS:
        raise Hopeless(_HOPELESS[letter.code])
    if letter.queue in (Queue.WORK, Queue.SCHEDULE):
        return _plan_work(letter)
    request = read_request(letter)
    if request.process not in processes:
        raise Hopeless(f"there is no process {request.process!r}: slotkeeper process add makes one")
    if request.attempt >= MOST_ATTEMPTS:
        raise Hopeless(f"it was attempt {request.attempt}, the last that there can be")
    again = replace(request, attempt=request.attempt + 1)
    return Redrive(letter, again.to_json(), again.attempt, request=again)


def read_request(letter: Letter) -> Request:
    """The request of a letter, with its id written out. Raises Hopeless."""
    # The group is the process once more: a letter that came in another group is right as soon as it is in this one.
    delivery = Delivery(letter.request_id, letter.body, letter.process, "", "0", 1, letter.sent_at)
    try:
        return parse_request(delivery)
    except InvalidRequest as error:
        raise Hopeless(f"it is no valid request: {error}") from error


def _plan_work(letter: Letter) -> Redrive:
    try:
        message = parse_message(letter.body)
    except InvalidMessage as error:
        raise Hopeless(f"it is no valid work message: {error}") from error
    return Redrive(letter, letter.body, message.attempt, message=message)


def send(stack: Stack, redrive: Redrive) -> None:
    """Puts it on RequestQueue, in its process's group, or on WorkQueue. Errors of SQS pass through."""
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
