"""Texts of senders, as terminals and e-mail show them."""

from __future__ import annotations

import json


def printable(text: str, *, keep: str = "") -> str:
    r"""The text with each character escaped that cannot be printed, such as ESC as `\u001b` and a line feed as `\n`.

    A sender chooses the ids of requests, and other systems the messages of errors. Their control characters would move
    the cursor, change the window's title, or add a line that looks like one of the output. The escapes are those of
    JSON, so that JSON remains the same document.

    Args:
        keep: characters that are not escaped.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else json.dumps(each)[1:-1] for each in text)
