"""Intake: a request that was received becomes a row of RequestTable.

Its message is deleted after that, and stays only if the row could not be written. So a message is on RequestQueue for
seconds, and a redelivery finds its row.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from slotkeeper.aws.dynamodb import Item, number
from slotkeeper.slots.queued import place_of
from slotkeeper.slots.request import PRIORITIES, Request
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
class Rejected:
    """The message was added as this row, which has ended: its request never starts."""

    execution: str
    code: str
    reason: str


Acceptance = Accepted | ReceivedAgain | SameAgain | Rejected


def digest_of(request: Request) -> str:
    """The same for two messages that ask for the same, in any format and of any attempt."""
    return hashlib.sha256(replace(request, attempt=1).to_json().encode()).hexdigest()


def accept(
    table: RequestTable, request: Request, message_id: str, sent: float, sequence: str, now: float, too_large: str = ""
) -> Acceptance:
    """Add the row of a request that was received, unless its message or the same request has one.

    A request that ended without a start may be sent again, corrected or not: it becomes the next attempt.

    Args:
        sent: seconds since the epoch.
        too_large: why it is too large; its row ends immediately, and has no body.
    """
    digest = digest_of(request)
    while True:
        execution = request.execution_name
        row = _new_row(request, execution, digest, message_id, sent, sequence, now)
        if too_large:
            row |= _ended("TooLarge", too_large, now)
        else:
            row |= _in_queue(request, row["placed"], sent)
        known = table.add(row)
        if known is None:
            return Rejected(execution, "TooLarge", too_large) if too_large else Accepted(execution)
        if known.text("message_id") == message_id:
            return ReceivedAgain(execution)
        if known.text("state") not in ENDED_WITHOUT_START:
            if known.text("digest") == digest:
                return SameAgain(execution)
            return _reject_reuse(table, request, execution, digest, message_id, sent, sequence, now)
        request = replace(request, attempt=request.attempt + 1)


def _reject_reuse(
    table: RequestTable,
    request: Request,
    taken: str,
    digest: str,
    message_id: str,
    sent: float,
    sequence: str,
    now: float,
) -> Rejected | ReceivedAgain:
    """Add the row of a message whose request id belongs to another request, under a name that no execution can have."""
    execution = f"{taken}#{message_id}"
    reason = (
        f"request_id {request.request_id!r} is already used by another request, {taken}. A request_id must be unique "
        "for 90 days. Send this request again with a new request_id"
    )
    row = _new_row(request, execution, digest, message_id, sent, sequence, now)
    row |= _ended("RequestIdReused", reason, now)
    return ReceivedAgain(execution) if table.add(row) else Rejected(execution, "RequestIdReused", reason)


def _new_row(
    request: Request, execution: str, digest: str, message_id: str, sent: float, sequence: str, now: float
) -> Item:
    row: Item = {
        "process_name": {"S": request.process},
        "execution": {"S": execution},
        "request_id": {"S": request.request_id},
        "attempt": number(request.attempt),
        "message_id": {"S": message_id},
        "digest": {"S": digest},
        "priority": {"S": request.priority},
        "sent": number(sent),
        "placed": {"S": place_of(PRIORITIES.index(request.priority), sent, sequence, request.key)},
        "open": number(now),
    }
    if request.task_token:
        row["task_token"] = {"S": request.task_token}
    if request.weight is not None:
        row["weight"] = number(request.weight)
    return row


def _in_queue(request: Request, place: Item, sent: float) -> Item:
    row: Item = {"state": {"S": "QUEUED"}, "body": {"S": request.to_json()}, "place": place}
    if request.deadline is not None:
        row["start_before"] = row["deadline"] = number(request.deadline)
    if request.when_busy == "skip":
        row["skips"] = {"BOOL": True}
        row["deadline"] = number(sent)  # it may have to leave from its acceptance on
    return row


def _ended(code: str, reason: str, now: float) -> Item:
    return {
        "state": {"S": "REJECTED"},
        "open": number(-now),
        "code": {"S": code},
        "reason": {"S": reason},
        "ended": number(now),
        "failed": number(now),
    }
