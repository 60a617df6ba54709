"""Attribute values of DynamoDB, frozen and canonical: two of the same meaning are one and the same Record.

Amazon DynamoDB Developer Guide, "Supported data types and naming rules in Amazon DynamoDB".
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact
from typing import Any

from tests.simulation.frozen import Record, record

# A number has at most 38 digits. What DynamoDB does with the result of a sum that has more is not simulated.
_CONTEXT = Context(prec=38, Emin=-130, Emax=125, traps=[Inexact])
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Invalid(Exception):
    """A ValidationException; the text is DynamoDB's or near it."""


def kind_of(value: Record) -> str:
    """The type of a value, S for example."""
    (kind,) = value.fields
    return kind


def canonical(value: Record) -> Record:
    """The value as DynamoDB keeps it: 1.50 is 1.5, and a set is sorted. Raises Invalid."""
    kind = kind_of(value)
    content: Any = value[kind]
    if kind == "N":
        content = _number_text(content)
    elif kind == "M":
        content = canonical_map(content)
    elif kind == "L":
        content = tuple(canonical(part) for part in content)
    elif kind in ("SS", "NS", "BS"):
        members = [_number_text(part) for part in content] if kind == "NS" else list(content)
        if not members or len(set(members)) < len(members):
            raise Invalid("One or more parameter values were invalid: a set is empty or has duplicates")
        content = tuple(sorted(members))
    return record({kind: content})


def canonical_map(values: Record) -> Record:
    """Every value canonical. Raises Invalid."""
    return record({name: canonical(value) for name, value in values.fields.items()})


def number(first: Decimal | int, sign: str = "+", second: Decimal | int = 0) -> Record:
    """The sum or the difference as an attribute value."""
    second = Decimal(second) if sign == "+" else -Decimal(second)
    return record({"N": _text(_CONTEXT.add(Decimal(first), second))})


def number_of(value: Record) -> Decimal:
    """The number that a value of type N is."""
    return Decimal(value["N"])


def size_of(value: Record) -> int | None:
    """What size() says, None for a type that has no size."""
    kind = kind_of(value)
    if kind == "S":
        return len(value["S"].encode())
    if kind == "M":
        return len(value["M"].fields)
    return len(value[kind]) if kind in ("B", "L", "SS", "NS", "BS") else None


def _number_text(text: str) -> str:
    if not _NUMBER.fullmatch(text):
        raise Invalid(f"The parameter cannot be converted to a numeric value: {text}")
    return _text(Decimal(text))


def _text(value: Decimal) -> str:
    return f"{_CONTEXT.normalize(value):f}" if value else "0"
