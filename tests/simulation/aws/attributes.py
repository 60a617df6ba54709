"""Attribute values of DynamoDB, frozen and canonical: equal values are the same Record.

Amazon DynamoDB Developer Guide, "Supported data types and naming rules in Amazon DynamoDB".
"""

from __future__ import annotations

import re
from decimal import Context, Decimal
from functools import cache
from typing import Any

from tests.simulation.frozen import Record, record

_DIGITS = 38
_EXACT = Context(prec=400)  # digits: more than any sum of two numbers has
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


class Invalid(Exception):
    """A ValidationException, with a text like DynamoDB's."""


def kind_of(value: Record) -> str:
    """The type of a value, such as S."""
    (kind,) = value.fields
    return kind


def canonical(value: Record) -> Record:
    """The value as DynamoDB stores it: 1.50 is 1.5, and a set is sorted. Raises Invalid."""
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
    """The map with canonical values. Raises Invalid."""
    return record({name: canonical(value) for name, value in values.fields.items()})


def number(value: Decimal | int) -> Record:
    """An attribute value of type N. Raises Invalid."""
    return record({"N": _text(Decimal(value))})


def total(left: Record, sign: str, right: Record) -> Record:
    """The sum or the difference of two numbers. Raises Invalid."""
    work = _EXACT.add if sign == "+" else _EXACT.subtract
    return number(work(number_of(left), number_of(right)))


def number_of(value: Record) -> Decimal:
    """The number in a value of type N."""
    return Decimal(value["N"])


def size_of(value: Record) -> int | None:
    """The result of size(), or None for a type without a size."""
    kind = kind_of(value)
    if kind == "S":
        return len(value["S"].encode())
    if kind == "M":
        return len(value["M"].fields)
    return len(value[kind]) if kind in ("B", "L", "SS", "NS", "BS") else None


def item_bytes(item: Record) -> int:
    """The size of an item (Developer Guide, "DynamoDB item sizes and formats", which calls numbers approximate)."""
    return sum(len(name.encode()) + _bytes_of(value) for name, value in item.fields.items())


def _bytes_of(value: Record) -> int:
    kind = kind_of(value)
    if kind == "M":
        return 3 + len(value["M"].fields) + item_bytes(value["M"])
    if kind == "L":
        return 3 + sum(1 + _bytes_of(part) for part in value["L"])
    if kind == "N":
        number = number_of(value).normalize()
        digits = len(number.as_tuple().digits) if number else 0
        return 1 + -(-digits // 2) + number.is_signed()  # a byte for two digits, without zeros at either end
    return 1 if kind in ("BOOL", "NULL") else len(str(value[kind]).encode())


@cache
def _number_text(text: str) -> str:
    if not _NUMBER.fullmatch(text):
        raise Invalid("A value provided cannot be converted into a number")
    return _text(Decimal(text))


def _text(value: Decimal) -> str:
    shortest = value.normalize(_EXACT)
    if len(shortest.as_tuple().digits) > _DIGITS:
        raise Invalid(f"DynamoDB only supports precision up to {_DIGITS} digits")
    return f"{shortest:f}" if value else "0"
