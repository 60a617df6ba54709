"""What DynamoDB's expressions are made of, and how they are read. conditions.py and updates.py build on it.

An expression is read once, into closures over a Scope. What DynamoDB refuses whatever the item is (an operand of the
wrong type, two paths that overlap) is refused whatever the item is. Of the language this is left out, and raises
ExpressionError: elements of lists by their number, list_append, size of a value, and operands in parentheses. Reserved
words are not known: the differential test meets them on DynamoDB Local.

Amazon DynamoDB Developer Guide, "Using expressions in DynamoDB".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from tests.simulation.aws.attributes import Invalid, kind_of, number, size_of
from tests.simulation.frozen import Record, record

_TOKEN = re.compile(r"\s*([#:]\w+|[A-Za-z_]\w*|<>|<=|>=|[=<>()+\-,.])", re.ASCII)


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
    """What an expression uses, and what can be checked of it without an item.

    Args:
        placeholders: the #names and :values.
        checks: each raises Invalid for what is wrong whatever the item is.
    """

    placeholders: set[str] = field(default_factory=set)
    checks: list[Check] = field(default_factory=list)


class Paths(NamedTuple):
    """A ProjectionExpression."""

    used: Used
    paths: list[Path]


@cache
def projection(text: str) -> Paths:
    """Reads a ProjectionExpression. Raises ExpressionError."""
    reader = Reader(text)
    paths = reader.several(reader.path)
    reader.finish()
    reader.used.checks.append(lambda scope: refuse_overlaps(paths, scope))
    return Paths(reader.used, paths)


def projected(paths: Iterable[Path], scope: Scope) -> Record:
    """What of the item stands at the paths."""
    item = record({})
    for path in paths:
        value = path.of(scope)
        if value is not None:
            item = with_value(item, path.names(scope), value, parents=True)
    return item


def with_value(attributes: Record, names: tuple[str, ...], value: Record | None, parents: bool = False) -> Record:
    """With this value at a path, or with None without it.

    Args:
        parents: make the maps that are missing on the way; else they raise Invalid.
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
    """Raises Invalid if one path is another's, or leads through it."""
    seen: list[tuple[str, ...]] = []
    for names in (path.names(scope) for path in paths):
        if any(names[: len(other)] == other[: len(names)] for other in seen):
            raise Invalid("Two document paths overlap with each other")
        seen.append(names)


class Reader:
    """Reads an expression from left to right; one method a rule of its grammar."""

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
        """The next token, which must be one of these, if any are given; keywords in capitals."""
        token = self.next
        if token and token not in expected and token.upper() in expected:
            token = token.upper()
        if not token or (expected and token not in expected):
            raise self.error(" or ".join(expected) or "more")
        self._at += 1
        return token

    def takes(self, keyword: str) -> bool:
        """Takes the next token if it is this keyword."""
        matches = self.next.upper() == keyword
        self._at += matches
        return matches

    def error(self, expected: str) -> ExpressionError:
        return ExpressionError(f"{expected} expected, not {self.next!r}, in {self._text!r}")

    def finish(self) -> None:
        """Raises ExpressionError unless everything is read."""
        if self.next:
            raise self.error("an end")

    def several[T](self, rule: Callable[[], T]) -> list[T]:
        """One or more, with commas between them."""
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
        """The arguments of the call that comes next; a rule each."""
        self.take()
        arguments: list[Any] = []
        for rule in rules:
            self.take("," if arguments else "(")
            arguments.append(rule())
        self.take(")")
        return arguments

    def check_distinct(self, first: Operand, *others: Operand) -> None:
        """The first path must be none of the others."""
        paths = [other for other in others if isinstance(other, Path)]

        def check(scope: Scope) -> None:
            if isinstance(first, Path) and first.names(scope) in [path.names(scope) for path in paths]:
                raise Invalid("The first operand must be distinct from the remaining operands")

        self.used.checks.append(check)

    def check_kind(self, operand: Operand, *kinds: str) -> None:
        """A value that is given with the request must be of one of these types."""

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
            raise ExpressionError(f"{text[at:]!r} is not understood, in {text!r}")
        tokens.append(match[1])
        at = match.end()
    return tokens
