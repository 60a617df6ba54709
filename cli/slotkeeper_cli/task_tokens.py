"""Task tokens, which commands neither print nor send: each of them allows its reader to answer a caller's task.

The functions write no token into a dead-letter message. A message that SQS itself moved contains the caller's body.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from slotkeeper.slots.request import caller_of, masked, token_of
from slotkeeper.slots.request import without_token as strip

FIELD = "task_token"
HIDDEN = "(hidden)"


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
        if (without := _without_values(value)) != value:
            shown = json.dumps(without)
    except (ValueError, RecursionError):
        pass
    return masked(shown, HIDDEN)


def _without_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: HIDDEN if name == FIELD else _without_values(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_values(each) for each in value]
    return value
