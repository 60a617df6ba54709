"""The simulation's DynamoDB tables, called as botocore calls the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore import xform_name

from tests.simulation.aws import dynamodb
from tests.simulation.frozen import freeze, thaw

SLOTS, TOKENS, SEEN, LEDGER = "slots", "tokens", "signatures", "ledger"
REQUESTS, DOWNSTREAMS = "requests", "downstreams"

Item = dict[str, Any]


class Refusal(Exception):
    """An error answer of the service."""

    def __init__(self, code: str, **more: Any) -> None:
        super().__init__(code)
        self.answer = {"Error": {"Code": code, "Message": f"refused with {code}"}, **more}


class Tables:
    """Each table's items by their keys."""

    def __init__(self) -> None:
        self._state = dynamodb.tables(**{table: [] for table in dynamodb.KEY_ATTRIBUTES})

    @classmethod
    def joined(cls, parts: Mapping[str, Tables]) -> Tables:
        """One object with the items of each table, which a transaction may write together."""
        joined = cls()
        for table, part in parts.items():
            joined.take(part, table)
        return joined

    def take(self, other: Tables, table: str) -> None:
        """Replace the items of a table by those of another object."""
        self._state = self._state.with_fields(**{table: other._state[table]})

    def __getstate__(self) -> Item:
        state: Item = thaw(self._state)
        return state

    def __setstate__(self, state: Item) -> None:
        self._state = freeze(state)

    def put(self, table: str, item: Item) -> Item:
        """Write any item, and return it as DynamoDB stores it."""
        self.perform("PutItem", {"TableName": table, "Item": item})
        names = (dynamodb.KEY_ATTRIBUTES[table], dynamodb.SORT_KEYS.get(table))
        return self.item(table, "\n".join(item[name]["S"] for name in names if name))

    def item(self, table: str, key: str) -> Item:
        """The item, or an empty one. Two key attributes are separated by a line feed."""
        return dynamodb.item_of(self._state, table, key) or {}

    def items(self, table: str) -> list[Item]:
        return [thaw(item) for item in self._state[table].fields.values()]

    def perform(self, operation: str, parameters: Item) -> Item:
        """The answer to an operation. Raises Refusal."""
        self._state, answer = dynamodb.perform(self._state, xform_name(operation), freeze(parameters))
        if answer.error:
            raise Refusal(answer.error, **(thaw(answer.value) or {}))
        result: Item = thaw(answer.value)
        return result
