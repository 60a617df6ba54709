"""A request as the stand-in logs it, the reply, and the answer to a text. A token is logged by its number alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request, in the order of arrival. `..._monotonic` are time.monotonic(), the other instants epoch seconds."""

    number: int  # from 1
    method: str
    path: str
    began: float
    began_monotonic: float
    token: int | None = None  # the token it bore, or that it made (POST /auth); None: none, or never one of ours
    unknown_token: bool = False  # it bore one that was never made here
    text: str | None = None  # what POST /answers asked
    # None: not decided, or ended without an answer. A 401 stands here as soon as the token is judged.
    status: int | None = None
    ended: float | None = None  # None: in flight. Written before the answer leaves
    ended_monotonic: float | None = None


@dataclass(frozen=True)
class Reply:
    """An HTTP answer with a JSON body."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


def answer_to(text: str) -> str:
    """How many words the text has, and which is the longest (of several, the first).

    The same text always has the same answer, so an answer that reached the wrong asker is seen.
    """
    words = re.findall(r"\w+", text)
    if not words:
        return "You said something without a word in it."
    counted = "one word" if len(words) == 1 else f"{len(words)} words"
    return f"You said {counted}; the longest is “{max(words, key=len)}”."
