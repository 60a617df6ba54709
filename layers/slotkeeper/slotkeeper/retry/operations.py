"""What operators do to a retry that waits: cancel it, or bring it forward. If one dies over it, it is done once more.

A retry waits in one of two places. A schedule can be read and deleted; a message that SQS delays can be neither seen
nor touched, so what is decided of it stands in the ledger until it comes, a quarter of an hour later at most, or when
its hops are over.

    cancel      the ledger's step first; then a schedule's message is sent at once, and the schedule deleted. Whichever
                delivery brings the attempt finds what was decided, and makes it a dead letter with its whole story
    run now     the ledger's step first, as the look whether the attempt still waits; then its message is sent, and the
                schedule deleted. What comes of a copy finds the attempt claimed, and ends there

The message is sent before its schedule is deleted: a crash between the two makes a copy, and not a loss.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper.retry.delivery import RetryQueue
from slotkeeper.retry.ledger import FAILED, WAITING, Ledger, Row
from slotkeeper.retry.message import InvalidMessage, Message, epoch, parse_message
from slotkeeper.retry.plan import DeadLetter

CANCELLED = "Cancelled"


@dataclass(frozen=True)
class RetryCancelled:
    """The attempt will not be made. `sent`: its message is on the queue; else it comes at `due`, if it is not lost."""

    attempt: int
    sent: bool
    due: float | None = None


@dataclass(frozen=True)
class RetrySentNow:
    """The attempt's message is on the queue."""

    attempt: int


@dataclass(frozen=True)
class MessageOutOfReach:
    """The attempt waits for `due` in the queue, or its message is lost: nobody can send it who has not its payload."""

    attempt: int
    due: float | None


@dataclass(frozen=True)
class NoRetryWaiting:
    """No attempt waits: it has begun, or the request has had its end. Without a row, the ledger knows of none."""

    row: Row | None


class PayloadMismatch(ValueError):
    """The payload is not the one that the request's earlier attempts had."""


def is_cancelled(row: Row) -> bool:
    """Whether what the row waits for is to become a dead letter."""
    return row.status == FAILED and (row.plan or {}).get("code") == CANCELLED


def awaited_attempt(row: Row) -> int:
    """The number of the attempt whose message is to come."""
    return row.attempts if is_cancelled(row) else row.attempts + 1


class RetryOperations:
    """The steps over one ledger and its queue. Errors of AWS pass through as ClientError or BotoCoreError.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, ledger: Ledger, queue: RetryQueue, clock: Callable[[], float] = time.time) -> None:
        self._ledger = ledger
        self._queue = queue
        self._clock = clock

    def schedule_name(self, request_id: str, row: Row) -> str:
        """The name that the schedule has, if there is one, of the attempt that the row waits for."""
        return self._queue.schedule_name(_the_attempt(request_id, awaited_attempt(row)))

    def cancel(
        self, request_id: str, why: str, payload: Mapping[str, Any] | None = None
    ) -> RetryCancelled | NoRetryWaiting:
        """Sees to it that the attempt that waits is not made, and that the request becomes a dead letter.

        Args:
            why: for people; the dead letter says it.
            payload: as for `run_now`; whoever brings the attempt's message makes the dead letter.

        Raises:
            PayloadMismatch: it is not the request's.
        """
        row = self._ledger.read(request_id)
        if payload is not None and row is not None:
            _rebuilt(request_id, row, payload)  # before anything is decided
        if row is not None and row.status == WAITING:
            attempt = row.attempts + 1
            plan = DeadLetter(CANCELLED, f"attempt {attempt} was cancelled before it began: {why}")
            error = f"{CANCELLED}: {why}"
            decided = self._ledger.cancel(request_id, row, uuid.uuid4().hex, vars(plan), error, self._clock())
            if decided is not None:
                return self._bring(request_id, decided, payload)
            row = self._ledger.read(request_id)
        if row is not None and is_cancelled(row):  # by somebody who may have died over it
            return self._bring(request_id, row, payload)
        return NoRetryWaiting(row)

    def run_now(
        self, request_id: str, payload: Mapping[str, Any] | None = None
    ) -> RetrySentNow | MessageOutOfReach | NoRetryWaiting:
        """Brings the attempt that waits to the queue at once.

        Args:
            payload: the request's own, for an attempt that has no schedule to take it from. What the ledger does not
                keep is made good: of attempts that the history has dropped the first one's time, and all count.

        Raises:
            PayloadMismatch: it is not.
        """
        row = self._ledger.read(request_id)
        if row is None or row.status != WAITING:
            return NoRetryWaiting(row)
        attempt = row.attempts + 1
        body = self._queue.scheduled_body(_the_attempt(request_id, attempt))
        if body is not None:
            message = parse_message(body)
        elif payload is not None:
            message = _rebuilt(request_id, row, payload)
        else:
            return MessageOutOfReach(attempt, row.next_attempt_at)
        if not self._ledger.make_due(request_id, row, self._clock()):
            return NoRetryWaiting(self._ledger.read(request_id))
        self._queue.send_now(message)
        self._queue.delete_schedule(message)
        return RetrySentNow(attempt)

    def _bring(self, request_id: str, row: Row, payload: Mapping[str, Any] | None) -> RetryCancelled:
        """Carries a cancel out, as far as the message is within reach."""
        attempt = row.attempts
        body = self._queue.scheduled_body(_the_attempt(request_id, attempt))
        if body is not None:
            message = parse_message(body)
        elif payload is not None:
            message = _rebuilt(request_id, row, payload)
        else:
            return RetryCancelled(attempt, sent=False, due=row.next_attempt_at)
        self._queue.send_now(message)
        self._queue.delete_schedule(message)
        return RetryCancelled(attempt, sent=True)


def _the_attempt(request_id: str, attempt: int) -> Message:
    """A message as far as the name of its schedule goes."""
    return Message(request_id, {}, (0.0,) * (attempt - 1))


def _rebuilt(request_id: str, row: Row, payload: Mapping[str, Any]) -> Message:
    made = awaited_attempt(row) - 1
    times = [epoch(entry["at"]) for entry in row.history if entry["attempt"] <= made] or [row.last_attempt_at]
    # Between the first and the others, as the ledger drops them.
    times = [*times[:1], *times[:1] * (made - len(times)), *times[1:]][:made]
    try:
        message = parse_message(Message(request_id, payload, tuple(times)).to_json())
    except (InvalidMessage, TypeError, ValueError) as error:
        raise PayloadMismatch(f"the payload is none: {error}") from error
    if message.payload_hash != row.payload_hash:
        raise PayloadMismatch(f"this payload is not the one that the {made} earlier attempts of {request_id!r} had")
    return message
