"""Queues a request again, as its next attempt: one transaction ends the row of the attempt before it.

RETURNED   its workflow has not confirmed its slot, or a manual redrive of it has found none: it has started no
           work. The next attempt has the old place, and the caller that waits.
REDRIVEN   it has failed, or ended without a start, and an operator wants it to run. The next attempt is placed as
           if it was sent now. It has no caller: the caller of the attempt before it has its answer.

So a request is redriven only once its end was published. A failure that is not redriven may be discarded: its content
is removed, and it is in no list of failures any more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Attributes, Item, Table, number, transact
from slotkeeper.schema import encode
from slotkeeper.settings import JanitorSettings
from slotkeeper.slots.queued import key_of, place_of
from slotkeeper.slots.request import PRIORITIES, caller_of, execution_name
from slotkeeper.slots.request_table import ENDED_WITHOUT_START, State

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

RETURNED_UPDATE = "SET #state = :end, ended = :now, expires = :expires REMOVE place, deadline, #open, body, task_token"
# `ended` stays: when it had ended.
REDRIVEN_UPDATE = "SET #state = :end, expires = :expires REMOVE body, failed"
RETURNED_CONDITION = "#state = :seen"
# An end that is not published still owes its caller an answer.
REDRIVEN_CONDITION = "#state = :seen AND attribute_not_exists(#open) AND attribute_exists(body)"
DISCARD_UPDATE = "REMOVE body, failed"
DISCARD_CONDITION = "attribute_exists(failed) AND attribute_not_exists(#open)"
# Each write after which a plan may be wrong changes `grants`. The value that it had is the time from which the order of
# the next attempt counts.
NO_HOLDER_UPDATE = "SET grants = grants + :one"
NO_HOLDER_CONDITION = "attribute_not_exists(holders.#me) AND grants = :grants"
# Of a busy process, whose `grants` changes between the read and the transaction.
MAX_TRIES = 20
# Requests of one transaction: it may have 4 MB (API Reference, TransactWriteItems), and a failed row has up to 190 KB,
# its next attempt up to 70 KB.
MAX_REDRIVES = 10
# Keys of one call (API Reference, BatchGetItem), of which the answer may have 16 MB.
MAX_READS = 80
# Without the task token, which an operator's role need not be permitted to read.
_READ = {
    "ConsistentRead": True,
    "ProjectionExpression": (
        "process_name, execution, #state, #open, request_id, attempt, message_id, digest, priority, weight, skips, "
        "placed, body"
    ),
    "ExpressionAttributeNames": {"#state": "state", "#open": "open"},
}
# For which Step Functions keeps the name of an execution: a request that is sent again does not run again, although
# its row is deleted. No execution has the name of an attempt that never started, so its row is kept for as long.
NAME_SECONDS = 90 * 86400
NEXT_EXISTS = "its next attempt exists"
# Kept for the next attempt.
_KEPT = ("process_name", "request_id", "message_id", "digest", "priority", "weight", "skips")


@dataclass(frozen=True)
class Requeued:
    """The request is queued again, as this execution."""

    execution: str


@dataclass(frozen=True)
class NotRequeued:
    """Nothing was changed.

    Attributes:
        reason: in words.
        state: of its row; None without one.
        is_temporary: whether only its slot prevents it, which must be freed, or its end, which must be published.
    """

    reason: str
    state: State | None = None
    is_temporary: bool = False


class Requeues:
    """Queues requests again. Errors of DynamoDB pass through as ClientError or BotoCoreError.

    Args:
        retention: seconds for which the row of the attempt before is kept.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str, slot_table_name: str, retention: float) -> None:
        self._dynamodb = dynamodb
        self._table = Table(dynamodb, table_name, "process_name", "execution")
        self._slots = Table(dynamodb, slot_table_name, "process_name")
        self._retention = retention

    @classmethod
    def from_settings(cls, settings: JanitorSettings, dynamodb: DynamoDBClient) -> Requeues:
        retention = settings.request_retention_days * 86400
        return cls(dynamodb, settings.request_table_name, settings.slot_table_name, retention)

    def give_back(self, process: str, execution: str, now: float) -> Requeued | NotRequeued:
        """Queue a request again whose execution holds no slot, and has started no work. Safe to repeat.

        Args:
            now: seconds since the epoch.
        """
        for _ in range(MAX_TRIES):
            row = self._table.read((process, execution))
            state = row.get("state", {}).get("S")
            if state not in ("QUEUED", "STARTED", "FAILED"):
                return NotRequeued("it has no row, or has ended otherwise", state)
            if state == "FAILED" and (reason := _kept_because(row)):
                return NotRequeued(reason, state, is_temporary="open" in row)
            slots = self._slots.read(process)
            if execution in slots.get("holders", {}).get("M", {}):
                return NotRequeued("it holds a slot", state, is_temporary=True)
            after = int(slots["grants"]["N"]) + 1 if slots else 0
            again = _next_attempt(row, row["placed"]["S"], now) | {"put_back": number(after), "sent": row["sent"]}
            end: State = "REDRIVEN" if state == "FAILED" else "RETURNED"
            parts = [self._ended(row, end, now), self._added(again), self._no_holder(process, execution, after)]
            refused = transact(self._dynamodb, parts)
            if not refused:
                return Requeued(again["execution"]["S"])
            if refused[1].code != "None":
                return NotRequeued(NEXT_EXISTS, state)
        raise TimeoutError(f"the item of process {process!r} changed during {MAX_TRIES} transactions in a row")

    def redrive(
        self, process: str, executions: Sequence[str], now: float, start_before: tuple[str, float] | None = None
    ) -> dict[str, Requeued | NotRequeued]:
        """Queue requests again that have failed or ended without a start; execution -> what came of it.

        Args:
            now: seconds since the epoch.
            start_before: their new deadline, as in a request and in seconds since the epoch. None: they have none. A
                request that was too late needs one.
        """
        outcomes: dict[str, Requeued | NotRequeued] = {}
        order = {name: at for at, name in enumerate(executions)}
        for names in batched(order, MAX_READS, strict=False):
            rows = self._read(process, names)
            due: list[Item] = []
            for name in names:
                if reason := _not_redriven_because(rows.get(name, {}), start_before):
                    outcomes[name] = NotRequeued(reason, rows.get(name, {}).get("state", {}).get("S"))
                else:
                    due.append(rows[name])
            for batch in batched(due, MAX_REDRIVES, strict=False):
                outcomes |= self._redrive(list(batch), order, now, start_before)
        return outcomes

    def _redrive(
        self, rows: list[Item], order: Mapping[str, int], now: float, start_before: tuple[str, float] | None
    ) -> dict[str, Requeued | NotRequeued]:
        """Redrive rows in one transaction. One that has changed since the read is left, and the rest tried again."""
        outcomes: dict[str, Requeued | NotRequeued] = {}
        pairs: list[tuple[Item, Item]] = []
        # A transaction has one operation on an item. The attempts of several callers with one request id have the same
        # next one, and that of an earlier attempt may have been added by its sender.
        taken = {row["execution"]["S"] for row in rows}
        for row in rows:
            rank = [*PRIORITIES].index(row["priority"]["S"])
            place = place_of(rank, now, str(order[row["execution"]["S"]]), key_of(row["placed"]["S"]))
            new = _next_attempt(row, place, now, start_before, is_redriven=True)
            if new["execution"]["S"] in taken:
                outcomes[row["execution"]["S"]] = NotRequeued(NEXT_EXISTS, row["state"]["S"])
            else:
                taken.add(new["execution"]["S"])
                pairs.append((row, new))
        while pairs:
            parts = [self._ended(row, "REDRIVEN", now) for row, _ in pairs] + [self._added(new) for _, new in pairs]
            refused = transact(self._dynamodb, parts)
            if not refused:
                return outcomes | {row["execution"]["S"]: Requeued(new["execution"]["S"]) for row, new in pairs}
            left = []
            for (row, new), ended, added in zip(pairs, refused, refused[len(pairs) :], strict=False):
                if ended.code == added.code == "None":
                    left.append((row, new))
                    continue
                reason = NEXT_EXISTS if added.code != "None" else "it has changed meanwhile"
                outcomes[row["execution"]["S"]] = NotRequeued(reason, row["state"]["S"])
            pairs = left
        return outcomes

    def discard(self, process: str, execution: str) -> bool:
        """Remove the content of a failure, and it from the list; False if it is none any more, or is not published."""
        names = {"#open": "open"}
        return self._table.update((process, execution), DISCARD_UPDATE, DISCARD_CONDITION, None, names).held

    def _read(self, process: str, executions: Sequence[str]) -> dict[str, Item]:
        """Execution -> its row, read consistently."""
        rows: dict[str, Item] = {}
        keys: Sequence[Mapping[str, Any]] = [self._table.key((process, name)) for name in executions]
        while keys:  # DynamoDB leaves keys unprocessed under load (API Reference, BatchGetItem)
            asked: Any = {self._table.name: {"Keys": keys, **_READ}}
            answer = self._dynamodb.batch_get_item(RequestItems=asked)
            rows |= {row["execution"]["S"]: row for row in answer["Responses"].get(self._table.name, [])}
            unread: Mapping[str, Any] = answer.get("UnprocessedKeys", {})
            keys = unread[self._table.name]["Keys"] if unread else []
        return rows

    def _ended(self, row: Item, end: State, now: float) -> Any:
        never_started = row["state"]["S"] in ENDED_WITHOUT_START
        kept = max(self._retention, NAME_SECONDS) if never_started else self._retention
        values: Item = {":end": {"S": end}, ":seen": row["state"], ":expires": number(int(now + kept))}
        names = {"#state": "state", "#open": "open"}
        update, condition = REDRIVEN_UPDATE, REDRIVEN_CONDITION
        if end == "RETURNED":
            update, condition = RETURNED_UPDATE, RETURNED_CONDITION
            values[":now"] = number(now)
        key = row["process_name"]["S"], row["execution"]["S"]
        return self._table.update_part(key, update, condition, values, names)

    def _added(self, row: Item) -> Any:
        return self._table.put_part(row, "attribute_not_exists(execution)")

    def _no_holder(self, process: str, execution: str, after: int) -> Any:
        """The part of the transaction by which no plan that was made before it can be granted."""
        if not after:  # the process was removed: the next attempt is rejected
            return self._slots.check_part(process, "attribute_not_exists(process_name)")
        values = {":one": number(1), ":grants": number(after - 1)}
        return self._slots.update_part(process, NO_HOLDER_UPDATE, NO_HOLDER_CONDITION, values, {"#me": execution})


