"""The checks of R1 to R4 (docs/correctness.md) for a state of the ledger, the queues and the schedules."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import NamedTuple

from slotkeeper.retry.message import epoch, instant, parse_message
from tests.simulation.frozen import Record, remembered
from tests.simulation.worlds import Violation

_UNWORKED = ("RequestIdReused", "TooLarge")
_RANK = {"RUNNING": 0, "FAILED": 1, "WAITING": 2, "DEAD_LETTERED": 2, "SUCCEEDED": 2}


class Body(NamedTuple):
    """The fields of a message body."""

    request_id: str
    payload_hash: str
    attempt: int
    retries: tuple[float, ...]


class Messages(NamedTuple):
    """The messages from which a request can continue, by their place. `dead`: the dead-letter messages themselves."""

    queued: tuple[Body, ...]
    scheduled: tuple[Body, ...]
    undelivered: tuple[Body, ...]
    dead: tuple[Record, ...]


@remembered
def read(body: str) -> Body:
    """Read a body. Raises InvalidMessage."""
    message = parse_message(body)
    # Computed here, independently of the code under test.
    payload_hash = hashlib.sha256(json.dumps(message.payload, sort_keys=True).encode()).hexdigest()
    return Body(message.request_id, payload_hash, message.attempt, message.retries)


def status(row: Record | None) -> str:
    """A row's status; empty without a row."""
    return str(row["status"]["S"]) if row is not None else ""


def check_rows(before: Record, now: Record) -> None:
    """R2: attempts follow one another, and a settled attempt stays settled. Raises Violation."""
    for request_id, row in before.fields.items():
        after = now.get(request_id)
        if after is row:
            continue
        if after is None:
            raise Violation("R2", f"the row of {request_id} was deleted")
        was, is_ = _place(row), _place(after)
        if status(row) == "SUCCEEDED" or is_ < was or (is_ == was and status(row) != status(after)):
            raise Violation(
                "R2", f"the row of {request_id} changed from {status(row)} {was[0]} to {status(after)} {is_[0]}"
            )
        if is_[0] > was[0] and status(row) == "RUNNING":
            raise Violation("R2", f"attempt {is_[0]} of {request_id} begins before attempt {was[0]} was decided")


def check_not_lost(sent: Body, row: Record | None, effects: Record, messages: Messages) -> None:
    """R1: unfinished work is in a queue or a schedule, as its next attempt, or dead-lettered. Raises Violation."""
    is_its_own = row is not None and row["payload_hash"]["S"] == sent.payload_hash
    least = 1
    if row is not None and is_its_own:
        if status(row) == "SUCCEEDED":
            if sent.request_id not in effects:
                raise Violation("R1", f"{sent.request_id} is SUCCEEDED without its effect")
            return
        least = int(row["attempts"]["N"]) + (status(row) in ("WAITING", "DEAD_LETTERED"))
    for message in (*messages.queued, *messages.scheduled, *messages.undelivered):
        if message[:2] == sent[:2] and message.attempt >= least:
            return
    for dead in messages.dead:
        message, unworked = read(dead["body"]), _code(dead) in _UNWORKED
        if message[:2] == sent[:2] and (message.attempt > least - 1 or (unworked and not is_its_own)):
            return
    raise Violation(
        "R1", f"{sent.request_id} is lost: its row is {status(row) or 'missing'}, and no message continues it"
    )


def check_attempts(performed: frozenset[tuple[str, int]], allowed: int, redriven: tuple[str, ...]) -> None:
    """R3: a request has at most the attempts of its policy, and one more for each redrive. Raises Violation."""
    for request_id, made in Counter(request_id for request_id, _ in performed).items():
        most = allowed + redriven.count(request_id)
        if made > most:
            raise Violation("R3", f"{request_id} had {made} attempts, and its policy allows {most}")


def check_not_cancelled(row: Record | None, attempt: int) -> None:
    """R2: a cancelled attempt does not begin. Raises Violation."""
    for entry in row["history"]["L"] if row is not None and "history" in row else ():
        if entry["M"]["error"]["S"].startswith("Cancelled") and int(entry["M"]["attempt"]["N"]) == attempt:
            raise Violation("R2", f"attempt {attempt} begins although it was cancelled")


def check_once(waiting: tuple[Body, ...], dead: tuple[Record, ...], excuses: int) -> None:
    """R2: an attempt is scheduled once and dead-lettered once, and once more for each excuse. Raises Violation.

    Args:
        waiting: the scheduled attempts that were not delivered yet.
        excuses: the number of faults and commands so far.
    """
    for message, times in Counter(message for message in waiting if message.attempt > 1).items():
        if times > 1 + excuses:
            raise Violation("R2", f"attempt {message.attempt} of {message.request_id} is scheduled {times} times")
    for message, times in Counter(read(each["body"]) for each in dead if _code(each) not in _UNWORKED).items():
        if times > 1 + excuses:
            raise Violation(
                "R2", f"attempt {message.attempt - 1} of {message.request_id} is dead-lettered {times} times"
            )


def check_no_attempt_died(row: Record) -> None:
    """R3: without a fault, no attempt counts as dead. Raises Violation."""
    if "last_error" in row and row["last_error"]["S"].startswith("Died"):
        raise Violation("R3", f"attempt {row['attempts']['N']} counts as dead although there was no fault")


@remembered
def check_dead_letter(dead: Record) -> None:
    """R4: a dead-letter message states why, when and how often. Raises Violation."""
    message, attributes = read(dead["body"]), dead["attributes"]
    subject = f"a dead-letter message of {message.request_id}"
    reused = _code(dead) == "RequestIdReused"
    for name in ("code", "reason", *["source_message_id"] * reused):
        if not _text(attributes, name):
            raise Violation("R4", f"{subject} has no {name}")
    if reused:
        return
    history = json.loads(_text(attributes, "history") or "[]")
    if [entry["attempt"] for entry in history] != list(range(1, message.attempt)):
        raise Violation("R4", f"{subject} has the attempts of {history}, not those before {message.attempt}")
    if [epoch(entry["at"]) for entry in history] != list(message.retries) or not all(e["error"] for e in history):
        raise Violation("R4", f"{subject} has other times than its body, or no error: {history}")
    stated = [_text(attributes, name) for name in ("first_attempt_at", "last_attempt_at", "retry_count")]
    if stated != [instant(message.retries[0]), instant(message.retries[-1]), str(len(message.retries))]:
        raise Violation("R4", f"{subject} states {stated}")


def _place(row: Record) -> tuple[int, int]:
    return int(row["attempts"]["N"]), _RANK[status(row)]


def _code(dead: Record) -> str:
    return _text(dead["attributes"], "code")


def _text(attributes: Record, name: str) -> str:
    attribute = attributes.get(name)
    return str(attribute["StringValue"]) if attribute is not None else ""
