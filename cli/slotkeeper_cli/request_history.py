"""The requests of a process: those of a period, from rows alone, and those that are open or ended last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from enum import StrEnum
from statistics import median
from typing import Any

from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.request_table import State
from slotkeeper.slots.rows import Listed, RequestRow
from slotkeeper_cli.account import Account
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.process_queue import ProcessQueue, read_queue
from slotkeeper_cli.process_rows import ProcessRows
from slotkeeper_cli.requests import attempt_as_dict, state_of
from slotkeeper_cli.unread import Search


class ListedState(StrEnum):
    """A state of a request, as an option."""

    QUEUED = "queued"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    TOO_LATE = "too-late"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    RETURNED = "returned"
    REDRIVEN = "redriven"


# Of the requests that have ended, those that a list without states has.
LAST_ENDED = 10


def history(
    account: Account,
    process: str,
    since: float,
    until: float,
    states: Collection[ListedState],
    now: float,
    key: str | None = None,
) -> dict[str, Any]:
    """The requests of a process that ended in a period, and those that have not ended, in the order of their sending.

    Args:
        since, until: seconds since the epoch. A request that was sent after `until` is not of the period. The clocks
            of the functions differ from this one: with an `until` of now or later, none is left out.
        states: those to list; empty: all.
        now: seconds since the epoch.
        key: only requests of it, "" for those without one; None: all.

    Raises:
        NotFound: there is no such process, and it has no such requests.
    """
    search, is_past = Search(), until < now
    # What ends during the reads has ended too.
    rows = account.history(search, process, since, until if is_past else now + 600)
    if not rows:
        account.process(process)
    rows = [row for row in rows if (not states or _listed_as(row.state) in states) and key in (None, row.key)]
    rows = [row for row in rows if not is_past or row.sent <= until]
    waits = [row.started - row.sent for row in rows if row.started is not None]
    return {
        "process": process,
        "since": iso(since),
        "until": iso(until),
        "requests": [_row(row, now) for row in rows],
        "outcomes": dict(Counter(state_of(row.state) for row in rows)),
        "started": len(waits),
        "median_wait_seconds": round(median(waits)) if waits else None,
        "longest_wait_seconds": round(max(waits)) if waits else None,
        "not_read": [each.as_dict() for each in search.not_read],
    }


def listing(
    account: Account, process: str, states: Collection[ListedState], limit: int, now: float, key: str | None = None
) -> dict[str, Any]:
    """The open requests of a process with their places, and those that ended last.

    Args:
        states: those to list; empty: the open ones, and LAST_ENDED of the others.
        limit: the number of requests.
        now: seconds since the epoch.
        key: as of `history`.

    Raises:
        NotFound: there is no such process, and it has no such requests.
    """
    search, wanted = Search(), set(states or ListedState)
    found = account.item(process)
    if isinstance(found, MalformedProcess):
        search.note_malformed(found)
    queue = read_queue(account, search, found, now) if found and "queued" in wanted else None
    waiting = [each for each in queue.requests if key in (None, each["key"] or "")] if queue else []
    queued = _queued(account, search, queue, waiting[:limit]) if queue else []
    reader = ProcessRows(search, account.control.rows, account.control.row_search, process)
    started = reader.started() if "started" in wanted else []
    # Requests that have started since the queue was read.
    running = {row.execution for row in started}
    queued = [each for each in queued if each["execution"] not in running]
    started = [row for row in started if key in (None, row.key)]
    most = limit if states else LAST_ENDED
    ended = _ended(account, search, process, wanted - {"queued", "started"}, key, most)
    if found is None and not (started or ended):
        raise account.control.not_found(process)
    requests = [*(_row(row, now) for row in started), *queued, *(_row(row, now) for row in ended)]
    return {
        "process": process,
        "queued": len(waiting) if queue else None,
        "is_cut": queue.is_cut if queue else False,
        "requests": requests[:limit],
        "not_shown": max(0, len(started) + len(waiting) + len(ended) - limit),
        "not_read": [each.as_dict() for each in search.not_read],
    }


def _queued(
    account: Account, search: Search, queue: ProcessQueue, waiting: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    ended = search.try_read("history", lambda: account.newest_ends(queue.name), Listed[RequestRow]())
    starts = queue.expected_starts(ended.rows)
    return [each | {"expected_start": starts.get(each["execution"])} for each in waiting]


def _ended(
    account: Account, search: Search, process: str, states: Collection[ListedState], key: str | None, most: int
) -> list[RequestRow]:
    listed = account.newest_ends(process) if states else Listed[RequestRow]()
    search.note_malformed_rows(listed.malformed)
    found = [row for row in listed.rows if _listed_as(row.state) in states and key in (None, row.key)][:most]
    if listed.is_cut and len(found) < most:
        search.note_unread("RequestTable", f"what ended before the last {len(listed.rows):,}: give --since")
    return found


def _row(row: RequestRow, now: float) -> dict[str, Any]:
    since, start = row.ended or row.started or row.sent, row.started or row.ended or now
    return {
        "request_id": row.request_id,
        **attempt_as_dict(row),
        "attempt": row.attempt or None,  # of a queued one it is not read
        "position": None,
        "key": row.key or None,
        "since": iso(since),
        "age_seconds": int(now - since),
        "waited_seconds": max(0, round(start - row.sent)),
        "ran_seconds": None if row.started is None else max(0, round((row.ended or now) - row.started)),
    }


def _listed_as(state: State) -> ListedState:
    return ListedState(state_of(state).replace(" ", "-"))
