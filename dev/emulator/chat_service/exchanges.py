"""Requests, replies, tokens, outages, and the answer to a text. The log has a token's number, never the token."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["answer", "drop", "hang", "hold"]


@dataclass(frozen=True)
class Request:
    """One request. Its instants are epoch seconds."""

    number: int  # from 1
    method: str
    path: str
    began: float
    token: int | None = None  # the request's token, or the token that POST /auth created; None: none, or unknown
    text: str | None = None  # of POST /answers
    # None: not decided, or ended without an answer. A 401 is written when the token is checked.
    status: int | None = None
    ended: float | None = None  # None: in flight. Written before the answer is sent


@dataclass(frozen=True)
class Reply:
    """An HTTP answer with a JSON body."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenLife:
    """One token, numbered from 1 in the order of creation. Times are epoch seconds."""

    number: int
    since: float
    until: float | None = None  # None: live
    ended_by: Literal["auth", "invalidate"] | None = None  # a newer token, or an invalidation


@dataclass(frozen=True)
class Outage:
    """The way in which a route fails.

    Kinds:
    - `answer`: answers `status` immediately, with Retry-After if `retry_after` (seconds) is set;
    - `drop`: closes the connection without an answer;
    - `hang`: gives no answer until the outage ends, then closes the connection;
    - `hold`: delays the request until the outage ends, then serves it. A test stops a client there without sleeping.

    Args:
        takes_effect: process the request first, and lose or replace only its answer. `POST /auth` creates a token.
        times: the number of requests that fail; None: all until the outage ends.
    """

    kind: Kind = "answer"
    status: int = 503
    retry_after: int | None = None
    takes_effect: bool = False
    times: int | None = None


def answer_to(text: str) -> str:
    """The number of words of the text, and its longest word (of several, the first).

    A text always has the same answer, so a test notices an answer that reached the wrong caller.
    """
    words = re.findall(r"\w+", text)
    if not words:
        return "You said something without a word in it."
    counted = "one word" if len(words) == 1 else f"{len(words)} words"
    return f"You said {counted}; the longest is “{max(words, key=len)}”."
