"""DynamoDB as a pure function: tables and a request give tables and an answer.

    state = tables(slots=[{"process_name": {"S": "p"}, ...}], requests=[])
    state, answer = perform(state, "update_item", freeze({"TableName": "slots", "Key": ..., ...}))
    item_of(state, "slots", "p")

Every read is consistent; that of a global index may not ask for it. An error is an answer. A malformed expression, or
a parameter that is not simulated, raises.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from tests.simulation.account.tables import Index
from tests.simulation.aws.attributes import Invalid, canonical_map, item_bytes
from tests.simulation.aws.conditions import Condition, condition
from tests.simulation.aws.expressions import ExpressionError, Paths, Scope, Used, projected, projection
from tests.simulation.aws.updates import Update, update
from tests.simulation.frozen import Record, freeze, record, thaw
from tests.simulation.transcript import Answer

# Table -> its key attribute, a string.
KEY_ATTRIBUTES = {
    "requests": "process_name",
    "slots": "process_name",
    "settled": "execution_name",
    "tokens": "token_name",
    "ledger": "request_id",
    "signatures": "signature",
    "downstreams": "downstream",
    "effects": "request_id",  # of the harness of the worker (tests/unit)
}
# Table -> its sort key, a string, if it has one.
SORT_KEYS = {"requests": "execution"}
# What a history needs of a row, without its content.
_HISTORY = (
    *("state", "request_id", "attempt", "priority", "weight", "sent", "started", "placed"),
    *("granted", "put_back", "start_before", "skips", "code", "reason", "open"),
)
# Table -> its indexes.
INDEXES = {
    "requests": {
        "place": Index("place", "S", ("weight", "start_before", "skips", "request_id")),
        "deadline": Index("deadline", "N", ("place", "weight", "start_before", "skips")),
        "open": Index("open", "N", ("state", "request_id")),
        "ended": Index("ended", "N", (*_HISTORY, "failed")),
        "failed": Index("failed", "N", (*_HISTORY, "ended"), is_global=True),
        "request_id": Index("request_id", "S", ("attempt",), is_global=True, is_by_itself=True),
    }
}

_LONGEST_BATCH = 100  # Amazon DynamoDB API Reference, BatchGetItem
_LONGEST_TRANSACTION = 100  # Amazon DynamoDB API Reference, TransactWriteItems
_LARGEST_PAGE = 1_048_576  # bytes (Amazon DynamoDB API Reference, Query, LastEvaluatedKey)


def tables(**items: Iterable[Mapping[str, Any]]) -> Record:
    """Tables of KEY_ATTRIBUTES with these items, in boto3's low-level form."""
    return record({table: _keyed(table, [freeze(item) for item in listed]) for table, listed in items.items()})


def declare(table: str, key: str, sort_key: str = "", indexes: Mapping[str, Index] | None = None) -> None:
    """Add another table's name, keys and indexes to those that are known."""
    KEY_ATTRIBUTES[table] = key
    if sort_key:
        SORT_KEYS[table] = sort_key
    if indexes:
        INDEXES[table] = dict(indexes)


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


def conflict(operation: str, parameters: Record) -> Answer:
    """The answer to a write while a transaction writes its item, or to a transaction while one writes its last item.

    Source: Amazon DynamoDB Developer Guide, "DynamoDB Transactions: How it works", Transaction conflict handling.
    """
    if operation != "transact_write_items":
        return Answer(error="TransactionConflictException")
    reasons = ["None"] * (len(parameters["TransactItems"]) - 1) + ["TransactionConflict"]
    return Answer(freeze({"CancellationReasons": [{"Code": code} for code in reasons]}), "TransactionCanceledException")


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
    """A page of the table or of an index, in the order of the keys: DynamoDB's order is not known."""
    table = request["TableName"]
    expression = _Expressions(request.with_fields(ConditionExpression=request.get("FilterExpression")))
    items = list(state[table].fields.values())
    sort_key = INDEXES[table][request["IndexName"]].sort_key if "IndexName" in request else SORT_KEYS.get(table, "")
    return state, _page(request, items, sort_key, expression, expression.condition)


