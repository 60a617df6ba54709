"""DynamoDB: conditional writes that return a refusal as a value, and decoding of items with the path of each error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Never, cast

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Item = dict[str, Any]
Key = str | tuple[str, str]

# Seconds before each repeat of a write that met a transaction on its item. It had no effect, transactions take
# milliseconds, and no SDK repeats it (DynamoDB guide, "Transaction conflict handling in DynamoDB").
CONFLICT_WAITS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)


class Write(NamedTuple):
    """The result of a write: whether its condition held, and the item that DynamoDB returned, or an empty one.

    `retried`: botocore repeated a refused call after an error or a lost answer, so the first call may have written.
    """

    held: bool
    item: Item
    retried: bool = False


class Table:
    """One table whose key is one text attribute, or two. Errors of DynamoDB pass as ClientError or BotoCoreError."""

    def __init__(self, dynamodb: DynamoDBClient, name: str, *key_attributes: str) -> None:
        self.name = name
        self.dynamodb = dynamodb
        self._key_attributes = key_attributes

    def read(self, key: Key, **options: Any) -> Item:
        """Read the item consistently; empty if there is none."""
        answer = self.dynamodb.get_item(TableName=self.name, Key=self.key(key), ConsistentRead=True, **options)
        return cast(Item, answer.get("Item", {}))

    def update(
        self,
        key: Key,
        update: str,
        condition: str,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Write:
        """Call UpdateItem. After a refusal, `item` is the current item. After a write it is empty by default."""
        request = {"Key": self.key(key), "UpdateExpression": update, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        return self._write(self.dynamodb.update_item, condition, values, names, {**request, **options})

    def update_and_read(
        self,
        key: Key,
        update: str,
        condition: str,
        values: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> Write:
        """Call UpdateItem, and return the item after it, whether or not the condition held; empty if there is none."""
        write = self.update(key, update, condition, values, names, ReturnValues="ALL_NEW")
        # A refused write returns the item only if one exists, and some local engines never return it.
        return write if write.held or write.item else write._replace(item=self.read(key))

    def put(self, item: Mapping[str, Any], condition: str, values: Mapping[str, Any] | None = None) -> Write:
        """Call PutItem. After a refusal, `item` is the current item."""
        request = {"Item": item, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        return self._write(self.dynamodb.put_item, condition, values, None, request)

    def delete(self, key: Key, condition: str, values: Mapping[str, Any] | None = None) -> Write:
        """Call DeleteItem. `item` is the deleted item."""
        request = {"Key": self.key(key), "ReturnValues": "ALL_OLD"}
        return self._write(self.dynamodb.delete_item, condition, values, None, request)

    def _write(
        self,
        call: Callable[..., Any],
        condition: str,
        values: Mapping[str, Any] | None,
        names: Mapping[str, str] | None,
        request: Mapping[str, Any],
    ) -> Write:
        # DynamoDB refuses an empty map of names or values (API Reference, UpdateItem).
        given = {"ExpressionAttributeNames": names, "ExpressionAttributeValues": values}
        given = {name: mapping for name, mapping in given.items() if mapping}
        retried, waits = False, iter(CONFLICT_WAITS)
        while True:
            try:
                answer = call(TableName=self.name, ConditionExpression=condition, **given, **request)
                return Write(True, answer.get("Attributes", {}))
            except ClientError as error:
                code, answer = error.response["Error"]["Code"], cast(dict[str, Any], error.response)
                retried = retried or answer.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
                if code == "ConditionalCheckFailedException":
                    return Write(False, answer.get("Item", {}), retried)
                if code != "TransactionConflictException" or (wait := next(waits, None)) is None:
                    raise
            time.sleep(wait)

    # Parts of a transaction (`transact`).

    def update_part(
        self,
        key: Key,
        update: str,
        condition: str,
        values: Mapping[str, Any],
        names: Mapping[str, str],
        **options: Any,
    ) -> Item:
        expressions = {"UpdateExpression": update, "ConditionExpression": condition}
        given = {"ExpressionAttributeNames": names, "ExpressionAttributeValues": values}
        return {"Update": {"TableName": self.name, "Key": self.key(key), **expressions, **given, **options}}

    def put_part(self, item: Item, condition: str) -> Item:
        return {"Put": {"TableName": self.name, "Item": item, "ConditionExpression": condition}}

    def check_part(self, key: Key, condition: str) -> Item:
        return {"ConditionCheck": {"TableName": self.name, "Key": self.key(key), "ConditionExpression": condition}}

    def key(self, key: Key) -> Item:
        """The key in DynamoDB's format."""
        parts = (key,) if isinstance(key, str) else key
        return {name: {"S": part} for name, part in zip(self._key_attributes, parts, strict=True)}


class TransactionPart(NamedTuple):
    """The refusal of one item of a transaction.

    `code` is DynamoDB's: "None" for an item that refused nothing, or "ConditionalCheckFailed" (API Reference,
    TransactWriteItems, Errors). `item`: the current item after a failed condition, if there is one and the engine
    returns it.
    """

    code: str
    item: Item


def transact(dynamodb: DynamoDBClient, parts: Sequence[Any]) -> list[TransactionPart]:
    """Write all parts or none. Returns one `TransactionPart` for each if a condition failed, and none after success.

    Raises:
        ClientError, BotoCoreError: another error, or one after which the transaction may have been written. So what is
            returned is never the refusal of a busy or throttled item.
    """
    waits = iter(CONFLICT_WAITS)
    while True:
        try:
            dynamodb.transact_write_items(TransactItems=parts)
            return []
        except ClientError as error:
            reasons = cast(dict[str, Any], error.response).get("CancellationReasons", [])
            codes = {reason.get("Code", "None") for reason in reasons}
            if codes and codes <= {"None", "ConditionalCheckFailed"}:
                return [TransactionPart(reason.get("Code", "None"), reason.get("Item", {})) for reason in reasons]
            if "TransactionConflict" not in codes or (wait := next(waits, None)) is None:
                raise
        time.sleep(wait)


