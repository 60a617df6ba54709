"""DynamoDB as a pure function: tables and a request give tables and an answer.

    state = tables(slots=[{"process_name": {"S": "p"}, ...}], settled=[])
    state, answer = perform(state, "update_item", freeze({"TableName": "slots", "Key": ..., ...}))
    item_of(state, "slots", "p")

Every read is consistent. An error is an answer. A malformed expression, or a parameter that is not simulated, raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.simulation.aws.attributes import Invalid, canonical_map
from tests.simulation.aws.conditions import Condition, condition
from tests.simulation.aws.expressions import ExpressionError, Paths, Scope, Used, projected, projection
from tests.simulation.aws.updates import Update, update
from tests.simulation.frozen import Record, freeze, record, thaw
from tests.simulation.transcript import Answer

# Table -> its key attribute, a string.
KEY_ATTRIBUTES = {
    "slots": "process_name",
    "settled": "execution_name",
    "tokens": "token_name",
    "ledger": "request_id",
    "signatures": "signature",
    "downstreams": "downstream",
    "effects": "request_id",  # of the harness of the worker (tests/unit)
}

_LONGEST_BATCH = 100  # Amazon DynamoDB API Reference, BatchGetItem


def tables(**items: Iterable[Mapping[str, Any]]) -> Record:
    """Tables of KEY_ATTRIBUTES with these items, in boto3's low-level form."""
    return record({table: _keyed(table, [freeze(item) for item in listed]) for table, listed in items.items()})


def item_of(state: Record, table: str, key: str) -> dict[str, Any] | None:
    """A copy of an item in boto3's low-level form."""
    item: dict[str, Any] | None = thaw(state[table].get(key))
    return item


def perform(state: Record, operation: str, parameters: Record) -> tuple[Record, Answer]:
    """One atomic operation: the tables after it, and the answer.

    The answer to a failed condition contains the current Item, if the request asks for it and there is one.

    Raises:
        ExpressionError: see there; or a parameter or operation is not simulated.
    """
    if operation not in _OPERATIONS:
        raise ExpressionError(f"{operation} of DynamoDB is not simulated")
    known, work = _OPERATIONS[operation]
    for name in parameters.fields:
        if name not in known:
            raise ExpressionError(f"{name} of {operation} is not simulated")
    try:
        if "TableName" in parameters and parameters["TableName"] not in state:
            return state, Answer(error="ResourceNotFoundException")
        return work(state, parameters)
    except Invalid:
        return state, Answer(error="ValidationException")


def _get_item(state: Record, request: Record) -> tuple[Record, Answer]:
    table = request["TableName"]
    expression = _Expressions(request)
    item = state[table].get(_text_of(table, request["Key"]))
    if item is None:
        return state, Answer(record({}))
    return state, Answer(record({"Item": expression.projected(item)}))


def _batch_get_item(state: Record, request: Record) -> tuple[Record, Answer]:
    responses = {}
    total = 0
    for table, wanted in request["RequestItems"].fields.items():
        if table not in state:
            return state, Answer(error="ResourceNotFoundException")
        expression = _Expressions(wanted)
        keys = [_text_of(table, key) for key in wanted["Keys"]]
        total += len(keys)
        if not keys or len(set(keys)) < len(keys) or total > _LONGEST_BATCH:
            raise Invalid("Provided list of item keys is empty, too long or contains duplicates")
        responses[table] = tuple(expression.projected(state[table][key]) for key in keys if key in state[table])
    return state, Answer(record({"Responses": record(responses), "UnprocessedKeys": record({})}))


def _scan(state: Record, request: Record) -> tuple[Record, Answer]:
    items = tuple(state[request["TableName"]].fields.values())
    # A filter has the syntax of a condition.
    expression = _Expressions(request.with_fields(ConditionExpression=request.get("FilterExpression")))
    matching = tuple(item for item in items if expression.condition.holds(expression.scope(item)))
    return state, Answer(record({"Items": matching, "Count": len(matching), "ScannedCount": len(items)}))


def _put_item(state: Record, request: Record) -> tuple[Record, Answer]:
    table = request["TableName"]
    expression = _Expressions(request)
    new = canonical_map(request["Item"])
    key = _text_of(table, record({name: new[name] for name in (KEY_ATTRIBUTES[table],) if name in new}))
    return _write(state, request, key, expression, lambda _: new)


def _delete_item(state: Record, request: Record) -> tuple[Record, Answer]:
    expression = _Expressions(request)
    return _write(state, request, _text_of(request["TableName"], request["Key"]), expression, lambda _: None)


