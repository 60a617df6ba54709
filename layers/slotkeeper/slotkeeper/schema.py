"""Decodes JSON bodies by their JSON Schema, with errors that the sender can act on, and encodes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastjsonschema


class InvalidBody(ValueError):
    """A body that is not valid. The message states the fault and the expected form."""


def compile_schema(file: Path) -> Callable[[Any], Any]:
    """Compile a schema file to a validator for `decode`.

    Powertools' validate() uses fastjsonschema too, but compiles the schema in every call: 2.5 ms per message.
    """
    validate: Callable[[Any], Any] = fastjsonschema.compile(json.loads(file.read_text()))
    return validate


def decode(
    body: str | bytes,
    validate: Callable[[Any], Any],
    explain: Callable[[fastjsonschema.JsonSchemaValueException], str] | None = None,
) -> dict[str, Any]:
    """Decode a body and fill in the schema's defaults.

    Args:
        explain: returns the message for a schema error, or "" for the default message.

    Raises:
        InvalidBody: the body is not UTF-8, not JSON, or does not match the schema.
    """
    try:
        fields = json.loads(body.decode() if isinstance(body, bytes) else body)
        # JSON may contain an escaped half of a surrogate pair, but no AWS service accepts such a text.
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise InvalidBody("body is not UTF-8") from error
    except UnicodeEncodeError as error:
        raise InvalidBody("body contains half of a surrogate pair, which is not a character") from error
    except (ValueError, RecursionError) as error:
        raise InvalidBody(f"body is not JSON: {error}") from error
    try:
        valid: dict[str, Any] = validate(fields)
    except fastjsonschema.JsonSchemaValueException as error:
        raise InvalidBody((explain(error) if explain else "") or _explain(error)) from error
    return valid


def encode(value: Any, *, sort_keys: bool = False) -> str:
    """Encode a value as the shortest JSON text that SQS accepts: without spaces, and with necessary escapes only."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)
    # JSON allows these two characters unescaped; SQS does not (SQS API Reference, SendMessage).
    return text.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def _explain(error: fastjsonschema.JsonSchemaValueException) -> str:
    field = str(error.name).replace("data", "body", 1)
    known = error.definition.get("properties", {}) if isinstance(error.definition, dict) else {}
    if error.rule == "required":
        missing = [name for name in error.definition["required"] if name not in error.value]
        return f"{field} must contain {', '.join(missing)}"
    if error.rule == "additionalProperties" and known:
        unknown = sorted(set(error.value) - set(known))
        return f"{field} must not contain {', '.join(unknown)[:500]}; allowed are {', '.join(known)}"
    expected = str(error.message).replace("data", "body", 1)
    return f"{expected} (got {json.dumps(error.value)[:200]})"
