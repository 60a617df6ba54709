"""DynamoDB's condition, update and projection expressions, over frozen items.

An expression is parsed once. What DynamoDB refuses whatever the item is (an operand of the wrong type, two paths that
overlap) is refused here whatever the item is. Of the language only this is left out, and raises ExpressionError:
elements of lists by their number, list_append, and operands in parentheses. Reserved words are not known here.

Amazon DynamoDB Developer Guide, "Condition and filter expressions, operators, and functions" and "Using update
expressions".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from tests.simulation.aws.attributes import Invalid, kind_of, number, number_of, size_of
from tests.simulation.frozen import Record, record

_TOKEN = re.compile(r"\s*([#:]\w+|[A-Za-z_]\w*|<>|<=|>=|[=<>()+\-,.])", re.ASCII)
_COMPARATORS = ("=", "<>", "<=", ">=", "<", ">")
_ORDERED = ("S", "N", "B")
_KINDS = ("S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS")
_CLAUSES = ("SET", "REMOVE", "ADD", "DELETE")


class ExpressionError(Exception):
    """The code under test asks with a broken expression, or with one that is not simulated."""


class Scope(NamedTuple):
    """What an expression is about."""

    item: Record  # attribute -> value; empty if there is no item
    names: Record
    values: Record  # canonical


@dataclass(frozen=True)
class Path:
    parts: tuple[str, ...]

    def names(self, scope: Scope) -> tuple[str, ...]:
        return tuple(scope.names[part] if part.startswith("#") else part for part in self.parts)

    def of(self, scope: Scope) -> Record | None:
        return look_up(scope.item, self.names(scope))


@dataclass(frozen=True)
class Value:
    name: str

    def of(self, scope: Scope) -> Record:
        found: Record = scope.values[self.name]
        return found


@dataclass(frozen=True)
class Size:
    path: Path

    def of(self, scope: Scope) -> Record | None:
        found = self.path.of(scope)
        size = None if found is None else size_of(found)
        return None if size is None else number(size)


Operand = Path | Value | Size
Test = Callable[[Scope], bool]
Check = Callable[[Scope], None]
Calculation = Callable[[Scope], Record | None]


@dataclass(frozen=True)
class Action:
    """One action of an update: `value` calculates from the old item what the path becomes; None removes it."""

    clause: str
    path: Path
    value: Calculation


@dataclass
class Parsed:
    """An expression. `used`: its placeholders; `checks`: raise Invalid for what is wrong whatever the item is."""

    used: set[str] = field(default_factory=set)
    checks: list[Check] = field(default_factory=list)
    test: Test = lambda _: True
    actions: list[Action] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)


@cache
def condition(text: str) -> Parsed:
    """A ConditionExpression or FilterExpression: its `test`."""
    parser = _Parser(text)
    parser.parsed.test = parser.either()
    return parser.finished()


@cache
def update(text: str) -> Parsed:
    """An UpdateExpression: its `actions`, and their `paths`."""
    parser = _Parser(text)
    parser.update()
    return parser.finished()


@cache
def projection(text: str) -> Parsed:
    """A ProjectionExpression: its `paths`."""
    parser = _Parser(text)
    parser.parsed.paths.extend(parser.several(parser.path))
    parser.parsed.checks.append(lambda scope: _refuse_overlaps(parser.parsed.paths, scope))
    return parser.finished()


def updated(parsed: Parsed, scope: Scope) -> Record:
    """The item after the update. Every action calculates from the old item. Raises Invalid."""
    item = scope.item
    for action, value in [(action, action.value(scope)) for action in parsed.actions]:
        item = _with(item, action.path.names(scope), value)
    return item


def projected(parsed: Parsed, scope: Scope) -> Record:
    """What of the item stands at the paths."""
    item = record({})
    for path in parsed.paths:
        value = path.of(scope)
        if value is not None:
            item = _with(item, path.names(scope), value, parents=True)
    return item


def look_up(item: Record, names: tuple[str, ...]) -> Record | None:
    """The value at a path; None if there is none."""
    value: Record | None = item.get(names[0])
    for name in names[1:]:
        value = value["M"].get(name) if value is not None and "M" in value else None
    return value


def _with(attributes: Record, names: tuple[str, ...], value: Record | None, parents: bool = False) -> Record:
    """With this value at a path, or with None without it. Raises Invalid if there is no map to put it in."""
    first, *others = names
    if others:
        within = attributes.get(first, record({"M": record({})}) if parents else None)
        if within is None or "M" not in within:
            raise Invalid("The document path provided in the update expression is invalid for update")
        value = record({"M": _with(within["M"], tuple(others), value, parents)})
    fields = {**attributes.fields, first: value}
    return record({name: part for name, part in fields.items() if part is not None})


def _refuse_overlaps(paths: Iterable[Path], scope: Scope) -> None:
    seen: list[tuple[str, ...]] = []
    for names in (path.names(scope) for path in paths):
        for other in seen:
            if names[: len(other)] == other[: len(names)]:
                raise Invalid("Two document paths overlap with each other")
        seen.append(names)


class _Parser:
    """Recursive descent; one method a rule."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.parsed = Parsed()
        self._tokens = _tokens(text)
        self._at = 0

    # Tokens

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _word(self) -> str:
        return self._next().upper()

    def _take(self, *expected: str) -> str:
        token = self._next()
        if not token or (expected and token not in expected and token.upper() not in expected):
            raise ExpressionError(f"{' or '.join(expected) or 'more'} expected, not {token!r}, in {self.text!r}")
        self._at += 1
        return token

    def finished(self) -> Parsed:
        if self._next():
            raise ExpressionError(f"{self._next()!r} is left over in {self.text!r}")
        return self.parsed

    def several[T](self, rule: Callable[[], T]) -> list[T]:
        found = [rule()]
        while self._next() == ",":
            self._take()
            found.append(rule())
        return found

    # Operands

    def path(self) -> Path:
        parts = [self._name()]
        while self._next() == ".":
            self._take()
            parts.append(self._name())
        return Path(tuple(parts))

    def _name(self) -> str:
        token = self._take()
        if not re.match(r"[#A-Za-z_]", token):
            raise ExpressionError(f"a name expected, not {token!r}, in {self.text!r}")
        if token.startswith("#"):
            self.parsed.used.add(token)
        return token

    def _value(self) -> Value:
        token = self._take()
        if not token.startswith(":"):
            raise ExpressionError(f"a value expected, not {token!r}, in {self.text!r}")
        self.parsed.used.add(token)
        return Value(token)

    def _operand(self) -> Operand:
        if self._next().startswith(":"):
            return self._value()
        if self._calls("size"):
            return Size(self._arguments(self.path)[0])
        return self.path()

    def _calls(self, function: str) -> bool:
        return self._tokens[self._at : self._at + 2] == [function, "("]

    def _arguments(self, *rules: Callable[[], Any]) -> list[Any]:
        self._take()
        arguments: list[Any] = []
        for opening, rule in zip("(" + "," * len(rules), rules, strict=False):
            self._take(opening)
            arguments.append(rule())
        self._take(")")
        return arguments

    def _kinds(self, operand: Operand | None, kinds: Iterable[str]) -> None:
        """A value given with the request is of one of these types."""
        if isinstance(operand, Value):
            self.parsed.checks.append(lambda scope: _refuse_kind(operand.of(scope), kinds))

    # Conditions, the weakest first

    def either(self) -> Test:
        test = self._both()
        while self._word() == "OR":
            self._take()
            test = _or(test, self._both())
        return test

    def _both(self) -> Test:
        test = self._negation()
        while self._word() == "AND":
            self._take()
            test = _and(test, self._negation())
        return test

    def _negation(self) -> Test:
        if self._word() != "NOT":
            return self._single()
        self._take()
        test = self._negation()
        return lambda scope: not test(scope)

    def _single(self) -> Test:
        if self._next() == "(":
            self._take()
            test = self.either()
            self._take(")")
            return test
        for function, rule in (
            ("attribute_exists", self._exists),
            ("attribute_not_exists", self._not_exists),
            ("attribute_type", self._is_type),
            ("begins_with", self._begins_with),
            ("contains", self._contains),
        ):
            if self._calls(function):
                return rule()
        left = self._operand()
        word = self._take("BETWEEN", "IN", *_COMPARATORS).upper()
        if word == "BETWEEN":
            return self._between(left)
        return self._in(left) if word == "IN" else self._comparison(left, word)

    def _exists(self) -> Test:
        (path,) = self._arguments(self.path)
        return lambda scope: path.of(scope) is not None

    def _not_exists(self) -> Test:
        (path,) = self._arguments(self.path)
        return lambda scope: path.of(scope) is None

    def _is_type(self) -> Test:
        path, kind = self._arguments(self.path, self._value)
        self.parsed.checks.append(lambda scope: _refuse_type_name(kind.of(scope)))

        def test(scope: Scope) -> bool:
            found = path.of(scope)
            return found is not None and kind_of(found) == kind.of(scope)["S"]

        return test

    def _begins_with(self) -> Test:
        path, start = self._arguments(self.path, self._operand)
        self._kinds(start, ("S", "B"))

        def test(scope: Scope) -> bool:
            whole, first = path.of(scope), start.of(scope)
            if whole is None or first is None or kind_of(whole) != kind_of(first) or kind_of(whole) not in "SB":
                return False
            return bool(whole[kind_of(whole)].startswith(first[kind_of(first)]))

        return test

    def _contains(self) -> Test:
        path, part = self._arguments(self.path, self._operand)

        def test(scope: Scope) -> bool:
            whole, wanted = path.of(scope), part.of(scope)
            if whole is None or wanted is None:
                return False
            kind, wanted_kind = kind_of(whole), kind_of(wanted)
            if kind == "L":
                return wanted in whole["L"]
            return (
                kind in (wanted_kind, wanted_kind + "S")
                and kind in "S B SS NS BS"
                and (wanted[wanted_kind] in whole[kind])
            )

        return test

    def _between(self, middle: Operand) -> Test:
        low = self._operand()
        self._take("AND")
        high = self._operand()
        for operand in (middle, low, high):
            self._kinds(operand, _ORDERED)
        if isinstance(low, Value) and isinstance(high, Value):
            self.parsed.checks.append(lambda scope: _refuse_empty_range(low.of(scope), high.of(scope)))
        return lambda scope: (
            _compare("<=", low.of(scope), middle.of(scope)) and _compare("<=", middle.of(scope), high.of(scope))
        )

    def _in(self, operand: Operand) -> Test:
        self._take("(")
        others = self.several(self._operand)
        self._take(")")
        return lambda scope: any(_compare("=", operand.of(scope), other.of(scope)) for other in others)

    def _comparison(self, left: Operand, comparator: str) -> Test:
        right = self._operand()
        self.parsed.checks.append(lambda scope: _refuse_same(left, right, scope))
        if comparator not in ("=", "<>"):
            self._kinds(left, _ORDERED)
            self._kinds(right, _ORDERED)
        return lambda scope: _compare(comparator, left.of(scope), right.of(scope))

    # Updates

    def update(self) -> None:
        rules = {"SET": self._set, "REMOVE": self._remove, "ADD": self._add, "DELETE": self._delete}
        while rules and self._next():
            clause = self._take(*rules).upper()
            self.parsed.actions += self.several(rules.pop(clause))
        self.parsed.paths += [action.path for action in self.parsed.actions]
        self.parsed.checks.append(lambda scope: _refuse_overlaps(self.parsed.paths, scope))

    def _set(self) -> Action:
        path = self.path()
        self._take("=")
        first, first_operand = self._term()
        sign = self._next()
        if sign not in ("+", "-"):
            return Action("SET", path, _existing(first))
        self._take()
        second, second_operand = self._term()
        for operand in (first_operand, second_operand):
            self._kinds(operand, ("N",))
        return Action("SET", path, _sum(_existing(first), sign, _existing(second)))

    def _term(self) -> tuple[Calculation, Operand | None]:
        """An operand of SET; and what of it is given with the request."""
        if self._calls("if_not_exists"):
            path, (other, operand) = self._arguments(self.path, self._term)
            return lambda scope: path.of(scope) or other(scope), operand
        operand = self._value() if self._next().startswith(":") else self.path()
        return operand.of, operand

    def _remove(self) -> Action:
        return Action("REMOVE", self.path(), lambda _: None)

    def _add(self) -> Action:
        path, value = self.path(), self._value()
        self._kinds(value, ("N", "SS", "NS", "BS"))
        return Action("ADD", path, lambda scope: _added(path.of(scope), value.of(scope)))

    def _delete(self) -> Action:
        path, value = self.path(), self._value()
        self._kinds(value, ("SS", "NS", "BS"))
        return Action("DELETE", path, lambda scope: _left_over(path.of(scope), value.of(scope)))