def _not_redriven_because(row: Item, start_before: tuple[str, float] | None) -> str:
    """Why a request cannot be redriven; empty if it can."""
    if not row:
        return "it has no row"
    state = row["state"]["S"]
    if state not in ("FAILED", *ENDED_WITHOUT_START):
        return f"it is {state}"
    if state == "TOO_LATE" and start_before is None:
        return "its start_before has passed: state a new one"
    return _kept_because(row)


def _kept_because(row: Item) -> str:
    if "open" in row:
        return "its end is not published yet: try again in a minute"
    return "" if "body" in row else "its row has no content: it was discarded, or too large, or used another one's id"


def _next_attempt(
    row: Item, place: str, now: float, start_before: tuple[str, float] | None = None, *, is_redriven: bool = False
) -> Item:
    """The row of the next attempt of a request. One whose end was published has no task token, and so no caller."""
    fields = json.loads(row["body"]["S"])
    attempt = fields["attempt"] = int(row["attempt"]["N"]) + 1
    deadlines = [float(row["start_before"]["N"])] if not is_redriven and "start_before" in row else []
    if is_redriven:
        fields.pop("start_before", None)
    if start_before:
        fields["start_before"], deadlines = start_before[0], [start_before[1]]
    token = Attributes(row).text("task_token", "")
    if not token:
        fields.pop("caller", None)
    kept = (*_KEPT, "task_token") if token else _KEPT
    name = execution_name(row["process_name"]["S"], row["request_id"]["S"], attempt, caller_of(token))
    again: Item = {name: row[name] for name in kept if name in row} | {
        "execution": {"S": name},
        "state": {"S": "QUEUED"},
        "attempt": number(attempt),
        "body": {"S": encode(fields, sort_keys=True)},
        "sent": number(now),
        "place": {"S": place},
        "placed": {"S": place},
        "open": number(now),
    }
    if deadlines:
        again["start_before"] = number(deadlines[0])
    if "skips" in row:
        deadlines.append(now)
    return again | ({"deadline": number(min(deadlines))} if deadlines else {})
