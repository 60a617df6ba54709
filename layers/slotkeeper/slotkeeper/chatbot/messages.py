"""Parses request bodies into chat messages, or into reasons that the sender can act on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema

from slotkeeper.schema import compile_schema, decode

SCHEMA_FILE = Path(__file__).with_name("message.schema.json")

MAX_BODY_BYTES = 65536  # far more than people type


class MessageTooLarge(ValueError):
    """The body has more than MAX_BODY_BYTES bytes."""


@dataclass(frozen=True)
class ChatMessage:
    """A valid message. `conversation` is None if the sender set none."""

    message_id: str
    text: str
    conversation: str | None = None


def check_size(body: bytes) -> None:
    """Raise MessageTooLarge if a body is too large. Call it before verifying the signature."""
    if len(body) > MAX_BODY_BYTES:
        raise MessageTooLarge(f"body has {len(body)} bytes; at most {MAX_BODY_BYTES} are accepted")


def parse_message(body: bytes) -> ChatMessage:
    """Parse a body.

    Raises:
        InvalidBody: the body is not JSON or does not match message.schema.json.
    """
    return ChatMessage(**decode(body, _validator(), _explain))


def _explain(error: fastjsonschema.JsonSchemaValueException) -> str:
    """State what was expected without the received value, because a message may contain personal data."""
    names_only = error.rule in ("required", "additionalProperties")
    return "" if names_only else str(error.message).replace("data", "body", 1)


@cache
def _validator() -> Callable[[Any], Any]:
    return compile_schema(SCHEMA_FILE)
