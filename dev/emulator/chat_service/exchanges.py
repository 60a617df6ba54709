"""A logged request, a reply, and the answer to a text. The log contains a token's number, never the token."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request. `..._monotonic` are time.monotonic(), the other instants epoch seconds."""

    number: int  # from 1
    method: str
    path: str
    began: float
    began_monotonic: float
    token: int | None = None  # the request's token, or the token that POST /auth created; None: none, or unknown
    unknown_token: bool = False
    text: str | None = None  # of POST /answers
    # None: not decided, or ended without an answer. A 401 is written when the token is checked.
    status: int | None = None
    ended: float | None = None  # None: in flight. Written before the answer is sent
    ended_monotonic: float | None = None


@dataclass(frozen=True)
class Reply:
    """An HTTP answer with a JSON body."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


def answer_to(text: str) -> str:
    """The number of words of the text, and its longest word (of several, the first).

    A text always has the same answer, so a test notices an answer that reached the wrong caller.
    """
    words = re.findall(r"\w+", text)
    if not words:
        return "You said something without a word in it."
    counted = "one word" if len(words) == 1 else f"{len(words)} words"
    return f"You said {counted}; the longest is “{max(words, key=len)}”."
