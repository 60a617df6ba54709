"""DynamoDB's condition expressions, by increasing precedence: OR, AND, NOT, then comparisons and functions.

Two values of different types are never equal, and neither is less. A missing value equals no value, and differs from
each. Amazon DynamoDB Developer Guide, "Condition and filter expressions, operators, and functions".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tests.simulation.aws.attributes import Invalid, kind_of, number_of
from tests.simulation.aws.expressions import Operand, Reader, Scope, Used, Value
from tests.simulation.frozen import Record

Test = Callable[[Scope], bool]

_ORDERED = ("S", "N", "B")
_KINDS = ("S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS")
_COMPARATORS = ("=", "<>", "<=", ">=", "<", ">")
_HOLDS = {"S": ("S", "SS"), "N": ("NS",), "B": ("B", "BS")}  # type -> the types except lists that can contain it


class Condition(NamedTuple):
    """A condition; `holds` evaluates it."""

    used: Used
    holds: Test


@cache
def condition(text: str) -> Condition:
    """Parse a ConditionExpression. Raises ExpressionError."""
    reader = _Conditions(text)
    holds = reader.either()
    reader.finish()
    return Condition(reader.used, holds)


class _Conditions(Reader):
    _closed = (-1, -1)  # start and end of the last pair of parentheses

    def either(self) -> Test:
        test = self._both()
        while self.takes("OR"):
            test = _or(test, self._both())
        return test

    def _both(self) -> Test:
        test = self._negation()
        while self.takes("AND"):
            test = _and(test, self._negation())
        return test

    def _negation(self) -> Test:
        if not self.takes("NOT"):
            return self._single()
        test = self._negation()
        return lambda scope: not test(scope)

    def _single(self) -> Test:
        if self.next == "(":
            return self._in_parentheses()
        for function, rule in (
            ("attribute_exists", self._exists),
            ("attribute_not_exists", self._not_exists),
            ("attribute_type", self._is_type),
            ("begins_with", self._begins_with),
            ("contains", self._contains),
        ):
            if self.calls(function):
                return rule()
        left = self.operand()
        word = self.take("BETWEEN", "IN", *_COMPARATORS)
        if word == "BETWEEN":
            return self._between(left)
        return self._in(left) if word == "IN" else self._comparison(left, word)

    def _in_parentheses(self) -> Test:
        begin = self._at
        self.take("(")
        test = self.either()
        if self._closed == (begin + 1, self._at):
            self.used.checks.append(_refuse_redundant_parentheses)
        self.take(")")
        self._closed = (begin, self._at)
        return test

    def _exists(self) -> Test:
        (path,) = self.arguments(self.path)
        return lambda scope: path.of(scope) is not None

    def _not_exists(self) -> Test:
        (path,) = self.arguments(self.path)
        return lambda scope: path.of(scope) is None

    def _is_type(self) -> Test:
        path, kind = self.arguments(self.path, self.value)
        self.used.checks.append(lambda scope: _refuse_type_name(kind.of(scope)))

        def test(scope: Scope) -> bool:
            value = path.of(scope)
            return value is not None and kind_of(value) == kind.of(scope)["S"]

        return test

    def _begins_with(self) -> Test:
        path, start = self.arguments(self.path, self.path_or_value)
        self.check_distinct(path, start)
        self.check_kind(start, "S", "B")

        def test(scope: Scope) -> bool:
            whole, first = path.of(scope), start.of(scope)
            return any(
                whole is not None and first is not None and kind in whole and kind in first
                and whole[kind].startswith(first[kind])
                for kind in ("S", "B")
            )  # fmt: skip

        return test

    def _contains(self) -> Test:
        path, part = self.arguments(self.path, self.path_or_value)
        self.check_distinct(path, part)

        def test(scope: Scope) -> bool:
            whole, wanted = path.of(scope), part.of(scope)
            if whole is None or wanted is None:
                return False
            if "L" in whole:
                return wanted in whole["L"]
            kind = kind_of(wanted)
            return kind_of(whole) in _HOLDS.get(kind, ()) and wanted[kind] in whole[kind_of(whole)]

        return test

    def _between(self, middle: Operand) -> Test:
        low = self.operand()
        self.take("AND")
        high = self.operand()
        for operand in (middle, low, high):
            self.check_kind(operand, *_ORDERED)
        self.check_distinct(middle, low, high)
        if isinstance(low, Value) and isinstance(high, Value):
            self.used.checks.append(lambda scope: _refuse_empty_range(low.of(scope), high.of(scope)))
        return lambda scope: (
            _compare("<=", low.of(scope), middle.of(scope)) and _compare("<=", middle.of(scope), high.of(scope))
        )

    def _in(self, operand: Operand) -> Test:
        self.take("(")
        others = self.several(self.operand)
        self.take(")")
        self.check_distinct(operand, *others)
        return lambda scope: any(_compare("=", operand.of(scope), other.of(scope)) for other in others)

    def _comparison(self, left: Operand, comparator: str) -> Test:
        right = self.operand()
        self.check_distinct(left, right)
        if comparator not in ("=", "<>"):
            self.check_kind(left, *_ORDERED)
            self.check_kind(right, *_ORDERED)
        return lambda scope: _compare(comparator, left.of(scope), right.of(scope))


def _and(first: Test, second: Test) -> Test:
    return lambda scope: first(scope) and second(scope)


def _or(first: Test, second: Test) -> Test:
    return lambda scope: first(scope) or second(scope)


def _compare(comparator: str, left: Record | None, right: Record | None) -> bool:
    if left is None or right is None:
        return comparator == "<>"
    if comparator in ("=", "<>"):
        return (left is right) == (comparator == "=")  # both are canonical
    kind = kind_of(left)
    if kind != kind_of(right) or kind not in _ORDERED:
        return False
    low, high = (number_of(side) if kind == "N" else side[kind] for side in (left, right))
    if comparator in (">", ">="):
        low, high = high, low
    return bool(low < high or (low == high and comparator in ("<=", ">=")))


def _refuse_redundant_parentheses(_: Scope) -> None:
    raise Invalid("The expression has redundant parentheses")


def _refuse_type_name(value: Record) -> None:
    if value.get("S") not in _KINDS:
        raise Invalid("Invalid attribute type name found")


def _refuse_empty_range(low: Record, high: Record) -> None:
    if not _compare("<=", low, high):
        raise Invalid("The BETWEEN operator requires an upper bound of the lower one's type, and not below it")
