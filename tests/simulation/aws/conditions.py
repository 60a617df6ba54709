"""DynamoDB's condition expressions, without the functions that the product does not use.

By increasing precedence: OR, AND, NOT, then comparisons, BETWEEN, IN and functions. Two values of different types are
never equal, and neither is less. A missing value equals no value, and differs from each. Amazon DynamoDB Developer
Guide, "Condition and filter expressions, operators, and functions".
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tests.simulation.aws.attributes import Invalid, kind_of, number_of
from tests.simulation.aws.expressions import Operand, Path, Reader, Scope, Used, Value
from tests.simulation.frozen import Record

_ORDERED = ("S", "N", "B")
_COMPARATORS = ("=", "<>", "<=", ">=", "<", ">")


class Or(NamedTuple):
    first: Test
    second: Test

    def holds(self, scope: Scope) -> bool:
        return self.first.holds(scope) or self.second.holds(scope)


class And(NamedTuple):
    first: Test
    second: Test

    def holds(self, scope: Scope) -> bool:
        return self.first.holds(scope) and self.second.holds(scope)


class Not(NamedTuple):
    test: Test

    def holds(self, scope: Scope) -> bool:
        return not self.test.holds(scope)


class Exists(NamedTuple):
    """attribute_exists, or attribute_not_exists if `expected` is false."""

    path: Path
    expected: bool

    def holds(self, scope: Scope) -> bool:
        return (self.path.of(scope) is not None) == self.expected


class BeginsWith(NamedTuple):
    """begins_with of texts."""

    path: Path
    prefix: Operand

    def holds(self, scope: Scope) -> bool:
        value, prefix = self.path.of(scope), self.prefix.of(scope)
        if value is None or prefix is None or kind_of(value) != "S":
            return False
        return str(value["S"]).startswith(str(prefix["S"]))


class Comparison(NamedTuple):
    left: Operand
    comparator: str
    right: Operand

    def holds(self, scope: Scope) -> bool:
        return _compare(self.comparator, self.left.of(scope), self.right.of(scope))


class Between(NamedTuple):
    operand: Operand
    low: Operand
    high: Operand

    def holds(self, scope: Scope) -> bool:
        value, low, high = (each.of(scope) for each in self)
        return _compare(">=", value, low) and _compare("<=", value, high)


class In(NamedTuple):
    operand: Operand
    others: list[Operand]

    def holds(self, scope: Scope) -> bool:
        return any(_compare("=", self.operand.of(scope), other.of(scope)) for other in self.others)


Test = Or | And | Not | Exists | BeginsWith | Comparison | Between | In


class Condition(NamedTuple):
    """A condition, as the tree of its tests. None always holds."""

    used: Used
    test: Test | None = None

    def holds(self, scope: Scope) -> bool:
        return self.test is None or self.test.holds(scope)


@cache
def condition(text: str) -> Condition:
    """Parse a ConditionExpression. Raises ExpressionError."""
    reader = _Conditions(text)
    test = reader.either()
    reader.finish()
    return Condition(reader.used, test)


class _Conditions(Reader):
    _closed = (-1, -1)  # start and end of the last pair of parentheses

    def either(self) -> Test:
        test = self._both()
        while self.takes("OR"):
            test = Or(test, self._both())
        return test

    def _both(self) -> Test:
        test = self._negation()
        while self.takes("AND"):
            test = And(test, self._negation())
        return test

    def _negation(self) -> Test:
        return Not(self._negation()) if self.takes("NOT") else self._single()

    def _single(self) -> Test:
        if self.next == "(":
            return self._in_parentheses()
        for function, expected in (("attribute_exists", True), ("attribute_not_exists", False)):
            if self.calls(function):
                return Exists(*self.arguments(self.path), expected)
        if self.calls("begins_with"):
            path, prefix = self.arguments(self.path, self.operand)
            self.check_kind(prefix, "S")
            return BeginsWith(path, prefix)
        left = self.operand()
        word = self.take("IN", "BETWEEN", *_COMPARATORS)
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

    def _in(self, operand: Operand) -> Test:
        self.take("(")
        others = self.several(self.operand)
        self.take(")")
        self.check_distinct(operand, *others)
        return In(operand, others)

    def _between(self, operand: Operand) -> Test:
        low = self.operand()
        self.take("AND")
        high = self.operand()
        self.check_distinct(operand, low, high)
        for each in (operand, low, high):
            self.check_kind(each, *_ORDERED)
        self.used.checks.append(lambda scope: _refuse_an_empty_range(low, high, scope))
        return Between(operand, low, high)

    def _comparison(self, left: Operand, comparator: str) -> Test:
        right = self.operand()
        self.check_distinct(left, right)
        if comparator not in ("=", "<>"):
            self.check_kind(left, *_ORDERED)
            self.check_kind(right, *_ORDERED)
        return Comparison(left, comparator, right)


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


def _refuse_an_empty_range(low: Operand, high: Operand, scope: Scope) -> None:
    if isinstance(low, Value) and isinstance(high, Value) and not _compare("<=", low.of(scope), high.of(scope)):
        raise Invalid("BETWEEN requires bounds of one type, the lower one first")


def _refuse_redundant_parentheses(_: Scope) -> None:
    raise Invalid("The expression has redundant parentheses")
