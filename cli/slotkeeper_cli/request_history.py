"""The requests of a process in a period: how long each has waited and run, and how it ended, from rows alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

from slotkeeper.slots.rows import Listed, QueuedRow, RequestRow
from slotkeeper_cli.formatting import count, cut, duration, iso, seconds
from slotkeeper_cli.requests import state_of
from slotkeeper_cli.search import Search
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import in_parallel

# Pages of 1 MB, each of some 2,000 requests: of the queue, of open requests, and of each part of what has ended.
MAX_PAGES = 50
PARTS = 48
# With a page that shows whether there are parts, and the rows that have started.
MAX_CALLS = (2 + PARTS) * MAX_PAGES + 1 + MAX_PAGES
ID_WIDTH = 26


class ProcessRequests:
    """Reads the requests of a process.

    Attributes:
        search: what could not be read.
    """

    def __init__(self, control: SlotControl, process: str) -> None:
        self.search = Search()
        self._control, self._process = control, process

    def started(self) -> list[RequestRow]:
        """The requests that have started and not ended, in the order of their grants."""
        opened = self.noted(self._control.rows.open(self._process, MAX_PAGES), "open requests")
        names = ((self._process, execution) for execution, state in opened if state == "STARTED")
        rows = self.noted(self._control.row_search.named(names), "started requests")
        return sorted((row for row in rows if row.state == "STARTED"), key=lambda row: row.granted)

    def history(self, since: float, until: float) -> list[RequestRow]:
        """The requests that have ended in a period, and those that have not ended, in the order of their sending.

        What starts or ends meanwhile is in a later read.
        """
        queued = self.noted(self._control.rows.queue(self._process, MAX_PAGES), "queued requests")
        waiting = [_row(self._process, each) for each in queued]
        found = {row.execution: row for row in [*waiting, *self.started(), *self._ended(since, until)]}
        return sorted(found.values(), key=lambda row: row.sent)

    def _ended(self, since: float, until: float) -> list[RequestRow]:
        """What has ended in a period: one page; of more, the rest in parts of equal time, some at the same time."""
        read = partial(self._control.rows.history, self._process)
        first = read(since, until, 1)
        if not first.is_cut:
            return self.noted(first, "requests that have ended")
        begin = first.rows[-1].ended or since if first.rows else since
        ends = [begin + (until - begin) * number / PARTS for number in range(PARTS + 1)]
        parts = in_parallel(lambda part: read(*part, MAX_PAGES), pairwise(ends))
        found = self.noted(replace(first, is_cut=False), "")
        for at, part in zip(ends, parts, strict=False):
            found += self.noted(part, f"requests that have ended since {iso(at)}")
        return found

    def noted[T](self, listed: Listed[T], what: str) -> list[T]:
        """What a read has found. What it has not is noted in `search`."""
        if listed.is_cut:
            self.search.note_unread("RequestTable", f"there are more than {len(listed.rows):,} {what}")
        for why in listed.malformed:
            self.search.note_unread("RequestTable", why)
        return listed.rows


def _row(process: str, queued: QueuedRow) -> RequestRow:
    """A queued request as a row. Its index does not contain the attempt, which is 0."""
    of, place = queued.queued, queued.queued.place
    made = RequestRow(process, of.execution, "QUEUED", queued.request_id, 0, queued.priority, queued.sent)
    return replace(made, place=place, placed=place, weight=of.weight, start_before=of.start_before, skips=of.skips)


def history_as_dict(rows: Collection[RequestRow], now: float) -> dict[str, Any]:
    """Requests, and their totals, as JSON shows them."""
    waits = [row.started - row.sent for row in rows if row.started is not None]
    return {
        "requests": [_as_dict(row, now) for row in rows],
        "outcomes": dict(Counter(state_of(row.state) for row in rows)),
        "started": len(waits),
        "median_wait_seconds": round(median(waits)) if waits else None,
        "longest_wait_seconds": round(max(waits)) if waits else None,
    }


def _as_dict(row: RequestRow, now: float) -> dict[str, Any]:
    times = {"sent": row.sent, "started": row.started, "ended": row.ended}
    start = row.started or row.ended or now
    return {
        "request_id": row.request_id,
        "attempt": row.attempt or None,
        "execution": row.execution if row.started else None,
        "outcome": state_of(row.state),
        "code": row.code or None,
        **{name: None if moment is None else iso(moment) for name, moment in times.items()},
        "waited_seconds": max(0, round(start - row.sent)),
        "ran_seconds": None if row.started is None else max(0, round((row.ended or now) - row.started)),
    }


def history_lines(data: dict[str, Any]) -> Iterator[str]:
    """The lines of `history_as_dict`, one for each request, and the totals."""
    if data["requests"]:
        yield f"{'request':<{ID_WIDTH}}  {'sent':<19}  {'waited':<12}  {'started':<14}  {'ended':<14}  outcome"
    for one in data["requests"]:
        sent = datetime.fromtimestamp(seconds(one["sent"]))
        started, ended = (_time(one[name], sent) for name in ("started", "ended"))
        code = f" ({one['code']})" if one["code"] else ""
        named = f"{cut(one['request_id'], ID_WIDTH):<{ID_WIDTH}}  {sent}  {duration(one['waited_seconds']):<12}"
        yield f"{named}  {started:<14}  {ended:<14}  {one['outcome']}{code}"
    outcomes = ", ".join(f"{number:,} {outcome}" for outcome, number in data["outcomes"].items())
    text = count(len(data["requests"]), "request") + (f": {outcomes}." if outcomes else ".")
    if data["started"]:
        middle, longest = duration(data["median_wait_seconds"]), duration(data["longest_wait_seconds"])
        text += f" Of the {data['started']:,} that have started, the median wait is {middle}, the longest {longest}."
    yield text


def _time(text: str | None, sent: datetime) -> str:
    """A time; with its date if that is not the one of the sending."""
    if text is None:
        return ""
    moment = datetime.fromtimestamp(seconds(text))
    return f"{moment:%H:%M:%S}" if moment.date() == sent.date() else f"{moment:%m-%d %H:%M:%S}"