def _query(state: Record, request: Record) -> tuple[Record, Answer]:
    """A page of the table or of an index, in the order of the sort key."""
    table = request["TableName"]
    sort_key = INDEXES[table][request["IndexName"]].sort_key if "IndexName" in request else SORT_KEYS[table]
    given = {name: request.get(f"{name}Expression") for name in ("KeyCondition", "Filter")}
    both = " AND ".join(f"({text})" for text in given.values() if text)
    expression = _Expressions(request.with_fields(ConditionExpression=both))
    wanted, kept = (condition(text) if text else Condition(Used()) for text in given.values())
    items = [item for item in state[table].fields.values() if sort_key in item]
    items = [item for item in items if wanted.holds(expression.scope(item))]
    return state, _page(request, items, sort_key, expression, kept)


def _page(request: Record, items: list[Record], sort_key: str, expression: _Expressions, kept: Condition) -> Answer:
    """A page of items, or of those that an index contains. `Limit` and size count what is read before the filter."""
    table = request["TableName"]
    index = INDEXES[table][request["IndexName"]] if "IndexName" in request else None
    if index and index.is_global and request.get("ConsistentRead"):
        raise Invalid("Consistent reads are not supported on global secondary indexes")
    keys = {*_key_names(table), sort_key} - {""}
    if index:
        items = [_with_only(item, {*keys, *index.included}) for item in items if sort_key in item]
    is_forward = request.get("ScanIndexForward", True)
    items = sorted(items, key=lambda item: _order(table, item, sort_key), reverse=not is_forward)
    if start := request.get("ExclusiveStartKey"):
        last = _order(table, start, sort_key)
        passed = operator.gt if is_forward else operator.lt
        items = [item for item in items if passed(_order(table, item, sort_key), last)]
    page = _first_page(items, request.get("Limit", len(items)))
    matching = tuple(expression.projected(entry) for entry in page if kept.holds(expression.scope(entry)))
    answer = {"Items": matching, "Count": len(matching), "ScannedCount": len(page)}
    # A page that is full may be the last one, and has a key nevertheless (API Reference, Query, LastEvaluatedKey).
    if page and (len(page) < len(items) or len(page) == request.get("Limit")):
        answer["LastEvaluatedKey"] = _with_only(page[-1], keys)
    return Answer(record(answer))


def _with_only(item: Record, names: set[str]) -> Record:
    return item.without(*(item.fields.keys() - names))


def _first_page(entries: list[Record], limit: int) -> list[Record]:
    size = 0
    for number, entry in enumerate(entries[:limit]):
        size += item_bytes(entry)
        if number and size > _LARGEST_PAGE:
            return entries[:number]
    return entries[:limit]


def _order(table: str, item: Record, sort_key: str) -> tuple[Any, ...]:
    keys = tuple(item[name]["S"] for name in _key_names(table))
    if not sort_key:
        return keys
    ((kind, value),) = item[sort_key].fields.items()
    return (Decimal(value) if kind == "N" else value, keys)


def _transact_write_items(state: Record, request: Record) -> tuple[Record, Answer]:
    """All parts, or none with a reason for each (API Reference, TransactWriteItems)."""
    parts = [next(iter(part.fields.items())) for part in request["TransactItems"]]
    items = {(part["TableName"], _text_of(part["TableName"], _key_of(part))) for _, part in parts}
    if len(items) < len(parts) or not 0 < len(parts) <= _LONGEST_TRANSACTION:
        raise Invalid("A transaction has one to a hundred operations, each on another item")
    after, reasons = state, []
    for kind, part in parts:
        after, answer = _PARTS[kind](after, part)
        reason = answer.value.fields if answer.error and answer.value else {}
        reasons.append(record({"Code": "ConditionalCheckFailed" if answer.error else "None", **reason}))
    if all(reason["Code"] == "None" for reason in reasons):
        return after, Answer(record({}))
    return state, Answer(record({"CancellationReasons": tuple(reasons)}), "TransactionCanceledException")


def _check(state: Record, request: Record) -> tuple[Record, Answer]:
    """The condition of a transaction on an item that it does not write."""
    key = _text_of(request["TableName"], request["Key"])
    return _write(state, request, key, _Expressions(request), lambda old: old)


