"""Task tokens, which commands neither print nor send: each of them allows its reader to answer a caller's task.

The functions write no token into a dead-letter message. A message that SQS itself moved contains the caller's body.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from slotkeeper.slots.request import caller_of
from slotkeeper.slots.task_tokens import token_of
from slotkeeper.slots.task_tokens import without_token as strip

FIELD = "task_token"
HIDDEN = "(hidden)"

# For a body that is not JSON, or contains JSON as text: the field, its separator, and its value up to the next quote.
_IN_TEXT = re.compile(rf"""({FIELD}\\*["']?\s*[:=][\s\[{{]*\\*["']?)[^\s"'\\,\[\]{{}}]+""")


@dataclass(frozen=True)
class Body:
    """A request's body without its token.

    Attributes:
        text: the body, unchanged if it had no token.
        caller: what identifies the caller in the request's execution name; "" without a token.
    """

    text: str
    caller: str = ""
    had_token: bool = False


def without_token(body: str) -> Body:
    """Remove the token of a request. Its other fields, such as its input, are unchanged."""
    stripped = strip(body)
    return Body(stripped, caller_of(token_of(body)), FIELD in body and stripped != body)


def hide_tokens(text: str) -> str:
    """A text to be printed or logged, in which no token can be read: neither in JSON nor in another text."""
    if "oken" not in text and "\\u" not in text:  # a quick test; a name may be escaped
        return text
    shown = text
    try:
        value = json.loads(text)
        if (masked := _masked(value)) != value:
            shown = json.dumps(masked)
    except (ValueError, RecursionError):
        pass
    return _IN_TEXT.sub(rf"\g<1>{HIDDEN}", shown)


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: HIDDEN if name == FIELD else _masked(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_masked(each) for each in value]
    return value
