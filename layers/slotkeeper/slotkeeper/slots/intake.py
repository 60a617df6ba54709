"""Intake: a request that was received becomes a row of RequestTable.

Its message is deleted after that, and stays only if the row could not be written. So a message is on RequestQueue for
seconds, and a redelivery finds its row.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from slotkeeper.aws.dynamodb import Item, number
from slotkeeper.slots.request import PRIORITIES, Priority, Request
from slotkeeper.slots.request_table import ENDED_WITHOUT_START, RequestTable


@dataclass(frozen=True)
class Accepted:
    """The request is queued as this execution."""

    execution: str


@dataclass(frozen=True)
class ReceivedAgain:
    """The message has been accepted before, as this execution."""

    execution: str


@dataclass(frozen=True)
class SameAgain:
    """The same request was sent before, as this execution. This message has no effect."""

    execution: str


@dataclass(frozen=True)
class Reused:
    """The request id belongs to another request, whose execution this is."""

    execution: str


Acceptance = Accepted | ReceivedAgain | SameAgain | Reused


def place_of(priority: Priority, sent: float, sequence: str) -> str:
    """The place of a message in its process's queue, as text that sorts.

    First the priority, then the time of sending in milliseconds, then the sequence number, which has up to 39 digits
    (SQS API Reference, SendMessage) and orders the messages of a sender that were sent in one millisecond.

    Args:
        sent: SentTimestamp, in seconds since the epoch.
    """
    return f"{PRIORITIES.index(priority)}#{round(sent * 1000):014}#{sequence.zfill(40)}"


def digest_of(request: Request) -> str:
    """The same for two messages that ask for the same, in any format and of any attempt."""
    return hashlib.sha256(replace(request, attempt=1).to_json().encode()).hexdigest()


def accept(
    table: RequestTable, request: Request, message_id: str, sent: float, sequence: str, now: float
) -> Acceptance:
    """Add the row of a request that was received, unless its message or the same request has one.

    A request that ended without a start may be sent again, corrected or not: it becomes the next attempt.
    """
    digest = digest_of(request)
    while True:
        execution = request.execution_name
        row = _new_row(request, digest, message_id, sent, sequence, now)
        known = table.add(row)
        if known is None:
            return Accepted(execution)
        if known.text("message_id") == message_id:
            return ReceivedAgain(execution)
        if known.text("state") not in ENDED_WITHOUT_START:
            return SameAgain(execution) if known.text("digest") == digest else Reused(execution)
        request = replace(request, attempt=request.attempt + 1)


def _new_row(request: Request, digest: str, message_id: str, sent: float, sequence: str, now: float) -> Item:
    place = place_of(request.priority, sent, sequence)
    row: Item = {
        "process_name": {"S": request.process},
        "execution": {"S": request.execution_name},
        "state": {"S": "QUEUED"},
        "request_id": {"S": request.request_id},
        "attempt": number(request.attempt),
        "message_id": {"S": message_id},
        "digest": {"S": digest},
        "body": {"S": request.to_json()},
        "priority": {"S": request.priority},
        "sent": number(sent),
        "place": {"S": place},
        "placed": {"S": place},
        "open": number(now),
    }
    if request.task_token:
        row["task_token"] = {"S": request.task_token}
    if request.weight is not None:
        row["weight"] = number(request.weight)
    if request.deadline is not None:
        row["start_before"] = row["deadline"] = number(request.deadline)
    if request.when_busy == "skip":
        row["skips"] = {"BOOL": True}
        row["deadline"] = number(sent)  # it may have to leave from its acceptance on
    return row
