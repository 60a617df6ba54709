"""Task tokens in message bodies: finds and removes them.

With a token anyone who may call Step Functions can answer the caller, so bodies that operators read contain none.
"""

from __future__ import annotations

import json
import re
from typing import Any

from slotkeeper.schema import encode

MAX_TOKEN_CHARACTERS = 2048  # Step Functions API Reference, SendTaskSuccess
# A token in any text: cut, not JSON, or JSON in a JSON string, where each quote has the same number of backslashes. A
# quoted value ends at its quote with as many backslashes; a quote with more of them is a character of the value.
_TOKEN_TEXT = re.compile(
    r"""
    (task_token \\* ["']? \s* [:=] [\s\[{]* (?: (?P<escape> \\*) (?P<quote> ["']) )?)
    (?(quote)
        (?: [^\\"'] | (?! (?P=escape) (?P=quote)) \\+ . | (?! (?P=quote)) ["'] )+
      | [^\s"'\\,\[\]{}]+
    )
    """,
    re.DOTALL | re.VERBOSE,
)


def token_of(body: str) -> str:
    """The task token in a body that need not be a valid request; "" if it has none that Step Functions would take."""
    token = (_object(body) or {}).get("task_token")
    if not isinstance(token, str) or not token.isascii():
        return ""
    return token if 1 <= len(token) <= MAX_TOKEN_CHARACTERS else ""


def without_token(body: str) -> str:
    """The body without its task token, and without the digest of it; unchanged if it has neither.

    In a body that is not a JSON object, the token's text is removed.
    """
    fields = _object(body)
    if fields is None:
        return masked(body)
    if not fields.keys() & {"task_token", "caller"}:
        return body
    try:
        return encode({name: value for name, value in fields.items() if name not in ("task_token", "caller")})
    except RecursionError:
        return masked(body)


def masked(text: str, hidden: str = "...") -> str:
    """The text with each task token in it replaced by `hidden`: for messages that repeat a part of a body."""
    return _TOKEN_TEXT.sub(rf"\g<1>{hidden}", text)


def _object(body: str) -> dict[str, Any] | None:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