def _update_item(state: Record, request: Record) -> tuple[Record, Answer]:
    table = request["TableName"]
    key = _text_of(table, request["Key"])
    expression = _Expressions(request)
    for path in expression.update.paths:
        if path.names(expression.scope(None))[0] == KEY_ATTRIBUTES[table]:
            raise Invalid("Cannot update attribute. This attribute is part of the key")

    def change(old: Record | None) -> Record:
        return expression.update.apply(expression.scope(old or request["Key"]))

    return _write(state, request, key, expression, change)


_Change = Callable[[Record | None], Record | None]


def _write(
    state: Record, request: Record, key: str, expression: _Expressions, change: _Change
) -> tuple[Record, Answer]:
    """Apply `change` to the item if the request's condition holds."""
    table = request["TableName"]
    old: Record | None = state[table].get(key)
    if not expression.condition.holds(expression.scope(old)):
        returned = old if request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" else None
        return state, Answer(record({"Item": returned}) if returned else None, "ConditionalCheckFailedException")
    new = change(old)
    items = {name: item for name, item in {**state[table].fields, key: new}.items() if item is not None}
    attributes = _returned(request.get("ReturnValues", "NONE"), expression, old, new)
    answer = record({"Attributes": attributes}) if attributes is not None and attributes.fields else record({})
    return record({**state.fields, table: record(items)}), Answer(answer)


def _returned(wanted: str, expression: _Expressions, old: Record | None, new: Record | None) -> Record | None:
    when, _, which = wanted.rpartition("_")
    item = {"": None, "OLD": old, "NEW": new}[which if when else ""]
    if item is None or when == "ALL":
        return item
    return projected(expression.update.paths, expression.scope(item))


def _text_of(table: str, key: Record) -> str:
    """The text of a key. Raises Invalid."""
    value = key.get(KEY_ATTRIBUTES[table])
    if len(key.fields) != 1 or value is None or not value.get("S"):
        raise Invalid("The provided key element does not match the schema")
    text: str = value["S"]
    return text


def _keyed(table: str, items: list[Record]) -> Record:
    attribute = KEY_ATTRIBUTES[table]
    return record({item[attribute]["S"]: canonical_map(item) for item in items})


class _Expressions:
    """The expressions of a request with their names and values, after all checks that need no item.

    Raises:
        Invalid: a name or value is not used, or an operand is of the wrong type.
        ExpressionError: a name or value is not defined.
    """

    def __init__(self, request: Record) -> None:
        texts = (request.get(f"{kind}Expression") for kind in ("Condition", "Update", "Projection"))
        condition_text, update_text, projection_text = texts
        self.condition = condition(condition_text) if condition_text else Condition(Used())
        self.update = update(update_text) if update_text else Update(Used(), [])
        self._projection = projection(projection_text) if projection_text else Paths(Used(), [])
        names, values = (request.get(f"ExpressionAttribute{kind}") for kind in ("Names", "Values"))
        self._names = names or record({})
        self._values = canonical_map(values or record({}))
        used = [parsed.used for parsed in (self.condition, self.update, self._projection)]
        self._check_placeholders({placeholder for one in used for placeholder in one.placeholders})
        if any(given is not None and not given.fields for given in (names, values)):
            raise Invalid("ExpressionAttributeNames and ExpressionAttributeValues must not be empty")
        without_item = self.scope(None)
        for check in (check for one in used for check in one.checks):
            check(without_item)

    def _check_placeholders(self, used: set[str]) -> None:
        given = {*self._names.fields, *self._values.fields}
        if used - given:
            raise ExpressionError(f"{sorted(used - given)} is used in an expression and not defined")
        if given - used:
            raise Invalid("Value provided in ExpressionAttributeNames or -Values unused in expressions")

    def scope(self, item: Record | None) -> Scope:
        return Scope(item or record({}), self._names, self._values)

    def projected(self, item: Record) -> Record:
        return projected(self._projection.paths, self.scope(item)) if self._projection.paths else item


_EXPRESSION = {"TableName", "ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
_WRITE = _EXPRESSION | {"ReturnValues", "ReturnValuesOnConditionCheckFailure"}
_READ = {"TableName", "ConsistentRead", "ProjectionExpression", "ExpressionAttributeNames"}

_Work = Callable[[Record, Record], tuple[Record, Answer]]
_OPERATIONS: dict[str, tuple[set[str], _Work]] = {
    "get_item": (_READ | {"Key"}, _get_item),
    "batch_get_item": ({"RequestItems"}, _batch_get_item),
    "scan": (
        {"TableName", "ConsistentRead", "FilterExpression"} | {"ExpressionAttributeNames", "ExpressionAttributeValues"},
        _scan,
    ),
    "put_item": (_WRITE | {"Item"}, _put_item),
    "delete_item": (_WRITE | {"Key"}, _delete_item),
    "update_item": (_WRITE | {"Key", "UpdateExpression"}, _update_item),
}