def _tokens(text: str) -> list[str]:
    tokens = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ExpressionError(f"{text[at:]!r} is not understood, in {text!r}")
        tokens.append(found[1])
        at = found.end()
    return tokens


def _and(first: Test, second: Test) -> Test:
    return lambda scope: first(scope) and second(scope)


def _or(first: Test, second: Test) -> Test:
    return lambda scope: first(scope) or second(scope)


def _compare(comparator: str, left: Record | None, right: Record | None) -> bool:
    if left is None or right is None:
        return comparator == "<>" and left is not right
    if comparator in ("=", "<>"):
        return (left is right) == (comparator == "=")
    kind = kind_of(left)
    if kind != kind_of(right) or kind not in _ORDERED:
        return False
    low, high = (number_of(side) if kind == "N" else side[kind] for side in (left, right))
    return bool({"<": low < high, "<=": low <= high, ">": low > high, ">=": low >= high}[comparator])


def _existing(calculation: Calculation) -> Calculation:
    def calculate(scope: Scope) -> Record:
        found = calculation(scope)
        if found is None:
            raise Invalid("The provided expression refers to an attribute that does not exist in the item")
        return found

    return calculate


def _sum(first: Calculation, sign: str, second: Calculation) -> Calculation:
    def calculate(scope: Scope) -> Record:
        operands = first(scope), second(scope)
        for operand in operands:
            if operand is None or kind_of(operand) != "N":
                raise Invalid("An operand in the update expression has an incorrect data type")
        return number(number_of(operands[0]), sign, number_of(operands[1]))

    return calculate


