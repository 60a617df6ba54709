"""The use of a process by key: the one count of it, and its texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

from slotkeeper.slots.process import MAX_SLOT_LIMIT, Process
from slotkeeper.slots.rows import QueuedRow
from slotkeeper_cli.formatting import count

MAX_SHOWN = 10  # keys that a text or a page shows


def key_use(process: Process, rows: Iterable[QueuedRow] | None) -> list[dict[str, Any]]:
    """The keys with slots in use or queued requests: the fullest first, then those with most queued requests.

    Empty if no request has a key and no key a limit. `key` is None of requests without one, and `limit` without one.

    Args:
        rows: the queue as far as it was read; None if it was not: `queued` is then None.
    """
    queued, held = Counter(row.queued.key for row in rows or ()), process.held_by_key
    keys = {*queued, *held}
    if not any(keys) and process.key_limit is None and not process.key_limits:
        return []

    def order(key: str) -> tuple[float, int, str]:
        limit = process.limit_of(key)
        most = process.slot_limit if limit is None else limit
        return -(held.get(key, 0) / most if most else 1.0), -queued[key], key

    return [
        {
            "key": key or None,
            "in_use": held.get(key, 0),
            "limit": process.limit_of(key),
            "queued": None if rows is None else queued[key],
        }
        for key in sorted(keys, key=order)
    ]


def use_text(use: Mapping[str, Any]) -> str:
    """One of `key_use` without its key: `2 of 2 in use, 7 queued`."""
    limit = "" if use["limit"] is None else f" of {use['limit']:,}"
    return f"{use['in_use']:,}{limit} in use" + f", {use['queued'] or 0:,} queued" * bool(use["queued"])


def rest_text(keys: Sequence[Any], shown: int, is_cut: bool) -> str:
    """The rest of a list: `and 3 more keys`; empty if there is none. `is_cut`: some queued requests were not read."""
    more = [f"and {count(len(keys) - shown, 'more key')}"] * (len(keys) > shown)
    return ", ".join([*more, *["in the part of the queue that was read"] * is_cut])


def key_limit_of(text: str) -> int | None:
    """A limit of a key as a user gives it; None: none. Raises BadParameter."""
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= MAX_SLOT_LIMIT):
        raise typer.BadParameter(f"a limit must be a whole number from 0 to {MAX_SLOT_LIMIT}, or none, got {text!r}")
    return int(text)
