"""The use of a process by key: the one count of it, and its texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slotkeeper.slots.process import Process
from slotkeeper.slots.rows import QueuedRow
from slotkeeper_cli.formatting import count

MAX_SHOWN = 10  # keys that a text or a page shows


def key_use(process: Process, rows: Iterable[QueuedRow] | None) -> list[dict[str, Any]]:
    """The keys with slots in use or queued requests, as JSON shows them: the fullest first, then the most queued.

    Args:
        rows: the queue as far as it was read; None if it was not: `queued` is then None.

    Returns:
        of each key its `key`, None of requests without one; `in_use`, in the unit of the limit; `limit`, None without
        one; and `queued`, a number of requests. Empty if no request has a key and no key a limit.
    """
    queued = Counter(row.queued.key for row in rows or ())
    held = process.held_by_key
    if not any(key for key in (*queued, *held)) and process.key_limit is None and not process.key_limits:
        return []
    found = [(key, held.get(key, 0), process.limit_of(key), queued[key]) for key in {*queued, *held}]

    def order(use: tuple[str, int, int | None, int]) -> tuple[float, int, str]:
        key, in_use, limit, number = use
        most = process.slot_limit if limit is None else limit
        return -(in_use / most if most else 1.0), -number, key

    return [
        {"key": key or None, "in_use": in_use, "limit": limit, "queued": None if rows is None else number}
        for key, in_use, limit, number in sorted(found, key=order)
    ]


def use_text(use: Mapping[str, Any]) -> str:
    """One of `key_use` without its key: `2 of 2 in use, 7 queued`."""
    limit = "" if use["limit"] is None else f" of {use['limit']:,}"
    return f"{use['in_use']:,}{limit} in use" + f", {use['queued'] or 0:,} queued" * bool(use["queued"])


def rest_text(keys: Sequence[Any], shown: int, is_cut: bool) -> str:
    """The rest of a list: `and 3 more keys`; empty if there is none. `is_cut`: some queued requests were not read."""
    more = [f"and {count(len(keys) - shown, 'more key')}"] * (len(keys) > shown)
    return ", ".join([*more, *["in the part of the queue that was read"] * is_cut])