def number(value: float) -> Item:
    """A number attribute, to the thousandth."""
    return {"N": f"{value:.3f}".removesuffix(".000") if isinstance(value, float) else str(value)}


class MalformedAttribute(ValueError):
    """An attribute is missing or has the wrong type. The message has its path (`holders.p-1.since`) and its value.

    Attributes:
        keys: the path: the attribute's name, then the keys of the maps in it.
        problem: the message without the path.
        kind: the DynamoDB type that was expected: "N", "S", "BOOL", "M" or "L".
    """

    def __init__(self, keys: tuple[str, ...], problem: str, kind: str) -> None:
        super().__init__(f"{'.'.join(keys)} {problem}")
        self.keys, self.problem, self.kind = keys, problem, kind
        self.attribute = keys[0]


_REQUIRED: Any = object()
# Placeholders, by type, for malformed attributes while all of them are collected.
_PLACEHOLDERS: Mapping[str, Any] = {"N": 0, "S": "", "BOOL": False, "L": ()}


class Attributes:
    """The attributes of an item, or of a map in it. `raw` has them in DynamoDB's format.

    Each method returns one attribute, or `default` if it is missing.

    Args:
        keys: the path of the map in its item.
        faults: collects the malformed attributes, for each of which a placeholder is returned, such as 0 for a number.
            None: the first one is raised.

    Raises:
        MalformedAttribute: the attribute has another type, or is missing and has no default.
    """

    def __init__(
        self, raw: Mapping[str, Any], keys: tuple[str, ...] = (), faults: list[MalformedAttribute] | None = None
    ) -> None:
        self.raw = raw
        self._keys = keys
        self._faults = faults

    def text[D = Never](self, name: str, default: D = _REQUIRED) -> str | D:
        return self._get(name, "S", str, default)

    def flag[D = Never](self, name: str, default: D = _REQUIRED) -> bool | D:
        return self._get(name, "BOOL", bool, default)

    def number[D = Never](self, name: str, default: D = _REQUIRED) -> float | D:
        return self._get(name, "N", float, default, "must be a number, got {}")

    def whole[D = Never](self, name: str, default: D = _REQUIRED) -> int | D:
        return self._get(name, "N", int, default, "must be a whole number, got {}")

    def parsed_number[T, D = Never](self, name: str, parse: Callable[[str], T], default: D = _REQUIRED) -> T | D:
        """Parse a number attribute. A ValueError of `parse` becomes a MalformedAttribute."""
        return self._get(name, "N", parse, default, "must be a valid number, got {}")

    def parsed[T, D = Never](self, name: str, parse: Callable[[str], T], default: D = _REQUIRED) -> T | D:
        """Parse a string attribute. A ValueError, TypeError or KeyError of `parse` becomes a MalformedAttribute."""
        return self._get(name, "S", parse, default)

    def map[D = Never](self, name: str, default: D = _REQUIRED) -> Attributes | D:
        return self._get(name, "M", lambda raw: Attributes(raw, (*self._keys, name), self._faults), default)

    def parsed_map[T](self, name: str, parse: Callable[[Attributes], T]) -> T:
        """Parse a map attribute. A ValueError of `parse` becomes a MalformedAttribute of the map."""
        return self._get(name, "M", lambda raw: parse(Attributes(raw, (*self._keys, name), self._faults)), _REQUIRED)

    def maps(self) -> Iterator[tuple[str, Attributes]]:
        """Return the name and the attributes of each map in this map."""
        return ((name, self._nested(name, value)) for name, value in self.raw.items())

    def list_of_maps[D = Never](self, name: str, default: D = _REQUIRED) -> Iterable[Attributes] | D:
        return self._get(
            name, "L", lambda raw: [self._nested(f"{name}.{at}", each) for at, each in enumerate(raw)], default
        )

    def _nested(self, name: str, value: Any) -> Attributes:
        return Attributes({name: value}, self._keys, self._faults).map(name)

    def _get[T, D](self, name: str, kind: str, convert: Callable[[Any], T], default: D, problem: str = "") -> T | D:
        try:
            return self._parse(name, kind, convert, default, problem)
        except MalformedAttribute as fault:
            if self._faults is None:
                raise
            self._faults.append(fault)
            # The attributes of a map that cannot be read are not missing.
            placeholder = Attributes({}, faults=[]) if kind == "M" else _PLACEHOLDERS[kind]
            return cast(T, placeholder) if default is _REQUIRED else default

    def _parse[T, D](self, name: str, kind: str, convert: Callable[[Any], T], default: D, problem: str) -> T | D:
        value = self.raw.get(name)
        if value is None and default is not _REQUIRED:
            return default
        keys = (*self._keys, name)
        if value is None or kind not in value:
            raise MalformedAttribute(keys, f"must be of DynamoDB type {kind}, got {_shown(value)}", kind)
        try:
            return convert(value[kind])
        except MalformedAttribute:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedAttribute(keys, problem.format(value[kind]) or str(error), kind) from error


def _shown(value: Any) -> str:
    """A value in an error text. Of a list, a map or bytes, which may contain a token, only the type."""
    kinds = list(value or ())
    return repr(value) if kinds in ([], ["S"], ["N"], ["BOOL"], ["NULL"]) else f"type {', '.join(kinds)}"
