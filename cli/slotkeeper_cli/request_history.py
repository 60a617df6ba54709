"""The requests of a process in a period: how long each has waited and run, and how it ended, from rows alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime
from statistics import median
from typing import Any

from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.formatting import count, cut, duration, iso, seconds
from slotkeeper_cli.requests import state_of

ID_WIDTH = 26


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
