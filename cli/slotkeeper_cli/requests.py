"""Requests as the command shows them: their states, fields and task tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from uuid import uuid4

from slotkeeper.settings import MAX_WEIGHT
from slotkeeper.slots.request import Request, masked
from slotkeeper.slots.request_table import ENDED_WITHOUT_START, State

# A request's field with its task token, and what is shown in its place.
FIELD = "task_token"
HIDDEN = "(hidden)"
# The codes of rejected requests whose rows have no content to run again, and what to do.
WITHOUT_CONTENT = {
    "RequestIdReused": "its id belongs to another request: submit it with a different id",
    "TooLarge": "it is too large: store its input in S3, and submit it with the key",
}
# The states of a row that an operator can queue again.
REDRIVABLE: tuple[State, ...] = ("FAILED", *ENDED_WITHOUT_START)


class RequestState(StrEnum):
    """The state of a request, which is that of its row, or of a request of the worker."""

    QUEUED = "queued"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"  # it could not start when it was received, and has when_busy skip
    TOO_LATE = "too late"  # its start_before passed before it could start
    CANCELLED = "cancelled"
    REJECTED = "rejected"  # its process, its id or its content does not permit a start
    RETURNED = "returned"  # its slot was gone before its work began, and its next attempt was queued
    REDRIVEN = "redriven"  # an operator has queued its next attempt
    # Of the worker alone.
    WAITING = "waiting"  # its next attempt is scheduled
    RUNNING = "running"
    DEAD_LETTERED = "dead-lettered"


ALL_STATES = f"{', '.join(list(RequestState)[:-1])} or {list(RequestState)[-1]}"


def state_of(state: State) -> RequestState:
    """The state of a row as commands show it."""
    return RequestState(state.lower().replace("_", " "))


def fields_in(text: str) -> Mapping[str, Any]:
    """The fields of a JSON object that can be encoded as UTF-8; empty for any other text."""
    try:
        fields = json.loads(text)
        # Half of a surrogate pair, escaped, is valid JSON, but can be neither printed nor hashed.
        json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def weight_in(fields: Mapping[str, Any]) -> int | None:
    """The weight that a request states; None if it states none, or an invalid one."""
    weight = fields.get("weight")
    is_valid = isinstance(weight, int) and not isinstance(weight, bool) and 1 <= weight <= MAX_WEIGHT
    return weight if is_valid else None


def hide_tokens(text: str) -> str:
    """A text to be printed or logged, in which no token can be read: neither in JSON nor in another text."""
    return masked(text, HIDDEN)


def message_of(request: Request) -> dict[str, str]:
    """The fields of one sending of a request to RequestQueue. In one message group, a file's requests keep their order.

    The deduplication id is new for each sending, and a try that repeats it has the same fields. With the execution's
    name, SQS would accept a request that is sent again within five minutes, and drop it (SQS Developer Guide, "Amazon
    SQS FIFO queue key terms"). The starter recognizes a request that was sent before.
    """
    return {
        "MessageBody": request.to_json(),
        "MessageGroupId": request.process,
        "MessageDeduplicationId": str(uuid4()),
    }
