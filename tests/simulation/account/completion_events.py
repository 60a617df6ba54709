"""The events that EventBridge receives, validated by the schemas that their consumers read."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from slotkeeper.events import (
    BREAKER_DETAIL_TYPES,
    BREAKER_SCHEMA_FILE,
    BREAKER_SOURCE,
    DETAIL_TYPES,
    SCHEMA_FILE,
    SOURCE,
)

SCHEMA: dict[str, Any] = json.loads(SCHEMA_FILE.read_text())
BREAKER_SCHEMA: dict[str, Any] = json.loads(BREAKER_SCHEMA_FILE.read_text())
LIMITED_FLOW = "slots"
LARGEST_ENTRY = 262_144  # bytes (EventBridge API Reference, PutEvents)
_STRICT = {
    source: jsonschema.Draft7Validator(schema | {"additionalProperties": False})
    for source, schema in ((SOURCE, SCHEMA), (BREAKER_SOURCE, BREAKER_SCHEMA))
}


def checked(entry: dict[str, Any]) -> dict[str, Any]:
    """The detail of an entry of PutEvents. Raises if the schema does not allow it; an unknown field is a bug here."""
    detail: dict[str, Any] = entry["Detail"] if isinstance(entry["Detail"], dict) else json.loads(entry["Detail"])
    _STRICT[entry["Source"]].validate(detail)
    is_completion = entry["Source"] == SOURCE
    kind = DETAIL_TYPES[detail["status"]] if is_completion else BREAKER_DETAIL_TYPES[detail["state"]]
    assert entry["DetailType"] == kind
    assert len(json.dumps(detail)) + 1000 <= LARGEST_ENTRY
    return detail


class Bus:
    """The entries that EventBridge has accepted. `refuse_next` has error codes for the next entries."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.refuse_next: list[str] = []
        self.calls = 0

    def put(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The result of each entry."""
        self.calls += 1
        return [self._put(entry) for entry in entries]

    def _put(self, entry: dict[str, Any]) -> dict[str, Any]:
        if self.refuse_next:
            return {"ErrorCode": self.refuse_next.pop(0), "ErrorMessage": "refused"}
        self.entries.append(entry)
        return {"EventId": "event"}

    @property
    def published(self) -> list[dict[str, Any]]:
        """The details of all accepted entries, each checked now: the sender would catch the error."""
        return [checked(entry) for entry in self.entries]
