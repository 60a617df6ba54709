"""The size of an item in DynamoDB (DynamoDB guide, "DynamoDB item sizes and formats"). It calls numbers approximate."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def item_bytes(item: Mapping[str, Any]) -> int:
    """The size of an item in DynamoDB's own form, in bytes."""
    return sum(_text(name) + _value(value) for name, value in item.items())


def _value(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return _text(content)
        case "N":
            return _number(content)
        case "BOOL":
            return 1
        case "M":
            return 3 + sum(1 + _text(name) + _value(each) for name, each in content.items())
    raise ValueError(f"an item has no type {kind!r}")


def _text(text: str) -> int:
    return len(text.encode())


def _number(text: str) -> int:
    """One byte, one for each two significant digits (without zeros at either end), and one for a minus sign."""
    number = Decimal(text).normalize()
    digits = len(number.as_tuple().digits) if number else 0
    return 1 + -(-digits // 2) + number.is_signed()
