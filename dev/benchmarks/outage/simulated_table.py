"""A DynamoDB table with the expressions of the ledger and of the downstreams' state.

tests/benchmarks compares it with the simulated DynamoDB of tests/simulation, which is compared with DynamoDB Local.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from math import nan
from typing import Any

from botocore.exceptions import ClientError

Item = dict[str, Any]

_TOKEN = re.compile(r"<>|<=|>=|[=<>(),]|[#:]?\w+")
_COMPARISONS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt}
_CLAUSES = re.compile(r"\b(SET|REMOVE)\b")
_COMMA = re.compile(r",(?![^(]*\))")  # not between parentheses
_IF_NOT_EXISTS = re.compile(r"if_not_exists\((\S+), (\S+)\)")


class SimulatedTable:
    """The items of one table, and the three operations of the product.

    Args:
        key: the name of the key attribute.
        wait: waits for the time of a call, which takes effect at its end.
    """

    def __init__(self, key: str, wait: Callable[[], None] = lambda: None) -> None:
        self.items: dict[str, Item] = {}
        self.calls = 0
        self._key = key
        self._wait = wait

    def get_item(self, *, Key: Item, **_: Any) -> Item:
        self._begin()
        item = self.items.get(Key[self._key]["S"])
        return {"Item": item} if item else {}

    def put_item(self, *, Item: Item, ConditionExpression: str, **options: Any) -> Item:
        self._begin()
        old = self.items.get(Item[self._key]["S"], {})
        held = _condition(ConditionExpression)(_Scope(old, options))
        if held:
            self.items[Item[self._key]["S"]] = dict(Item)
        return {} if held else _refuse(old)

    def update_item(self, *, Key: Item, UpdateExpression: str, ConditionExpression: str, **options: Any) -> Item:
        self._begin()
        key = Key[self._key]["S"]
        old = self.items.get(key, {})
        held = _condition(ConditionExpression)(_Scope(old, options))
        if held:
            old = self.items[key] = _updated(UpdateExpression, old or dict(Key), options)
        return {"Attributes": old} if held else _refuse(old)

    def _begin(self) -> None:
        self.calls += 1
        self._wait()


def _refuse(item: Item) -> Any:
    answer: Any = {"Error": {"Code": "ConditionalCheckFailedException", "Message": "refused"}}
    raise ClientError(answer | ({"Item": item} if item else {}), "Write")


class _Scope:
    """An item, with the names and values of a request."""

    def __init__(self, item: Item, options: Mapping[str, Any]) -> None:
        self._item = item
        self._names = options.get("ExpressionAttributeNames", {})
        self._values = options.get("ExpressionAttributeValues", {})

    def name(self, text: str) -> str:
        name: str = self._names.get(text, text)
        return name

    def typed(self, text: str) -> Item | None:
        """An operand in DynamoDB's format; None for a missing attribute."""
        return self._values[text] if text[0] == ":" else self._item.get(self.name(text))

    def value(self, text: str) -> Any:
        """An operand that can be compared. NaN for a missing attribute: only <> holds for it, as in DynamoDB."""
        typed = self.typed(text)
        if typed is None:
            return nan
        ((kind, value),) = typed.items()
        return float(value) if kind == "N" else value


Test = Callable[[_Scope], bool]


@cache
def _condition(expression: str) -> Test:
    tokens = _TOKEN.findall(expression)
    test = _alternatives(tokens)
    if tokens:
        raise ValueError(f"not simulated: {tokens} in {expression!r}")
    return test


def _alternatives(tokens: list[str]) -> Test:
    tests = [_together(tokens)]
    while _take(tokens, "OR"):
        tests.append(_together(tokens))
    return lambda scope: any(test(scope) for test in tests)


def _together(tokens: list[str]) -> Test:
    tests = [_term(tokens)]
    while _take(tokens, "AND"):
        tests.append(_term(tokens))
    return lambda scope: all(test(scope) for test in tests)


def _term(tokens: list[str]) -> Test:
    left = tokens.pop(0)
    if left == "(":
        inner = _alternatives(tokens)
        _close(tokens)
        return inner
    operation, right = tokens.pop(0), tokens.pop(0)
    if left == "attribute_not_exists":
        _close(tokens)
        return lambda scope: scope.typed(right) is None
    if operation != "IN":
        compare = _COMPARISONS[operation]
        return lambda scope: compare(scope.value(left), scope.value(right))
    listed = [tokens.pop(0)]
    while _take(tokens, ","):
        listed.append(tokens.pop(0))
    _close(tokens)
    return lambda scope: scope.value(left) in [scope.value(each) for each in listed]


def _close(tokens: list[str]) -> None:
    if not _take(tokens, ")"):
        raise ValueError(f"not simulated: {tokens} in place of a closing parenthesis")


def _take(tokens: list[str], expected: str) -> bool:
    found = tokens[:1] == [expected]
    if found:
        del tokens[0]
    return found


def _updated(update: str, old: Item, options: Mapping[str, Any]) -> Item:
    """The item after SET with operands and if_not_exists, and REMOVE."""
    scope, new = _Scope(old, options), dict(old)
    _, *clauses = _CLAUSES.split(update)
    for clause, text in zip(clauses[::2], clauses[1::2], strict=True):
        for action in _COMMA.split(text):
            target, _, value = action.strip().partition(" = ")
            if clause == "REMOVE":
                new.pop(scope.name(target), None)
                continue
            unless = _IF_NOT_EXISTS.fullmatch(value)
            kept, default = unless.groups() if unless else (value, value)
            new[scope.name(target)] = scope.typed(kept) or scope.typed(default)
    return new