def _key_of(request: Record) -> Record:
    """The key of the item that a request writes."""
    item: Record = request.get("Key") or request["Item"]
    return _with_only(item, set(_key_names(request["TableName"])))


def _put_item(state: Record, request: Record) -> tuple[Record, Answer]:
    table = request["TableName"]
    expression = _Expressions(request)
    new = canonical_map(request["Item"])
    return _write(state, request, _text_of(table, _key_of(request)), expression, lambda _: new)


def _delete_item(state: Record, request: Record) -> tuple[Record, Answer]:
    expression = _Expressions(request)
    return _write(state, request, _text_of(request["TableName"], request["Key"]), expression, lambda _: None)


def _update_item(state: Record, request: Record) -> tuple[Record, Answer]:
    table = request["TableName"]
    key = _text_of(table, request["Key"])
    expression = _Expressions(request)
    for path in expression.update.paths:
        if path.names(expression.scope(None))[0] in _key_names(table):
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
        return state, Answer(_item_of_refusal(request, old), "ConditionalCheckFailedException")
    new = change(old)
    items = {name: item for name, item in {**state[table].fields, key: new}.items() if item is not None}
    attributes = _returned(request.get("ReturnValues", "NONE"), expression, old, new)
    answer = record({"Attributes": attributes}) if attributes is not None and attributes.fields else record({})
    return record({**state.fields, table: record(items)}), Answer(answer)


def _item_of_refusal(request: Record, item: Record | None) -> Record | None:
    """What the answer to a failed condition contains."""
    is_wanted = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
    return record({"Item": item}) if item and is_wanted else None


def _returned(wanted: str, expression: _Expressions, old: Record | None, new: Record | None) -> Record | None:
    when, _, which = wanted.rpartition("_")
    item = {"": None, "OLD": old, "NEW": new}[which if when else ""]
    if item is None or when == "ALL":
        return item
    return projected(expression.update.paths, expression.scope(item))


def _text_of(table: str, key: Record) -> str:
    """The text of a key, with a line feed between its parts. Raises Invalid."""
    values = [key.get(name) for name in _key_names(table)]
    if len(key.fields) != len(values) or not all(value is not None and value.get("S") for value in values):
        raise Invalid("The provided key element does not match the schema")
    return "\n".join(value["S"] for value in values)


def _key_names(table: str) -> tuple[str, ...]:
    sort_key = SORT_KEYS.get(table)
    return (KEY_ATTRIBUTES[table], sort_key) if sort_key else (KEY_ATTRIBUTES[table],)


def _keyed(table: str, items: list[Record]) -> Record:
    names = _key_names(table)
    return record({"\n".join(item[name]["S"] for name in names): canonical_map(item) for item in items})


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


_PARTS = {"ConditionCheck": _check, "Put": _put_item, "Update": _update_item, "Delete": _delete_item}

_EXPRESSION = {"TableName", "ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
_WRITE = _EXPRESSION | {"ReturnValues", "ReturnValuesOnConditionCheckFailure"}
_READ = {"TableName", "ConsistentRead", "ProjectionExpression", "ExpressionAttributeNames"}
_PAGE = _READ | {"IndexName", "FilterExpression", "ExpressionAttributeValues", "Limit", "ExclusiveStartKey"}

_Work = Callable[[Record, Record], tuple[Record, Answer]]
_OPERATIONS: dict[str, tuple[set[str], _Work]] = {
    "get_item": (_READ | {"Key"}, _get_item),
    "batch_get_item": ({"RequestItems"}, _batch_get_item),
    "scan": (_PAGE, _scan),
    "put_item": (_WRITE | {"Item"}, _put_item),
    "delete_item": (_WRITE | {"Key"}, _delete_item),
    "update_item": (_WRITE | {"Key", "UpdateExpression"}, _update_item),
    "query": (_PAGE | {"KeyConditionExpression", "ScanIndexForward"}, _query),
    # botocore gives each call a new token, which only its own repeats have.
    "transact_write_items": ({"TransactItems", "ClientRequestToken"}, _transact_write_items),
}
