"""R1 to R4 of the design page, for a state of the ledger, the queues and the schedules."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from functools import cache
from typing import NamedTuple

from slotkeeper.retry.message import epoch, instant, parse_message
from tests.simulation.frozen import Record
from tests.simulation.worlds import Violation

_UNWORKED = ("RequestIdReused", "TooLarge")
_RANK = {"RUNNING": 0, "FAILED": 1, "WAITING": 2, "DEAD_LETTERED": 2, "SUCCEEDED": 2}


class Told(NamedTuple):
    """What a body says."""

    request_id: str
    payload_hash: str
    attempt: int
    retries: tuple[float, ...]


class Messages(NamedTuple):
    """Whatever can still bring a request back, by where it is; dead letters as they are."""

    queued: tuple[Told, ...]
    scheduled: tuple[Told, ...]
    undelivered: tuple[Told, ...]
    dead: tuple[Record, ...]


@cache
def read(body: str) -> Told:
    """Reads a body. Raises InvalidMessage."""
    message = parse_message(body)
    # Reckoned here: a code that no longer tells payloads apart must not have us do the same.
    payload_hash = hashlib.sha256(json.dumps(message.payload, sort_keys=True).encode()).hexdigest()
    return Told(message.request_id, payload_hash, message.attempt, message.retries)


def status(row: Record | None) -> str:
    """A row's status; empty if there is none."""
    return str(row["status"]["S"]) if row is not None else ""


def check_rows(before: Record, now: Record) -> None:
    """Attempts follow one another, and what is settled stays so. Raises Violation."""
    for request_id, row in before.fields.items():
        after = now.get(request_id)
        if after is row:
            continue
        if after is None:
            raise Violation("R2", f"the row of {request_id} is gone")
        was, is_ = _place(row), _place(after)
        if status(row) == "SUCCEEDED" or is_ < was or (is_ == was and status(row) != status(after)):
            raise Violation(
                "R2", f"{request_id} was {status(row)} {was[0]}, which is settled, and is {status(after)} {is_[0]}"
            )
        if is_[0] > was[0] and status(row) == "RUNNING":
            raise Violation("R2", f"attempt {is_[0]} of {request_id} begins, and nothing was decided of {was[0]}")


def check_not_lost(asked: Told, row: Record | None, effects: Record, messages: Messages) -> None:
    """R1: what is not done stands somewhere, as the attempt that has to come next. Raises Violation."""
    is_its_own = row is not None and row["payload_hash"]["S"] == asked.payload_hash
    least = 1
    if row is not None and is_its_own:
        if status(row) == "SUCCEEDED":
            if asked.request_id not in effects:
                raise Violation("R1", f"{asked.request_id} is SUCCEEDED and has no effect")
            return
        least = int(row["attempts"]["N"]) + (status(row) in ("WAITING", "DEAD_LETTERED"))
    for message in (*messages.queued, *messages.scheduled, *messages.undelivered):
        if message[:2] == asked[:2] and message.attempt >= least:
            return
    for letter in messages.dead:
        message, unworked = read(letter["body"]), _code(letter) in _UNWORKED
        if message[:2] == asked[:2] and (message.attempt > least - 1 or (unworked and not is_its_own)):
            return
    raise Violation(
        "R1", f"{asked.request_id} is lost: its row is {status(row) or 'missing'}, and nothing brings it on"
    )


def check_attempts(performed: frozenset[tuple[str, int]], allowed: int, redriven: tuple[str, ...]) -> None:
    """R3: no request is worked on more often than its policy says, and once more for each redrive. Raises Violation."""
    for request_id, made in Counter(request_id for request_id, _ in performed).items():
        most = allowed + redriven.count(request_id)
        if made > most:
            raise Violation("R3", f"{request_id} was worked on {made} times, and its policy allows {most}")


def check_not_cancelled(row: Record | None, attempt: int) -> None:
    """R2: what an operator has cancelled is not begun. Raises Violation."""
    for entry in row["history"]["L"] if row is not None and "history" in row else ():
        if entry["M"]["error"]["S"].startswith("Cancelled") and int(entry["M"]["attempt"]["N"]) == attempt:
            raise Violation("R2", f"attempt {attempt} was cancelled, and is worked on")


def check_once(waiting: tuple[Told, ...], dead: tuple[Record, ...], excuses: int) -> None:
    """R2: an attempt is scheduled once, and a dead letter sent once, but for what went wrong. Raises Violation.

    Args:
        waiting: what has been scheduled, and was not delivered yet.
        excuses: how often something went wrong, each of which can be the cause of one more.
    """
    for message, times in Counter(message for message in waiting if message.attempt > 1).items():
        if times > 1 + excuses:
            raise Violation("R2", f"attempt {message.attempt} of {message.request_id} is scheduled {times} times")
    for message, times in Counter(read(letter["body"]) for letter in dead if _code(letter) not in _UNWORKED).items():
        if times > 1 + excuses:
            raise Violation("R2", f"attempt {message.attempt - 1} of {message.request_id} has {times} dead letters")


def check_nobody_is_taken_for_dead(row: Record) -> None:
    """R3: an attempt is used up by its own failure. Raises Violation."""
    if _text_of(row, "last_error").startswith("Died"):
        raise Violation("R3", f"attempt {row['attempts']['N']} was taken for dead, and nothing has gone wrong")


@cache
def check_dead_letter(letter: Record) -> None:
    """R4: it says why, when and how often. Raises Violation."""
    message, attributes = read(letter["body"]), letter["attributes"]
    for name in ("code", "reason"):
        if not _text(attributes, name):
            raise Violation("R4", f"a dead letter of {message.request_id} has no {name}")
    if _code(letter) == "RequestIdReused":
        if not _text(attributes, "source_message_id"):
            raise Violation("R4", f"a dead letter of {message.request_id} does not say which message it was")
        return
    history = json.loads(_text(attributes, "history") or "[]")
    if [entry["attempt"] for entry in history] != list(range(1, message.attempt)):
        raise Violation(
            "R4", f"a dead letter of attempt {message.attempt - 1} of {message.request_id} tells of {history}"
        )
    if [epoch(entry["at"]) for entry in history] != list(message.retries) or not all(e["error"] for e in history):
        raise Violation("R4", f"a dead letter of {message.request_id} tells other times than its body: {history}")
    stated = (
        _text(attributes, "first_attempt_at"),
        _text(attributes, "last_attempt_at"),
        _text(attributes, "retry_count"),
    )
    if stated != (instant(message.retries[0]), instant(message.retries[-1]), str(len(message.retries))):
        raise Violation("R4", f"a dead letter of {message.request_id} says {stated}")


def forget() -> None:
    """Drops what is known of messages, to bound memory."""
    read.cache_clear()
    check_dead_letter.cache_clear()


def _place(row: Record) -> tuple[int, int]:
    return int(row["attempts"]["N"]), _RANK[status(row)]


def _code(letter: Record) -> str:
    return _text(letter["attributes"], "code")


def _text_of(row: Record, name: str) -> str:
    return str(row[name]["S"]) if name in row else ""


def _text(attributes: Record, name: str) -> str:
    attribute = attributes.get(name)
    return str(attribute["StringValue"]) if attribute is not None else ""
