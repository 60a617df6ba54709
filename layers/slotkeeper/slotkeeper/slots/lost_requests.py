"""Requests whose message has left RequestQueue unhandled: deleted, purged, expired, or moved by SQS itself.

A waiting request is named in its process's item, as a registration or as what a waker has left of it (Cleared). Its
message's own end removes the name: the write of the grant, and before the original of a dead letter is deleted
`end_wait`. So nothing will start a request that is named and has no message. That is known in two cases:

- if a later message of its group asks for a slot: a FIFO queue delivers none while an earlier one is left. The starter
  finds it, because neither a grant nor a registration may replace an older name (NOTHING_VANISHED in protocol.py).
- if RequestQueue has no message at all. The janitor finds it, and asks only if a message is overdue.

A receipt handle that SQS rejects does not show it: the message may be visible again, or be received at this moment.

Both move the name into the item's `lost`, in one write. The janitor reports it some minutes later, if no execution has
its name: a message may also be deleted after its request has run, and was received again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Table
from slotkeeper.next_step import next_step, shell_text
from slotkeeper.slots.process import RETENTION_SECONDS, SETTLED_SECONDS, Cleared, Lost, Process, WaitingRequest
from slotkeeper.slots.request import DEFAULT_PRIORITY, Priority, execution_name

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Each adds up to 700 bytes to the item, and so to the price of each write. The oldest gives way to the newest.
MAX_LOST = 20
_ATTEMPTS = 100  # far more than a request has, since each is a failure that was redriven or returned

LOSE_UPDATE = "SET waiting.{0} = :tombstone, lost.#me = :note"
LOSE_CONDITION = (
    "waiting.{0}.execution = :execution AND waiting.{0}.#sequence = :sequence AND waiting.{0}.receives = :receives"
)


class LostVerdict(Enum):
    """What the janitor does with a note."""

    KEEP = auto()
    REPORT = auto()
    DROP = auto()


def judge_lost(lost: Lost, has_execution: bool, now: float) -> LostVerdict:
    """Decide what to do with a note, given whether Step Functions knows an execution of its name.

    A reported one is kept until its request has been sent again, or for as long as RequestQueue keeps a message.
    """
    if has_execution or now >= lost.noted + RETENTION_SECONDS:
        return LostVerdict.DROP
    if lost.reported is None and now >= lost.noted + SETTLED_SECONDS:
        return LostVerdict.REPORT
    return LostVerdict.KEEP


class LostRequests:
    """The lost requests in one table. Errors of DynamoDB itself pass through as ClientError."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "process_name")

    def lose(self, process: Process, gone: WaitingRequest | Cleared, now: float) -> bool:
        """Move the name of a request from `waiting` to `lost`, in one write; False if its entry has changed."""
        # Two updates: DynamoDB cannot set a key of a map that does not exist, and an item has no map at first.
        add_map = "SET lost = if_not_exists(lost, :none)"
        self._table.update(process.name, add_map, "attribute_exists(process_name)", {":none": {"M": {}}})
        update, condition = (text.format(gone.priority) for text in (LOSE_UPDATE, LOSE_CONDITION))
        names = {"#me": gone.execution, "#sequence": "sequence"}
        others = [name for name in process.lost if name != gone.execution]
        # All above the most, since requests of other priorities may have been noted after the same read.
        oldest = sorted(others, key=lambda name: process.lost[name].noted)[: max(0, len(others) - MAX_LOST + 1)]
        if oldest:
            names |= {f"#old{number}": name for number, name in enumerate(oldest)}
            update += " REMOVE " + ", ".join(f"lost.#old{number}" for number in range(len(oldest)))
        position = {"sequence": {"S": gone.sequence}, "receives": {"N": str(gone.receives)}}
        note: dict[str, Any] = {"since": {"N": str(gone.since)}, "noted": {"N": str(int(now))}}
        note |= {"priority": {"S": gone.priority}}
        note |= {"request_id": {"S": gone.request_id}} if gone.request_id else {}
        values = {
            ":tombstone": {"M": position},
            ":note": {"M": note},
            ":execution": {"S": gone.execution},
            **{f":{name}": value for name, value in position.items()},
        }
        return self._table.update(process.name, update, condition, values, names).held

    def mark_reported(self, process: str, execution: str, now: float) -> bool:
        """Record that a lost request was reported; False if it was, or if there is no note."""
        condition = "attribute_exists(lost.#me) AND attribute_not_exists(lost.#me.reported)"
        values = {":now": {"N": str(int(now))}}
        return self._table.update(process, "SET lost.#me.reported = :now", condition, values, {"#me": execution}).held

    def drop(self, process: str, execution: str) -> bool:
        """Remove a note; False if there is none."""
        return self._table.update(
            process, "REMOVE lost.#me", "attribute_exists(lost.#me)", None, {"#me": execution}
        ).held


def send_again(process: str, execution: str, lost: Lost) -> str:
    """The command that sends a lost request again, without its arguments or input, which no item contains.

    It has the same id and attempt, so it runs once, although its message may still exist. Empty if a task token
    belongs to the request: its caller alone can repeat it.
    """
    attempts = (n for n in range(1, _ATTEMPTS) if execution_name(process, lost.request_id, n) == execution)
    attempt = next(attempts, None)
    if attempt is None:
        return ""
    return submission(process, lost.request_id, attempt, lost.priority)


def submission(process: str, request_id: str, attempt: int, priority: Priority = DEFAULT_PRIORITY) -> str:
    """The command that sends an attempt of a request, to which its arguments or input must be added."""
    fields: Mapping[str, Any] = {"process": process, "request_id": request_id, "priority": priority}
    if attempt > 1:
        request = json.dumps(dict(fields) | {"attempt": attempt})
        # Not echo: that of zsh and dash would read escapes of JSON as its own.
        return f"{shell_text('printf', '%s', request)} | {next_step('request submit', file='-')}"
    option = {} if priority == DEFAULT_PRIORITY else {"priority": priority}
    return next_step("request submit", process=process, request_id=request_id, **option)
