"""The fields of a request in the body of a message or in the input of an execution, which may be malformed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slotkeeper.slots.request import DEFAULT_PRIORITY, MAX_WEIGHT, PRIORITIES, Priority


def fields_in(text: str) -> Mapping[str, Any]:
    """The fields of a JSON object that can be encoded as UTF-8; empty for any other text."""
    try:
        fields = json.loads(text)
        # Half of a surrogate pair, escaped, is valid JSON, but can be neither printed nor hashed.
        json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def priority_in(fields: Mapping[str, Any]) -> Priority:
    """The priority of a request; the default one if the field is missing or invalid."""
    return next((each for each in PRIORITIES if each == fields.get("priority")), DEFAULT_PRIORITY)


def weight_in(fields: Mapping[str, Any]) -> int | None:
    """The weight that a request states; None if it states none, or an invalid one."""
    weight = fields.get("weight")
    is_valid = isinstance(weight, int) and not isinstance(weight, bool) and 1 <= weight <= MAX_WEIGHT
    return weight if is_valid else None
