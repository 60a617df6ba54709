"""The work message: parses a body of the queue, and writes the body of the next attempt."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import fastjsonschema

from slotkeeper.schema import InvalidBody, compile_schema, decode, encode

SCHEMA_FILE = Path(__file__).with_name("work.schema.json")
MAX_PAYLOAD_DEPTH = 100


class InvalidMessage(ValueError):
    """A body that is not a valid message. The message states the fault and the expected form."""


@dataclass(frozen=True)
class Message:
    """One attempt of a request.

    Args:
        retries: when the earlier attempts started, seconds since the epoch, in order.
        uncounted: how many of those do not count as attempts.
        payload_text: the payload's JSON text as its sender wrote it.
        source: the body from which the message was parsed.
    """

    request_id: str
    payload: Mapping[str, Any] = field(repr=False)
    retries: tuple[float, ...] = ()
    uncounted: int = 0
    payload_text: str = field(default="", repr=False, compare=False)
    source: str = field(default="", repr=False, compare=False)

    @property
    def attempt(self) -> int:
        return len(self.retries) + 1

    def after(self, started_at: float, *, counted: bool = True) -> Message:
        """Return the message of the next attempt. `started_at`: when this attempt started, epoch seconds."""
        return replace(self, retries=(*self.retries, started_at), uncounted=self.uncounted + (not counted), source="")

    @cached_property
    def payload_hash(self) -> str:
        """A hash that differs for two payloads with the same request id."""
        return hashlib.sha256(json.dumps(self.payload, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """Encode the body. The payload keeps its sender's text: parsed and encoded, 1e9 would become 1000000000.0."""
        fields = [
            ("request_id", encode(self.request_id)),
            ("payload", self.payload_text or encode(self.payload)),
            ("retries", encode([instant(started_at) for started_at in self.retries])),
        ]
        if self.uncounted:
            fields.append(("uncounted", encode(self.uncounted)))
        return "{" + ",".join(f'"{name}":{value}' for name, value in fields) + "}"


def parse_message(body: str) -> Message:
    """Parse a body.

    Raises:
        InvalidMessage: the body is not JSON, does not match work.schema.json, or contains an invalid time.
    """
    try:
        fields = decode(body, _validator(), _explain)
    except InvalidBody as error:
        raise InvalidMessage(str(error)) from error
    _check_values(fields["payload"])
    if fields["uncounted"] > len(fields["retries"]):
        raise InvalidMessage(
            f"body.uncounted is {fields['uncounted']} but body.retries has {len(fields['retries'])} entries: "
            "uncounted is the number of these that do not count"
        )
    return Message(
        request_id=fields["request_id"],
        payload=fields["payload"],
        retries=tuple(_time(text) for text in fields["retries"]),
        uncounted=int(fields["uncounted"]),
        payload_text=_payload_text(body),
        source=body,
    )


def _payload_text(body: str) -> str:
    """Return the JSON text of a body's payload. If the field is repeated, the last one counts, as in JSON parsers."""
    read = json.JSONDecoder().raw_decode
    text, at = "", _past_space(body, 0)
    while body[at] != "}":
        name, at = read(body, _past_space(body, at + 1))  # past the brace or the comma
        value_at = _past_space(body, _past_space(body, at) + 1)  # past the colon
        _, at = read(body, value_at)
        if name == "payload":
            text = body[value_at:at]
        at = _past_space(body, at)
    return text


def _past_space(text: str, at: int) -> int:
    while text[at] in " \t\n\r":
        at += 1
    return at


def instant(seconds: float) -> str:
    """Format seconds since the epoch for people: UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def epoch(text: str) -> float:
    """Parse a time that `instant` has formatted. Raises ValueError."""
    return datetime.fromisoformat(text).timestamp()


def _time(text: str) -> float:
    try:
        started_at = epoch(text)
        instant(started_at)  # the last microsecond of the year 9999 can be parsed, but not formatted again
        return started_at
    except ValueError as error:
        raise InvalidMessage(f"body.retries contains {text!r}, which is not a valid time: {error}") from error


def _explain(error: fastjsonschema.JsonSchemaValueException) -> str:
    """Explain an error without the payload, because reasons are logged. The dead-letter message contains the body."""
    names_only = error.rule in ("required", "additionalProperties")  # these explanations contain only names
    has_no_values = names_only or error.name not in ("data", "data.payload")
    return "" if has_no_values else str(error.message).replace("data", "body", 1)


def _check_values(payload: Any) -> None:
    """Raise InvalidMessage for values that Python parses as JSON but cannot encode as JSON again."""
    level = [payload]
    for _ in range(MAX_PAYLOAD_DEPTH):
        if any(isinstance(item, float) and not math.isfinite(item) for item in level):
            raise InvalidMessage("body.payload contains NaN, Infinity or a number beyond 1.8e308, which are not JSON")
        level = [inner for item in level for inner in _items(item)]
        if not level:
            return
    raise InvalidMessage(f"body.payload is nested more than {MAX_PAYLOAD_DEPTH} levels deep, which is the maximum")


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


@cache
def _validator() -> Callable[[Any], Any]:
    return compile_schema(SCHEMA_FILE)
