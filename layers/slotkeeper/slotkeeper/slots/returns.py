"""Queues a request again, as its next attempt: one transaction ends the row of the attempt before it.

RETURNED   its workflow has not confirmed its slot, or a manual redrive of it has found none: it has started no
           work. The next attempt has the old place.
REDRIVEN   it has failed, or ended without a start, and an operator wants it to run. The next attempt is placed as
           if it was sent now.

Only a caller without an answer waits for the next attempt. For a caller that has its answer, the workflow of the next
attempt would find that none waits, and start nothing: that attempt has no caller.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Attributes, Item, Table, number, transact
from slotkeeper.schema import encode
from slotkeeper.slots.request import PRIORITIES, caller_of, execution_name
from slotkeeper.slots.request_table import ENDED_WITHOUT_START, RETENTION_SECONDS, State, place_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

REQUEUED_UPDATE = "SET #state = :end, ended = :now, expires = :expires REMOVE place, deadline, #open"
REQUEUED_CONDITION = "#state = :seen"
# Each write after which a plan may be wrong changes `grants`. The value that it had is the time from which the order of
# the next attempt counts.
NO_HOLDER_UPDATE = "SET grants = grants + :one"
NO_HOLDER_CONDITION = "attribute_not_exists(holders.#me) AND grants = :grants"
# Of a busy process, whose `grants` changes between the read and the transaction.
MAX_TRIES = 20
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
        holds_slot: whether only its slot, which must be freed first, prevents it.
    """

    reason: str
    state: State | None = None
    holds_slot: bool = False


class Requeues:
    """Queues requests again. Errors of DynamoDB pass through as ClientError or BotoCoreError."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str, slot_table_name: str) -> None:
        self._dynamodb = dynamodb
        self._table = Table(dynamodb, table_name, "process_name", "execution")
        self._slots = Table(dynamodb, slot_table_name, "process_name")

    def give_back(
        self, process: str, execution: str, now: float, *, is_answered: bool = False
    ) -> Requeued | NotRequeued:
        """Queue a request again whose execution holds no slot, and has started no work. Safe to repeat.

        Args:
            now: seconds since the epoch.
            is_answered: whether its caller has its answer, from an end before a manual redrive.
        """
        for _ in range(MAX_TRIES):
            row = self._table.read((process, execution))
            state = row.get("state", {}).get("S")
            if state not in ("QUEUED", "STARTED", "FAILED"):
                return NotRequeued("it has no row, or has ended otherwise", state)
            slots = self._slots.read(process)
            if execution in slots.get("holders", {}).get("M", {}):
                return NotRequeued("it holds a slot", state, holds_slot=True)
            after = int(slots["grants"]["N"]) + 1 if slots else 0
            again = _next_attempt(row, row["placed"]["S"], now, waits=not is_answered) | {
                "put_back": number(after),
                "sent": row["sent"],
            }
            end: State = "REDRIVEN" if state == "FAILED" else "RETURNED"
            parts = [self._ended(row, end, now), self._added(again), self._no_holder(process, execution, after)]
            refused = transact(self._dynamodb, parts)
            if not refused:
                return Requeued(again["execution"]["S"])
            if refused[1].code != "None":
                return NotRequeued("its next attempt exists", state)
        raise TimeoutError(f"the item of process {process!r} changed during {MAX_TRIES} transactions in a row")

    def redrive(
        self, process: str, execution: str, now: float, start_before: tuple[str, float] | None = None
    ) -> Requeued | NotRequeued:
        """Queue a request again that has failed or ended without a start.

        Args:
            now: seconds since the epoch.
            start_before: its new deadline, as in the request and in seconds since the epoch. None: it has none. A
                request that was too late needs one.
        """
        row = self._table.read((process, execution))
        state = row.get("state", {}).get("S")
        if state not in ("FAILED", *ENDED_WITHOUT_START):
            return NotRequeued("it has no row" if state is None else f"it is {state}", state)
        if "body" not in row:
            return NotRequeued("its row has no content: it was too large, or used the id of another request", state)
        if state == "TOO_LATE" and start_before is None:
            return NotRequeued("its start_before has passed: state a new one", state)
        rank = [*PRIORITIES].index(row["priority"]["S"])
        again = _next_attempt(row, place_of(rank, now, "0"), now, start_before, keep_deadline=False)
        refused = transact(self._dynamodb, [self._ended(row, "REDRIVEN", now), self._added(again)])
        if not refused:
            return Requeued(again["execution"]["S"])
        reason = "its next attempt exists" if refused[1].code != "None" else "it has changed meanwhile"
        return NotRequeued(reason, state)

    def _ended(self, row: Item, end: State, now: float) -> Any:
        values: Item = {
            ":end": {"S": end},
            ":seen": row["state"],
            ":now": number(now),
            ":expires": number(int(now) + RETENTION_SECONDS),
        }
        return {
            "Update": {
                "TableName": self._table.name,
                "Key": {name: row[name] for name in ("process_name", "execution")},
                "UpdateExpression": REQUEUED_UPDATE,
                "ConditionExpression": REQUEUED_CONDITION,
                "ExpressionAttributeNames": {"#state": "state", "#open": "open"},
                "ExpressionAttributeValues": values,
            }
        }

    def _added(self, row: Item) -> Any:
        condition = "attribute_not_exists(execution)"
        return {"Put": {"TableName": self._table.name, "Item": row, "ConditionExpression": condition}}

    def _no_holder(self, process: str, execution: str, after: int) -> Any:
        """The part of the transaction by which no plan that was made before it can be granted."""
        key = self._slots.key(process)
        if not after:  # the process was removed: the next attempt is rejected
            condition = "attribute_not_exists(process_name)"
            return {"ConditionCheck": {"TableName": self._slots.name, "Key": key, "ConditionExpression": condition}}
        return {
            "Update": {
                "TableName": self._slots.name,
                "Key": key,
                "UpdateExpression": NO_HOLDER_UPDATE,
                "ConditionExpression": NO_HOLDER_CONDITION,
                "ExpressionAttributeNames": {"#me": execution},
                "ExpressionAttributeValues": {":one": number(1), ":grants": number(after - 1)},
            }
        }


def _next_attempt(
    row: Item,
    place: str,
    now: float,
    start_before: tuple[str, float] | None = None,
    *,
    keep_deadline: bool = True,
    waits: bool = False,
) -> Item:
    """The row of the next attempt of a request. `waits`: whether its caller waits for the answer, if it has one.

    That of a request whose end is not published does.
    """
    fields = json.loads(row["body"]["S"])
    attempt = fields["attempt"] = int(row["attempt"]["N"]) + 1
    deadlines = [float(row["start_before"]["N"])] if keep_deadline and "start_before" in row else []
    if not keep_deadline:
        fields.pop("start_before", None)
    if start_before:
        fields["start_before"], deadlines = start_before[0], [start_before[1]]
    token = Attributes(row).text("task_token", "") if waits or "open" in row else ""
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
