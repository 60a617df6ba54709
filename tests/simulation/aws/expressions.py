"""The common parts of DynamoDB's expressions and their parser, for conditions.py and updates.py.

An expression is parsed once, into closures over a Scope. As in DynamoDB, a wrong type of an operand, or two overlapping
paths, are refused for any item. Elements of lists by their number, list_append, size of a value and operands in
parentheses are not supported, and raise ExpressionError. Only DynamoDB Local, in the differential test, checks reserved
words.

Amazon DynamoDB Developer Guide, "Using expressions in DynamoDB".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

from tests.simulation.aws.attributes import Invalid, kind_of, number, size_of
from tests.simulation.frozen import Record, record

_TOKEN = re.compile(r"\s*([#:]\w+|[A-Za-z_]\w*|<>|<=|>=|[=<>()+\-,.])", re.ASCII)


class ExpressionError(Exception):
    """The code under test uses a malformed expression, or one that is not simulated."""


class Scope(NamedTuple):
    """The item, names and values of an evaluation."""

    item: Record  # attribute -> value; empty if there is no item
    names: Record
    values: Record  # canonical


@dataclass(frozen=True)
class Path:
    parts: tuple[str, ...]

    def names(self, scope: Scope) -> tuple[str, ...]:
        if not self._has_placeholders:
            return self.parts
        return tuple(scope.names[part] if part.startswith("#") else part for part in self.parts)

    @cached_property
    def _has_placeholders(self) -> bool:
        return any(part.startswith("#") for part in self.parts)

    def of(self, scope: Scope) -> Record | None:
        first, *others = self.names(scope)
        value: Record | None = scope.item.get(first)
        for name in others:
            value = value["M"].get(name) if value is not None and "M" in value else None
        return value


@dataclass(frozen=True)
class Value:
    name: str

    def of(self, scope: Scope) -> Record:
        value: Record = scope.values[self.name]
        return value


@dataclass(frozen=True)
class Size:
    path: Path

    def of(self, scope: Scope) -> Record | None:
        value = self.path.of(scope)
        size = None if value is None else size_of(value)
        return None if size is None else number(size)


Operand = Path | Value | Size
Check = Callable[[Scope], None]


@dataclass
class Used:
    """The placeholders of an expression, and the checks that need no item.

    Args:
        placeholders: the #names and :values.
        checks: each raises Invalid for an error that does not depend on the item.
    """

    placeholders: set[str] = field(default_factory=set)
    checks: list[Check] = field(default_factory=list)


class Paths(NamedTuple):
    """A ProjectionExpression."""

    used: Used
    paths: list[Path]


@cache
def projection(text: str) -> Paths:
    """Parse a ProjectionExpression. Raises ExpressionError."""
    reader = Reader(text)
    paths = reader.several(reader.path)
    reader.finish()
    reader.used.checks.append(lambda scope: refuse_overlaps(paths, scope))
    return Paths(reader.used, paths)


def projected(paths: Iterable[Path], scope: Scope) -> Record:
    """The parts of the item at the paths."""
    item = record({})
    for path in paths:
        value = path.of(scope)
        if value is not None:
            item = with_value(item, path.names(scope), value, parents=True)
    return item


def with_value(attributes: Record, names: tuple[str, ...], value: Record | None, parents: bool = False) -> Record:
    """The attributes with this value at a path, or with None without the path.

    Args:
        parents: create missing maps on the path; otherwise they raise Invalid.
    """
    first, *others = names
    if others:
        within = attributes.get(first, record({"M": record({})}) if parents else None)
        if within is None or "M" not in within:
            raise Invalid("The document path provided in the update expression is invalid for update")
        value = record({"M": with_value(within["M"], tuple(others), value, parents)})
    fields = {**attributes.fields, first: value}
    return record({name: part for name, part in fields.items() if part is not None})


def refuse_overlaps(paths: Iterable[Path], scope: Scope) -> None:
    """Raise Invalid if one path is equal to another or contains it."""
    seen: list[tuple[str, ...]] = []
    for names in (path.names(scope) for path in paths):
        if any(names[: len(other)] == other[: len(names)] for other in seen):
            raise Invalid("Two document paths overlap with each other")
        seen.append(names)


class Reader:
    """Parses an expression from left to right, with a method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.used = Used()
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0

    @property
    def next(self) -> str:
        """The next token; empty at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self, *expected: str) -> str:
        """Take the next token, which must be one of these, if any are given; keywords in capitals."""
        token = self.next
        if token and token not in expected and token.upper() in expected:
            token = token.upper()
        if not token or (expected and token not in expected):
            raise self.error(" or ".join(expected) or "more")
        self._at += 1
        return token

    def takes(self, keyword: str) -> bool:
        """Take the next token if it is this keyword; whether it was."""
        matches = self.next.upper() == keyword
        self._at += matches
        return matches

    def error(self, expected: str) -> ExpressionError:
        return ExpressionError(f"{expected} expected, not {self.next!r}, in {self._text!r}")

    def finish(self) -> None:
        """Raise ExpressionError if a token is left."""
        if self.next:
            raise self.error("an end")

    def several[T](self, rule: Callable[[], T]) -> list[T]:
        """One or more parts, separated by commas."""
        parts = [rule()]
        while self.takes(","):
            parts.append(rule())
        return parts

    def path(self) -> Path:
        parts = [self._name()]
        while self.takes("."):
            parts.append(self._name())
        return Path(tuple(parts))

    def _name(self) -> str:
        if not re.match(r"[#A-Za-z_]", self.next):
            raise self.error("a name")
        token = self.take()
        if token.startswith("#"):
            self.used.placeholders.add(token)
        return token

    def value(self) -> Value:
        if not self.next.startswith(":"):
            raise self.error("a value")
        token = self.take()
        self.used.placeholders.add(token)
        return Value(token)

    def operand(self) -> Operand:
        if self.calls("size"):
            return Size(*self.arguments(self.path))
        return self.path_or_value()

    def path_or_value(self) -> Path | Value:
        return self.value() if self.next.startswith(":") else self.path()

    def calls(self, function: str) -> bool:
        """Whether a call of this function comes next."""
        return self._tokens[self._at : self._at + 2] == [function, "("]

    def arguments(self, *rules: Callable[[], Any]) -> list[Any]:
        """The arguments of the next call, with a rule for each."""
        self.take()
        arguments: list[Any] = []
        for rule in rules:
            self.take("," if arguments else "(")
            arguments.append(rule())
        self.take(")")
        return arguments

    def check_distinct(self, first: Operand, *others: Operand) -> None:
        """Check that the first path is none of the others."""
        paths = [other for other in others if isinstance(other, Path)]

        def check(scope: Scope) -> None:
            if isinstance(first, Path) and first.names(scope) in [path.names(scope) for path in paths]:
                raise Invalid("The first operand must be distinct from the remaining operands")

        self.used.checks.append(check)

    def check_kind(self, operand: Operand, *kinds: str) -> None:
        """Check that a value of the request has one of these types."""

        def check(scope: Scope) -> None:
            kind = kind_of(operand.of(scope)) if isinstance(operand, Value) else kinds[0]
            if kind not in kinds:
                raise Invalid(f"Incorrect operand type for operator or function; operand type: {kind}")

        self.used.checks.append(check)


def _tokens(text: str) -> list[str]:
    tokens = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f"no token at {text[at:]!r}, in {text!r}")
        tokens.append(match[1])
        at = match.end()
    return tokens
