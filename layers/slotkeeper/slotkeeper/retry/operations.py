"""Operator commands on a waiting retry: cancel it, or run it now. Both are safe to repeat after a crash.

A retry waits in a schedule or in the queue. A schedule can be read and deleted. A message that SQS delays can be
neither read nor deleted, so a cancellation is stored in the ledger until the message arrives: after 15 minutes at most,
or after its last hop.

    cancel      1. The ledger records the cancellation.
                2. The message of a schedule is sent immediately, then the schedule is deleted.
                3. The delivery that brings the attempt dead-letters it with its whole history.
    run now     1. The ledger sets the attempt due, on the condition that it is still waiting.
                2. The message is sent, then the schedule is deleted.
                3. A copy of the message finds the attempt claimed, and ends.

The message is sent before its schedule is deleted, so that a crash between the two duplicates the message instead of
losing it.
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
    """The attempt will not run. `sent`: its message is on the queue; otherwise it arrives at `due`, epoch seconds."""

    attempt: int
    sent: bool
    due: float | None = None


@dataclass(frozen=True)
class RetrySentNow:
    """The attempt's message is on the queue."""

    attempt: int


@dataclass(frozen=True)
class MessageOutOfReach:
    """The message is delayed in the queue until `due` (epoch seconds), or lost. Sending it requires the payload."""

    attempt: int
    due: float | None


@dataclass(frozen=True)
class NoRetryWaiting:
    """No attempt is waiting: it has started, or the request has ended. `row` is None if the ledger has no such row."""

    row: Row | None


class PayloadMismatch(ValueError):
    """The payload differs from the payload of the request's earlier attempts."""


def is_cancelled(row: Row) -> bool:
    """Whether the waiting attempt was cancelled, so that the request will be dead-lettered."""
    return row.status == FAILED and (row.plan or {}).get("code") == CANCELLED


def awaited_attempt(row: Row) -> int:
    """The number of the attempt whose message has not arrived yet."""
    return row.attempts if is_cancelled(row) else row.attempts + 1


class RetryOperations:
    """The commands on one ledger and its queue. Errors of AWS pass through as ClientError or BotoCoreError.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, ledger: Ledger, queue: RetryQueue, clock: Callable[[], float] = time.time) -> None:
        self._ledger = ledger
        self._queue = queue
        self._clock = clock

    def schedule_name(self, request_id: str, row: Row) -> str:
        """The name of the schedule of the waiting attempt, whether or not it exists."""
        return self._queue.schedule_name(_the_attempt(request_id, awaited_attempt(row)))

    def cancel(
        self, request_id: str, why: str, payload: Mapping[str, Any] | None = None
    ) -> RetryCancelled | NoRetryWaiting:
        """Cancel the waiting attempt, so that the request is dead-lettered.

        Args:
            why: for people; part of the dead-letter message's reason.
            payload: as for `run_now`; with it the message can be sent immediately.

        Raises:
            PayloadMismatch: the payload is not the request's.
        """
        row = self._ledger.read(request_id)
        if payload is not None and row is not None:
            _rebuilt(request_id, row, payload)  # before anything is decided
        if row is not None and row.status == WAITING:
            attempt = row.attempts + 1
            plan = DeadLetter(CANCELLED, f"attempt {attempt} was cancelled before it started: {why}")
            error = f"{CANCELLED}: {why}"
            decided = self._ledger.cancel(request_id, row, uuid.uuid4().hex, vars(plan), error, self._clock())
            if decided is not None:
                return self._bring(request_id, decided, payload)
            row = self._ledger.read(request_id)
        if row is not None and is_cancelled(row):  # by an earlier call, which may have died before it sent the message
            return self._bring(request_id, row, payload)
        return NoRetryWaiting(row)

    def run_now(
        self, request_id: str, payload: Mapping[str, Any] | None = None
    ) -> RetrySentNow | MessageOutOfReach | NoRetryWaiting:
        """Send the waiting attempt to the queue now.

        Args:
            payload: the request's payload, needed if the attempt has no schedule. The message is rebuilt from the
                ledger: attempts that are missing in the history get the first attempt's time, and all attempts count.

        Raises:
            PayloadMismatch: the payload is not the request's.
        """
        row = self._ledger.read(request_id)
        if row is None or row.status != WAITING:
            return NoRetryWaiting(row)
        message = self._message(request_id, row, payload)
        if message is None:
            return MessageOutOfReach(row.attempts + 1, row.next_attempt_at)
        if not self._ledger.make_due(request_id, row, self._clock()):
            return NoRetryWaiting(self._ledger.read(request_id))
        self._queue.send_now(message)
        self._queue.delete_schedule(message)
        return RetrySentNow(message.attempt)

    def _bring(self, request_id: str, row: Row, payload: Mapping[str, Any] | None) -> RetryCancelled:
        """Send the message of a cancelled attempt, if its schedule or the payload is known."""
        message = self._message(request_id, row, payload)
        if message is None:
            return RetryCancelled(row.attempts, sent=False, due=row.next_attempt_at)
        self._queue.send_now(message)
        self._queue.delete_schedule(message)
        return RetryCancelled(row.attempts, sent=True)

    def _message(self, request_id: str, row: Row, payload: Mapping[str, Any] | None) -> Message | None:
        """The message of the attempt that has not arrived yet: that of its schedule, or rebuilt with the payload."""
        body = self._queue.scheduled_body(_the_attempt(request_id, awaited_attempt(row)))
        if body is not None:
            return parse_message(body)
        return None if payload is None else _rebuilt(request_id, row, payload)


def _the_attempt(request_id: str, attempt: int) -> Message:
    """A message with the fields that determine the name of its schedule."""
    return Message(request_id, {}, (0.0,) * (attempt - 1))


def _rebuilt(request_id: str, row: Row, payload: Mapping[str, Any]) -> Message:
    made = awaited_attempt(row) - 1
    times = [epoch(entry["at"]) for entry in row.history if entry["attempt"] <= made] or [row.last_attempt_at]
    # The ledger drops entries after the first one, so missing times are filled in there.
    times = [*times[:1], *times[:1] * (made - len(times)), *times[1:]][:made]
    try:
        message = parse_message(Message(request_id, payload, tuple(times)).to_json())
    except (InvalidMessage, TypeError, ValueError) as error:
        raise PayloadMismatch(f"the payload is not valid: {error}") from error
    if message.payload_hash != row.payload_hash:
        raise PayloadMismatch(
            f"this payload differs from the payload of the {made} earlier attempts of request {request_id!r}"
        )
    return message
