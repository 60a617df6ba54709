"""DynamoDB's tables in the process: moto's own reading of the expressions, without its HTTP.

An update either is made or leaves the item as it was. Where moto trips over an operand of another type, the answer is
DynamoDB Local's: a condition does not hold, and an update is not valid.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.dynamodb.comparisons import create_condition_expression_parser
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType

SLOTS, SETTLED, TOKENS, SEEN, LEDGER = "slots", "settled", "tokens", "seen", "ledger"
KEYS = {
    SLOTS: "process_name",
    SETTLED: "execution_name",
    TOKENS: "token_name",
    SEEN: "signature",
    LEDGER: "request_id",
}
_BROKEN_BY_AN_OPERAND = (JsonRESTError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

Item = dict[str, Any]


class Refusal(Exception):
    """An error that the service answers."""

    def __init__(self, code: str, **told: Any) -> None:
        super().__init__(code)
        self.told = {"Error": {"Code": code, "Message": f"refused with {code}"}, **told}


class Tables:
    """Each table's items by their keys."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Item]] = {table: {} for table in KEYS}
        self._moto = DynamoDBBackend("us-east-1", "123456789012")
        for table, key in KEYS.items():
            self._moto.create_table(
                table,
                [{"AttributeName": key, "KeyType": "HASH"}],
                None,
                [{"AttributeName": key, "AttributeType": "S"}],
                *([], [], None, "PAY_PER_REQUEST", None, [], False, None),
            )

    def put(self, table: str, item: Item) -> None:
        """An item as somebody else may have written it."""
        self._items[table][item[KEYS[table]]["S"]] = copy.deepcopy(item)

    def item(self, table: str, key: str) -> Item:
        return copy.deepcopy(self._items[table].get(key, {}))

    def items(self, table: str) -> list[Item]:
        return copy.deepcopy(list(self._items[table].values()))

    def get_item(self, told: Item) -> Item:
        found = self.item(told["TableName"], _key(told))
        return {"Item": found} if found else {}

    def update_item(self, told: Item) -> Item:
        return {"Attributes": self._write(told, _key(told), told["UpdateExpression"])}

    def put_item(self, told: Item) -> Item:
        key = _key(told | {"Key": told["Item"]})
        self._write(told, key, "")
        self.put(told["TableName"], told["Item"])
        return {}

    def scan(self, told: Item) -> Item:
        return {"Items": self.items(told["TableName"])}

    def batch_get_item(self, told: Item) -> Item:
        return {
            "Responses": {
                table: [found for key in asked["Keys"] if (found := self.item(table, key[KEYS[table]]["S"]))]
                for table, asked in told["RequestItems"].items()
            }
        }

    def _write(self, told: Item, key: str, update: str) -> Item:
        table, values = told["TableName"], told.get("ExpressionAttributeValues", {})
        _check_numbers([values, told.get("Item", {})])
        before = self.item(table, key)
        moto = self._moto.get_table(table)
        moto.items.clear()
        names = told.get("ExpressionAttributeNames", {})
        condition = create_condition_expression_parser(told.get("ConditionExpression"), names, _marked(values)).parse()
        if before:
            moto.put_item(_marked(before), overwrite=True)
        try:
            holds = condition.expr(moto.get_item(DynamoType({"S": key})))
        except _BROKEN_BY_AN_OPERAND:
            holds = False
        if before:
            moto.put_item(copy.deepcopy(before), overwrite=True)
        if not holds:
            item = before and told.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            raise Refusal("ConditionalCheckFailedException", **({"Item": before} if item else {}))
        if not update:
            return {}
        _check_paths(update, names, before)
        try:
            made = self._moto.update_item(table, {KEYS[table]: {"S": key}}, update, names, copy.deepcopy(values))
        except _BROKEN_BY_AN_OPERAND:
            raise Refusal("ValidationException") from None
        after: Item = made.to_json()["Attributes"]
        self.put(table, after)
        return copy.deepcopy(after)


def _check_paths(update: str, names: dict[str, str], item: Item) -> None:
    """A path through anything but a map is no place to write to. moto writes nothing there, and says nothing."""
    for path in re.findall(r"[#\w]+(?:\.[#\w]+)+", update):
        inside = item
        for part in path.split(".")[:-1]:
            if "M" not in inside.get(names.get(part, part), {}):
                raise Refusal("ValidationException")
            inside = inside[names.get(part, part)]["M"]


def _marked(value: Any) -> Any:
    """With texts in place of booleans, which moto would compare with numbers: False is below 1 to Python. And with maps
    in place of lists, in which moto trips over a path by name that just leads nowhere."""
    if isinstance(value, dict):
        if isinstance(value.get("L"), list):
            return {"M": {f"element {n}": _marked(inner) for n, inner in enumerate(value["L"])}}
        if "BOOL" in value:
            return {"S": f"boolean {value['BOOL']}"}
        return {name: _marked(inner) for name, inner in value.items()}
    return [_marked(inner) for inner in value] if isinstance(value, list) else value


def _key(told: Item) -> str:
    key: str = told["Key"][KEYS[told["TableName"]]]["S"]
    if not 1 <= len(key.encode()) <= 2048:  # DynamoDB guide, "Constraints in Amazon DynamoDB", partition key length
        raise Refusal("ValidationException")
    return key


def _check_numbers(value: Any) -> None:
    """DynamoDB keeps 38 significant digits, and refuses more (its guide, "Constraints in Amazon DynamoDB")."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "N" and isinstance(inner, str):
                if len(re.sub(r"[-.]|E.*", "", inner).strip("0")) > 38:
                    raise Refusal("ValidationException")
            else:
                _check_numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_numbers(inner)
