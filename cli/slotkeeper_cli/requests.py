"""Requests as the command shows them: their states, fields, rows, task tokens, and groups of equal failures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import uuid4

from slotkeeper.slots.executions import failed_run, failure_reason
from slotkeeper.slots.request import Request, masked
from slotkeeper.slots.request_table import ENDED_WITHOUT_START, FAILURES, State
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.formatting import iso, local_time, seconds

_TIMES = ("sent", "held_since", "started", "ended", "start_before")
# A request's field with its task token, and the text that replaces it.
FIELD = "task_token"
HIDDEN = "(hidden)"
# The codes of rejected requests whose rows have no content to run again, and what to do.
WITHOUT_CONTENT = {
    "RequestIdReused": "its id belongs to another request: submit it with a different id",
    "TooLarge": "it is too large: store its input in S3, and submit it with the key",
}
# Of the id of a group of failures.
GROUP_DIGITS = 8
_WORD = re.compile(r"[\w.:-]+")
# Digits from which on a word is an id, a time or a large number. Those of an HTTP status, or of a line, are fewer.
_ID_DIGITS = 4
# Characters from which on a request's id, with a digit, is not a part of other words.
_ID_LENGTH = 4
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


def attempt_as_dict(row: RequestRow) -> dict[str, Any]:
    """The row of an attempt as JSON shows it, without what it does not have.

    A request that has ended without a start has no execution.
    """
    times = {"sent": row.sent, "started": row.started, "ended": row.ended, "start_before": row.start_before}
    data: dict[str, Any] = {
        "attempt": row.attempt,
        "execution": None if row.state in ENDED_WITHOUT_START else row.execution,
        "state": state_of(row.state),
        "priority": row.priority,
        "weight": row.weight,
        "key": row.key,
        **{name: iso(moment) for name, moment in times.items() if moment is not None},
        "code": row.code,
        "reason": hide_tokens(failure_of(row)),
        "cause": hide_tokens(row.cause),
        "failed_glue_run": failed_run(row.cause),
        "published": False if row.is_unpublished else None,
    }
    required = ("attempt", "execution", "state", "priority", "weight")
    return {name: value for name, value in data.items() if name in required or value not in ("", None)}


def fact_text(name: str, value: Any) -> str:
    """A fact of an attempt as text shows it."""
    if name in _TIMES:
        return local_time(seconds(value))
    if isinstance(value, dict):
        return f"{value['state']} {value['id']}"
    return "no" if value is False else str(value)


def is_discarded(row: RequestRow) -> bool:
    """Whether a failure was discarded: its content is removed, and it is in no list of failures."""
    return row.state in FAILURES and row.failed is None


def failure_of(row: RequestRow) -> str:
    """Why a request failed, or ended without a start; empty for any other."""
    return row.reason or (failure_reason(row.cause) or row.code if row.state == "FAILED" else "")


def alike(reason: str, request_id: str = "") -> str:
    """A reason without what differs between equal failures: the request's id, other ids, times and large numbers."""
    is_distinct = len(request_id) >= _ID_LENGTH and any(map(str.isdigit, request_id))
    text = reason.replace(request_id, "#") if is_distinct else reason
    return _WORD.sub(lambda word: "#" if sum(map(str.isdigit, word[0])) >= _ID_DIGITS else word[0], text)


@dataclass
class FailureGroup:
    """Failures of one process with the same code, whose reasons are alike. `rows`: the newest first."""

    process: str
    code: str
    reason: str
    rows: list[RequestRow] = field(default_factory=list)

    @property
    def id(self) -> str:
        """What commands take. It stays the same as long as code and reason do."""
        text = "\0".join((self.process, self.code, self.reason))
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:GROUP_DIGITS]

    def as_dict(self) -> dict[str, Any]:
        """The group as JSON shows it."""
        return {
            "group": self.id,
            "process": self.process,
            "code": self.code,
            "reason": self.reason,
            "requests": len(self.rows),
            "first": iso(failed_at(self.rows[-1])),
            "last": iso(failed_at(self.rows[0])),
            "newest": self.rows[0].request_id,
        }


def failed_at(row: RequestRow) -> float:
    """When a failure ended, in seconds since the epoch."""
    return row.failed or row.ended or 0.0


def reason_of(row: RequestRow) -> str:
    """Why it failed, without what must not be shown."""
    return hide_tokens(failure_of(row))


def grouped(rows: Iterable[RequestRow]) -> list[FailureGroup]:
    """The groups of failures, that with the newest failure first."""
    groups: dict[tuple[str, str, str], FailureGroup] = {}
    for row in sorted(rows, key=lambda row: (failed_at(row), row.sent), reverse=True):
        key = (row.process, row.code, alike(reason_of(row), row.request_id))
        groups.setdefault(key, FailureGroup(*key)).rows.append(row)
    return list(groups.values())
