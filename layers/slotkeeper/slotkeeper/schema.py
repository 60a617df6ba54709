"""From the text of a body to what its JSON Schema allows, or to a reason that its sender can act on; and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastjsonschema


class InvalidBody(ValueError):
    """A body that nobody can use; the text says what was wrong and what was expected."""


def compile_schema(file: Path) -> Callable[[Any], Any]:
    """The validator of a schema file, for `decode`.

    Powertools' validate() runs on fastjsonschema too, but compiles the schema in every call: 2.5 ms a message.
    """
    validate: Callable[[Any], Any] = fastjsonschema.compile(json.loads(file.read_text()))
    return validate


def decode(
    body: str | bytes,
    validate: Callable[[Any], Any],
    explain: Callable[[fastjsonschema.JsonSchemaValueException], str] | None = None,
) -> dict[str, Any]:
    """Reads a body, with the schema's defaults put in. `explain` may answer nothing to leave the words to `decode`.

    Raises:
        InvalidBody: not UTF-8, not JSON, or not what the schema says.
    """
    try:
        fields = json.loads(body.decode() if isinstance(body, bytes) else body)
        # An escaped half of a surrogate pair is JSON, but no text that any service would take.
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise InvalidBody("body is not UTF-8") from error
    except UnicodeEncodeError as error:
        raise InvalidBody("body holds half of a surrogate pair, which is not a character") from error
    except (ValueError, RecursionError) as error:
        raise InvalidBody(f"body is not JSON: {error}") from error
    try:
        valid: dict[str, Any] = validate(fields)
    except fastjsonschema.JsonSchemaValueException as error:
        raise InvalidBody((explain(error) if explain else "") or _explain(error)) from error
    return valid


def encode(value: Any, *, sort_keys: bool = False) -> str:
    """The shortest JSON text of a value that SQS takes as a body: compact, and no escapes where none is needed."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)
    # The two characters that JSON allows as they are, and SQS does not (SQS API Reference, SendMessage).
    return text.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def _explain(error: fastjsonschema.JsonSchemaValueException) -> str:
    field = str(error.name).replace("data", "body", 1)
    known = error.definition.get("properties", {}) if isinstance(error.definition, dict) else {}
    if error.rule == "required":
        missing = [name for name in error.definition["required"] if name not in error.value]
        return f"{field} must contain {', '.join(missing)}"
    if error.rule == "additionalProperties" and known:
        unknown = sorted(set(error.value) - set(known))
        return f"{field} must not contain {', '.join(unknown)[:500]}; known are {', '.join(known)}"
    expected = str(error.message).replace("data", "body", 1)
    return f"{expected} (got {json.dumps(error.value)[:200]})"
