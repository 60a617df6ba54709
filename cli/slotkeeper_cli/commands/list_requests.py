"""`slotkeeper request list`: the requests of a process, with their positions and why each waits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console

from slotkeeper.printable import printable
from slotkeeper_cli.account import Account
from slotkeeper_cli.completion import ProcessName
from slotkeeper_cli.context import current_context
from slotkeeper_cli.formatting import count, cut, duration, local_time, one_line, seconds
from slotkeeper_cli.output import styled
from slotkeeper_cli.periods import SINCE, UNTIL, period
from slotkeeper_cli.request_history import LAST_ENDED, ListedState, history, listing
from slotkeeper_cli.unread import print_not_read

# Cells of an id, and in a terminal of 80 columns.
ID_WIDTH, NARROW_ID = 26, 16
# Of the last column, which is cut to the width of the terminal.
_NARROWEST, _WIDE = 10, 60


def list_requests(
    process: ProcessName,
    state: Annotated[
        list[ListedState] | None,
        typer.Option(
            help="Only requests of this state; may be repeated. By default those that have not ended, and "
            f"the {LAST_ENDED} that ended last."
        ),
    ] = None,
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
        past = history(account, process, start, end, state or [], now)
        context.out.result(past, lambda console: _render_history(console, past))
        return
    data = listing(account, process, state or [], limit, now)
    context.out.result(data, lambda console: _render_list(console, data))


def _render_list(console: Console, data: dict[str, Any]) -> None:
    requests = data["requests"]
    if requests:
        _print_columns(console, _columns(requests, _id_width(console)))
    else:
        console.print(f"{data['process']} has no such request.")
    if data["not_shown"]:
        console.print(f"{data['not_shown']:,} more not shown: above --limit {len(requests)}")
    if data["is_cut"]:
        console.print(f"Only a part was read: more than {data['queued']:,} requests are queued.", style="yellow")
    print_not_read(console, data["not_read"])


def _id_width(console: Console) -> int:
    return ID_WIDTH if console.width >= 100 else NARROW_ID


def _columns(requests: Sequence[dict[str, Any]], id_width: int) -> dict[str, list[str]]:
    """The headings with their cells; without columns that state the same of each request."""
    starts = [(each.get("expected_start") or {}).get("seconds") for each in requests]
    columns = {
        "place": [f"{each['position']:,}" if each["position"] else _state(each) for each in requests],
        "request": [cut(each["request_id"], id_width) for each in requests],
        "since": [duration(each["age_seconds"]) for each in requests],
        "priority": [each["priority"] for each in requests],
        "weight": [str(each["weight"] or "") for each in requests],
        "starts in": ["" if start is None else duration(start) for start in starts],
        "why": [each.get("because") or each.get("reason") or "" for each in requests],
    }
    usual = {"priority": {"normal"}, "weight": {"", "1"}, "starts in": {""}}
    return {name: cells for name, cells in columns.items() if not set(cells) <= usual.get(name, set())}


def _state(request: dict[str, Any]) -> str:
    """The state of a request without a position; of a queued one, why it has none."""
    names = [reason["condition"] for reason in request.get("reasons", [])]
    return str({"starting": "starting", "limit": "blocked"}.get(names[0], "leaves") if names else request["state"])


def _render_history(console: Console, data: dict[str, Any]) -> None:
    requests = data["requests"]
    sent = [datetime.fromtimestamp(seconds(each["sent"])).astimezone() for each in requests]
    if requests:
        # A zone has another name in summer.
        zones = "/".join(dict.fromkeys(f"{moment:%Z}" for moment in sent))
        columns = {
            "request": [cut(each["request_id"], _id_width(console)) for each in requests],
            f"sent ({zones})": [f"{moment:%m-%d %H:%M:%S}" for moment in sent],
            "waited": [duration(each["waited_seconds"]) for each in requests],
            "started": [_time(each["started"], moment) for each, moment in zip(requests, sent, strict=True)],
            "ended": [_time(each["ended"], moment) for each, moment in zip(requests, sent, strict=True)],
            "outcome": [_outcome(each) for each in requests],
        }
        _print_columns(console, columns)
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
    outcome, code = request["outcome"], request["code"] or ""
    return f"{outcome} ({code})" if code.casefold() not in ("", outcome.replace(" ", "")) else outcome


def _time(text: str | None, sent: datetime) -> str:
    """A time; with its date if that is not the one of the sending."""
    if text is None:
        return ""
    moment = datetime.fromtimestamp(seconds(text))
    return f"{moment:%H:%M:%S}" if moment.date() == sent.date() else f"{moment:%m-%d %H:%M:%S}"


def _print_columns(console: Console, columns: dict[str, list[str]]) -> None:
    """Print cells below their headings, a request on each line. The last cell is cut to the width."""
    *names, last = columns
    first, *lines = _aligned({name: columns[name] for name in names})
    left = max(console.width - cell_len(first) - 2, _NARROWEST)
    console.print(styled(f"{first}  {last}", "dim"))
    for line, cell in zip(lines, columns[last], strict=True):
        console.print(f"{line}  {_fitting(printable(cell), left)}".rstrip())


def _fitting(text: str, width: int) -> str:
    """A text on one line. With much space its end stays too; with little the begin, which states the condition."""
    fits = width >= _WIDE or cell_len(text) <= width
    return one_line(text, width) if fits else f"{set_cell_size(text, width - 1).rstrip()}…"


def _aligned(columns: dict[str, list[str]]) -> Iterator[str]:
    """The heading and the lines of columns. A terminal shows some characters as two cells wide."""
    cells = [[printable(text) for text in (name, *column)] for name, column in columns.items()]
    widths = [max(map(cell_len, column)) for column in cells]
    for line in zip(*cells, strict=True):
        yield "  ".join(set_cell_size(text, width) for text, width in zip(line, widths, strict=True))