def _added(old: Record | None, value: Record) -> Record:
    if old is None:
        return value
    kind = kind_of(value)
    if kind_of(old) != kind:
        raise Invalid("An operand in the update expression has an incorrect data type")
    if kind == "N":
        return number(number_of(old), "+", number_of(value))
    return record({kind: tuple(sorted({*old[kind], *value[kind]}))})


def _left_over(old: Record | None, value: Record) -> Record | None:
    if old is None:
        return None
    kind = kind_of(value)
    if kind_of(old) != kind:
        raise Invalid("An operand in the update expression has an incorrect data type")
    left = tuple(sorted({*old[kind]} - {*value[kind]}))
    return record({kind: left}) if left else None


def _refuse_kind(value: Record, kinds: Iterable[str]) -> None:
    if kind_of(value) not in kinds:
        raise Invalid(f"Incorrect operand type for operator or function, operand type: {kind_of(value)}")


def _refuse_type_name(value: Record) -> None:
    if value.get("S") not in _KINDS:
        raise Invalid("Invalid attribute type name found")


def _refuse_same(left: Operand, right: Operand, scope: Scope) -> None:
    if isinstance(left, Path) and isinstance(right, Path) and left.names(scope) == right.names(scope):
        raise Invalid("The first operand must be distinct from the remaining operands for this operator or function")


def _refuse_empty_range(low: Record, high: Record) -> None:
    if not _compare("<=", low, high):
        raise Invalid("The BETWEEN operator requires an upper bound that is not below the lower one, of its type")
