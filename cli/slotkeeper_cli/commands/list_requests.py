"""`slotkeeper request list`: the requests of a process, with their positions and why each waits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper_cli.account import Account
from slotkeeper_cli.completion import ProcessName
from slotkeeper_cli.context import current_context
from slotkeeper_cli.formatting import count, duration, local_time, seconds
from slotkeeper_cli.keys import KeyFilter
from slotkeeper_cli.output import table
from slotkeeper_cli.periods import SINCE, UNTIL, period
from slotkeeper_cli.request_history import LAST_ENDED, ListedState, history, listing
from slotkeeper_cli.unread import print_not_read


def list_requests(
    process: ProcessName,
    state: Annotated[
        list[ListedState] | None,
        typer.Option(
            help="Only requests of this state; may be repeated. By default those that have not ended, and "
            f"the {LAST_ENDED} that ended last."
        ),
    ] = None,
    key: KeyFilter = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"All that ended in a period, and all open ones. {SINCE}.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help=f"With --since: {UNTIL.lower()}")] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="Maximum number of requests; without effect with --since.")
    ] = 100,
) -> None:
    """List the requests of a process.

    Those that have started come first, then the queued ones with their places, then those that ended last. Each is on
    one line, with the time since it is in its state. With --since, it lists every request that ended in a period or has
    not ended, in the order of their sending: how long it waited, when it started and ended, and how; and their number,
    median and longest wait. It is complete, or states what was not read.
    """
    context, now = current_context(), time.time()
    account = Account(context.stack)
    if until and not since:
        raise typer.BadParameter("--until needs --since")
    if since:
        start, end = period(since, until or "0m", now)
        past = history(account, process, start, end, state or [], now, key)
        context.out.result(past, lambda console: _render_history(console, past))
        return
    data = listing(account, process, state or [], limit, now, key)
    context.out.result(data, lambda console: _render_list(console, data))


def _render_list(console: Console, data: dict[str, Any]) -> None:
    requests = data["requests"]
    if requests:
        _print_columns(console, _columns(requests))
    else:
        console.print(f"{data['process']} has no such request.")
    if data["not_shown"]:
        console.print(f"{data['not_shown']:,} more not shown: above --limit {len(requests)}")
    if data["is_cut"]:
        console.print(f"Only a part was read: more than {data['queued']:,} requests are queued.", style="yellow")
    print_not_read(console, data["not_read"])


def _columns(requests: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The headings with their cells; without columns that state the same of each request."""
    starts = [(each.get("expected_start") or {}).get("seconds") for each in requests]
    columns = {
        "place": [f"{each['position']:,}" if each["position"] else _state(each) for each in requests],
        "request": [each["request_id"] for each in requests],
        "key": [each["key"] or "" for each in requests],
        "since": [duration(each["age_seconds"]) for each in requests],
        "priority": [each["priority"] for each in requests],
        "weight": [str(each["weight"] or "") for each in requests],
        "starts in": ["" if start is None else duration(start) for start in starts],
        "why": [each.get("because") or each.get("reason") or "" for each in requests],
    }
    return _without_usual(columns)


def _without_usual(columns: dict[str, list[str]]) -> dict[str, list[str]]:
    usual = {"key": {""}, "priority": {"normal"}, "weight": {"", "1"}, "starts in": {""}}
    return {name: cells for name, cells in columns.items() if not set(cells) <= usual.get(name, set())}


def _state(request: dict[str, Any]) -> str:
    """The state of a request without a position; of a queued one, why it has none."""
    names = [reason["condition"] for reason in request.get("reasons", [])]
    places = {"starting": "starting", "limit": "blocked", "key limit": "blocked"}
    places |= dict.fromkeys(("queue", "key slots", "pause", "malformed process"), "queued")
    return str(places.get(names[0], "leaves") if names else request["state"])


def _render_history(console: Console, data: dict[str, Any]) -> None:
    requests = data["requests"]
    sent = [datetime.fromtimestamp(seconds(each["sent"])).astimezone() for each in requests]
    if requests:
        # A zone has another name in summer.
        zones = "/".join(dict.fromkeys(f"{moment:%Z}" for moment in sent))
        columns = {
            "request": [each["request_id"] for each in requests],
            "key": [each["key"] or "" for each in requests],
            f"sent ({zones})": [f"{moment:%m-%d %H:%M:%S}" for moment in sent],
            "waited": [duration(each["waited_seconds"]) for each in requests],
            "started": [_time(each.get("started"), moment) for each, moment in zip(requests, sent, strict=True)],
            "ended": [_time(each.get("ended"), moment) for each, moment in zip(requests, sent, strict=True)],
            "outcome": [_outcome(each) for each in requests],
        }
        _print_columns(console, _without_usual(columns))
    times = " ".join(f"{name} {local_time(seconds(data[name]))}" for name in ("since", "until"))
    outcomes = ", ".join(f"{number:,} {outcome}" for outcome, number in data["outcomes"].items())
    text = f"{count(len(requests), 'request')} {times}{f': {outcomes}' * bool(outcomes)}."
    if data["started"]:
        middle, longest = duration(data["median_wait_seconds"]), duration(data["longest_wait_seconds"])
        text += f" Of the {data['started']:,} that have started, the median wait is {middle}, the longest {longest}."
    console.print(text)
    print_not_read(console, data["not_read"])


def _outcome(request: dict[str, Any]) -> str:
    """How it ended; with its code, if that states more."""
    outcome, code = request["state"], request.get("code", "")
    return f"{outcome} ({code})" if code.casefold() not in ("", outcome.replace(" ", "")) else outcome


def _time(text: str | None, sent: datetime) -> str:
    """A time; with its date if that is not the one of the sending."""
    if text is None:
        return ""
    moment = datetime.fromtimestamp(seconds(text))
    return f"{moment:%H:%M:%S}" if moment.date() == sent.date() else f"{moment:%m-%d %H:%M:%S}"


def _print_columns(console: Console, columns: dict[str, list[str]]) -> None:
    """Print cells below their headings, a request on each line."""
    made = table(*columns)
    for cells in zip(*columns.values(), strict=True):
        made.add_row(*cells)
    console.print(made)
