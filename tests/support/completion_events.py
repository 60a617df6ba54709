"""The completion events that EventBridge receives, validated by the schema that producers read."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import jsonschema

from slotkeeper.events import DETAIL_TYPES, SCHEMA_FILE, SOURCE
from tests.support.boundary import note_parameters

SCHEMA: dict[str, Any] = json.loads(SCHEMA_FILE.read_text())
LIMITED_FLOW = "gated"  # words: allowed, the value of `flow` in the events of limited jobs
LARGEST_ENTRY = 262_144  # bytes (EventBridge API Reference, PutEvents)
_STRICT = jsonschema.Draft7Validator(SCHEMA | {"additionalProperties": False})


def checked(entry: dict[str, Any]) -> dict[str, Any]:
    """The detail of an entry of PutEvents. Raises if the schema does not allow it; an unknown field is a bug here."""
    detail: dict[str, Any] = entry["Detail"] if isinstance(entry["Detail"], dict) else json.loads(entry["Detail"])
    _STRICT.validate(detail)
    assert (entry["Source"], entry["DetailType"]) == (SOURCE, DETAIL_TYPES[detail["status"]])
    assert len(json.dumps(detail)) + 1000 <= LARGEST_ENTRY
    return detail


class Bus:
    """Records the entries that an EventBridge client sends. `refuse_next` has error codes for the next entries."""

    def __init__(self, client: Any) -> None:
        self._entries: list[dict[str, Any]] = []
        self.refuse_next: list[str] = []
        self.calls = 0
        client.meta.events.register("before-parameter-build.events.PutEvents", note_parameters)
        client.meta.events.register_last("before-call.events.PutEvents", self._answer)

    def _answer(self, context: dict[str, Any], **_: Any) -> Any:
        self.calls += 1
        (entry,) = context["parameters"]["Entries"]
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
        """The details of all accepted entries, each checked."""
        return [checked(entry) for entry in self._entries]
