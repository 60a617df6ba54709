"""What the stand-in sends back, and what it says to a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
