"""What EventBridge is told of finished requests, held against the schema that producers read."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import jsonschema

from slotkeeper.events import DETAIL_TYPES, SCHEMA_FILE, SOURCE

SCHEMA: dict[str, Any] = json.loads(SCHEMA_FILE.read_text())
LARGEST_ENTRY = 262_144  # bytes (EventBridge API Reference, PutEvents)
_STRICT = jsonschema.Draft7Validator(SCHEMA | {"additionalProperties": False})


def checked(entry: dict[str, Any]) -> dict[str, Any]:
    """The detail of an entry of PutEvents. Raises if producers could not rely on it: unknown fields are bugs here."""
    detail: dict[str, Any] = entry["Detail"] if isinstance(entry["Detail"], dict) else json.loads(entry["Detail"])
    _STRICT.validate(detail)
    assert (entry["Source"], entry["DetailType"]) == (SOURCE, DETAIL_TYPES[detail["status"]])
    assert len(json.dumps(detail)) + 1000 <= LARGEST_ENTRY
    return detail


class Bus:
    """An EventBridge client that notes what it is sent. `refuse_next` are the error codes of the entries to come."""

    def __init__(self, client: Any) -> None:
        self._entries: list[dict[str, Any]] = []
        self.refuse_next: list[str] = []
        self.calls = 0
        client.meta.events.register("before-parameter-build.events.PutEvents", self._note)
        client.meta.events.register_last("before-call.events.PutEvents", self._answer)

    def _note(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["asked"] = dict(params)

    def _answer(self, context: dict[str, Any], **_: Any) -> Any:
        self.calls += 1
        (entry,) = context["asked"]["Entries"]
        if self.refuse_next:
            entry_result = {"ErrorCode": self.refuse_next.pop(0), "ErrorMessage": "refused"}
        else:
            self._entries.append(entry)
            entry_result = {"EventId": "event"}
        return SimpleNamespace(status_code=200), {
            "FailedEntryCount": int("ErrorCode" in entry_result),
            "Entries": [entry_result],
        }

    @property
    def published(self) -> list[dict[str, Any]]:
        """The details so far, each of them checked."""
        return [checked(entry) for entry in self._entries]
