"""The health of each downstream in DynamoDB: one item per downstream, one conditional write per change.

    downstream   S, key: the downstream's name
    version      N: increased by each write
    writer       S: the token of the last write, by which its writer recognizes it after a lost answer
    health       S: the fields of health.Health, JSON
    expires_at   N: when DynamoDB may delete the item, epoch seconds; absent while an operator's opening or limit holds

A change is computed from the item as it was read, and written on the condition that its version is still the same. If
another container has written in between, the change is computed again from that item. So all conditions of
rules.py hold for the item at the time of the write, although they compare numbers and count the entries of a map.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Attributes, Item, MalformedAttribute, Table
from slotkeeper.retry.downstream.health import Change, Health, State

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Each lost round means that another container's write succeeded, so a round is lost at most once per write under way.
MAX_ROUNDS = 30
# A container that has lost this many rounds pauses before the next one, for a random time of up to PAUSE_SECONDS per
# round. Without pauses, some of 40 containers that write at the same instant would lose all their rounds.
ROUNDS_WITHOUT_PAUSE = 5
PAUSE_SECONDS = 0.02
DAY = 86_400


# An item that was not written for so long is deleted, and its downstream then begins with a closed breaker. The report
# shows no older changes.
KEPT_DAYS = 90
# After so many items no further page is read: with 20 changes that have reasons of 200 characters, these are 16 MB.
MOST_READ = 2000


class MalformedHealth(Exception):
    """The item does not have the documented format. The message names the item and the attribute."""


class NotRead(MalformedHealth):
    """The table has more items than are read. It is found under the empty name, which no downstream has."""


class TooManyWriters(Exception):
    """Other containers have changed the item in each of MAX_ROUNDS rounds. Nothing was changed."""


def _pause(most: float) -> None:
    time.sleep(random.uniform(0, most))  # noqa: S311 - no secret


class DownstreamTable:
    """The items. Errors of DynamoDB itself pass through as ClientError or BotoCoreError.

    Args:
        pause: waits for a random time of at most so many seconds.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str, *, pause: Callable[[float], None] = _pause) -> None:
        self._table = Table(dynamodb, table_name, "downstream")
        self._pause = pause

    def read(self, downstream: str) -> Health:
        """Read the health consistently; without an item, that of a new downstream. Raises MalformedHealth."""
        return _parse(downstream, self._table.read(downstream))

    def read_all(self) -> dict[str, Health | MalformedHealth]:
        """Read the health of the downstreams, by name: about MOST_READ, and NotRead if there are more.

        A malformed item does not prevent reading the others.
        """
        pages = self._table.dynamodb.get_paginator("scan").paginate(TableName=self._table.name, ConsistentRead=True)
        found: dict[str, Health | MalformedHealth] = {}
        for page in pages:
            found |= {item["downstream"]["S"]: _parse_or_report(item) for item in page["Items"]}
            if len(found) >= MOST_READ and "LastEvaluatedKey" in page:
                found[""] = NotRead(
                    f"the downstreams after the first {len(found):,} of {self._table.name} are not read"
                )
                break
        return found

    def change[R](self, downstream: str, decide: Callable[[Health], tuple[Health, R]]) -> tuple[Health, Health, R]:
        """Replace the health by a decision about it; return the health before and after, and the decision's result.

        Args:
            decide: returns the new health and a result. It is called again if another container has changed the item.
                If it returns an equal health, nothing is written.

        Raises:
            MalformedHealth: the item cannot be read.
            TooManyWriters: see there.
        """
        item = self._table.read(downstream)
        for lost in range(MAX_ROUNDS):
            if lost >= ROUNDS_WITHOUT_PAUSE:
                self._pause(PAUSE_SECONDS * lost)
                item = self._table.read(downstream)
            before = _parse(downstream, item)
            after, result = decide(before)
            if after == before:
                return before, after, result
            version, writer = int(item["version"]["N"]) if item else 0, uuid.uuid4().hex
            new = {
                "downstream": {"S": downstream},
                "version": {"N": str(version + 1)},
                "writer": {"S": writer},
                "health": {"S": _to_json(after)},
                **_expiry(after),
            }
            seen = {":seen": {"N": str(version)}}
            write = (
                self._table.put(new, "version = :seen", seen)
                if item
                else self._table.put(new, "attribute_not_exists(downstream)")
            )
            # Some local engines never return the item of a refused write.
            item = write.item or ({} if write.held else self._table.read(downstream))
            if write.held or item.get("writer") == {"S": writer}:
                return before, after, result
        raise TooManyWriters(f"the state of downstream {downstream!r} was changed in each of {MAX_ROUNDS} rounds")


def _expiry(health: Health) -> Item:
    """What an operator has set never expires."""
    if health.forced or health.limit_set is not None:
        return {}
    return {"expires_at": {"N": str((int(time.time()) // DAY + KEPT_DAYS) * DAY)}}


def _parse(downstream: str, item: Item) -> Health:
    if not item:
        return Health()
    row = Attributes(item)
    try:
        row.whole("version"), row.text("writer")
        return row.parsed("health", _health)
    except MalformedAttribute as error:
        raise MalformedHealth(
            f"item {downstream!r} of the downstream table: {error.attribute} is missing or not of its documented type. "
            "Delete the item to start with a closed breaker"
        ) from None


def _parse_or_report(item: Item) -> Health | MalformedHealth:
    try:
        return _parse(item["downstream"]["S"], item)
    except MalformedHealth as error:
        return error


def _to_json(health: Health) -> str:
    changes = [vars(change) for change in health.changes]
    return json.dumps({**vars(health), "permits": dict(health.permits), "changes": changes}, separators=(",", ":"))


def _health(text: str) -> Health:
    """Decode the health. During a deployment, another version may have written fields that this one does not have."""
    given: dict[str, Any] = json.loads(text)
    fields = _known(Health, given)
    for name, default in vars(Health()).items():
        if type(default) in (int, float) and not isinstance(fields.get(name, default), int | float):
            raise TypeError(f"{name} must be a number")
    if not isinstance(fields.get("outcomes", ""), str):
        raise TypeError("outcomes must be text")
    fields["state"] = State(given["state"])
    fields["changes"] = tuple(Change(**_known(Change, change)) for change in given["changes"])
    fields["permits"] = {code: (float(until), int(epoch)) for code, (until, epoch) in dict(given["permits"]).items()}
    return Health(**fields)


def _known(kind: type[Health | Change], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in kind.__dataclass_fields__ if name in given}
