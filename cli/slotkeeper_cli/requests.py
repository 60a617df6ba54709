"""Requests as the command shows them: their states, fields and task tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from slotkeeper.slots.request import DEFAULT_PRIORITY, MAX_WEIGHT, PRIORITIES, Priority, caller_of, masked, token_of
from slotkeeper.slots.request import without_token as strip

# The error of an execution that found its reservation gone, and sent its request back to RequestQueue as a new attempt.
RETURNED = "RequestReturned"
# A request's field with its task token, and what is shown in its place.
FIELD = "task_token"
HIDDEN = "(hidden)"


class RequestState(StrEnum):
    """The state of a request or of one of its attempts."""

    PERHAPS_QUEUED = "perhaps queued"  # it may be on RequestQueue, which cannot be searched
    QUEUED = "queued"  # a redrive has sent it to RequestQueue, and it has not been received since
    WAITING = "waiting"  # refused a slot, as the head of its queue; a work request: its next attempt is scheduled
    STARTING = "starting"  # holds a slot that its workflow has not confirmed
    RUNNING = "running"
    STOPPED = "stopped"  # its execution has ended, and it still holds its slot
    FINISHING = "finishing"  # has released its slot, and its execution has not ended
    RETURNED = "returned"  # its workflow found its reservation gone, and sent it back to RequestQueue
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD_LETTERED = "dead-lettered"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # it could not start when it was received, and has when_busy skip
    LOST = "lost"  # its message has left RequestQueue, and nothing has handled it


ALL_STATES = f"{', '.join(list(RequestState)[:-1])} or {list(RequestState)[-1]}"


def fields_in(text: str) -> Mapping[str, Any]:
    """The fields of a JSON object that can be encoded as UTF-8; empty for any other text."""
    try:
        fields = json.loads(text)
        # Half of a surrogate pair, escaped, is valid JSON, but can be neither printed nor hashed.
        json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def priority_in(fields: Mapping[str, Any]) -> Priority:
    """The priority of a request; the default one if the field is missing or invalid."""
    return next((each for each in PRIORITIES if each == fields.get("priority")), DEFAULT_PRIORITY)


def weight_in(fields: Mapping[str, Any]) -> int | None:
    """The weight that a request states; None if it states none, or an invalid one."""
    weight = fields.get("weight")
    is_valid = isinstance(weight, int) and not isinstance(weight, bool) and 1 <= weight <= MAX_WEIGHT
    return weight if is_valid else None


@dataclass(frozen=True)
class Body:
    """A request's body without its token.

    Attributes:
        text: the body, unchanged if it had no token.
        caller: what identifies the caller in the request's execution name; "" without a token.
    """

    text: str
    caller: str = ""
    had_token: bool = False


def without_token(body: str) -> Body:
    """Remove the token of a request. Its other fields, such as its input, are unchanged."""
    stripped = strip(body)
    return Body(stripped, caller_of(token_of(body)), FIELD in body and stripped != body)


def hide_tokens(text: str) -> str:
    """A text to be printed or logged, in which no token can be read: neither in JSON nor in another text."""
    return masked(text, HIDDEN)
