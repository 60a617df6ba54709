"""From the body of a request to a message that can be answered, or to a reason that its sender can act on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema

from slotkeeper.schema import compile_schema, decode

SCHEMA_FILE = Path(__file__).with_name("message.schema.json")

MAX_BODY_BYTES = 65536  # bytes; far more than anybody types


class MessageTooLarge(ValueError):
    """The body has more than MAX_BODY_BYTES bytes."""


@dataclass(frozen=True)
class ChatMessage:
    """A valid message. `conversation` is None where the sender named none."""

    message_id: str
    text: str
    conversation: str | None = None


def check_size(body: bytes) -> None:
    """Raises MessageTooLarge. For before anything else is done with a body, its signature included."""
    if len(body) > MAX_BODY_BYTES:
        raise MessageTooLarge(f"body has {len(body)} bytes, and must not have more than {MAX_BODY_BYTES}")


def parse_message(body: bytes) -> ChatMessage:
    """Reads a body.

    Raises:
        InvalidBody: not JSON, or not what message.schema.json says.
    """
    return ChatMessage(**decode(body, _validator(), _explain))


def _explain(error: fastjsonschema.JsonSchemaValueException) -> str:
    """What was expected, without what came: people write in a message what is for no log."""
    names_only = error.rule in ("required", "additionalProperties")
    return "" if names_only else str(error.message).replace("data", "body", 1)


@cache
def _validator() -> Callable[[Any], Any]:
    return compile_schema(SCHEMA_FILE)
