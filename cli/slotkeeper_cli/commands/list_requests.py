"""`slotkeeper request list`: the requests of a process, with their positions and why each waits."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotkeeper.printable import printable
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.request_table import State
from slotkeeper.slots.rows import Listed, RequestRow
from slotkeeper_cli.completion import ProcessName
from slotkeeper_cli.context import current_context
from slotkeeper_cli.expected_start import slot_seconds
from slotkeeper_cli.formatting import cut, duration, iso, one_line
from slotkeeper_cli.periods import SINCE, UNTIL, period
from slotkeeper_cli.process_queue import ProcessQueue, read_queue
from slotkeeper_cli.request_finder import attempt_as_dict
from slotkeeper_cli.request_history import ID_WIDTH, history_as_dict, history_lines
from slotkeeper_cli.requests import state_of
from slotkeeper_cli.row_search import ProcessRows
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.unread import print_not_read


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


_OPEN = {ListedState.QUEUED, ListedState.STARTED}
# Of the requests that have ended, those that a list without --state shows.
LAST_ENDED = 10


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
    context = current_context()
    if since or until:
        if not since:
            raise typer.BadParameter("--until needs --since")
        data = _history(context.stack, process, state or [], since, until)
        context.out.result(data, lambda console: _render_history(console, data))
        return
    listing = Listing(context.stack, process)
    data = listing.read(state or [], limit)
    context.out.result(data, lambda console: render(console, data))


def _history(
    stack: StackConnection, process: str, states: Sequence[ListedState], since: str, until: str | None
) -> dict[str, Any]:
    now = time.time()
    start, end = period(since, until or "0m", now)
    control = SlotControl(stack)
    requests = ProcessRows(control.rows, control.row_search, process)
    # What ends during the reads has ended too.
    rows = requests.history(start, end if until else now + 600)
    if not rows:
        control.process(process)
    of_states = [row for row in rows if not states or _state_option(row.state) in states]
    # An open request that was sent after the period is not of it. Clocks differ: without --until, none is left out.
    shown = [row for row in of_states if not until or row.sent <= end]
    data = {"process": process, "since": iso(start), "until": iso(end), **history_as_dict(shown, now)}
    return data | {"not_read": [each.as_dict() for each in requests.search.not_read]}


def _render_history(console: Console, data: dict[str, Any]) -> None:
    for line in history_lines(data):
        console.print(line)
    print_not_read(console, data["not_read"])


def _state_option(state: State) -> ListedState:
    return ListedState(state_of(state).replace(" ", "-"))


class Listing:
    """One list of the requests of a process."""

    def __init__(self, stack: StackConnection, process: str) -> None:
        self._stack, self._name = stack, process
        self._control = SlotControl(stack)
        self._requests = ProcessRows(self._control.rows, self._control.row_search, process)
        self._search = self._requests.search
        self._now = time.time()

    def read(self, states: Sequence[ListedState], limit: int) -> dict[str, Any]:
        """The list as JSON shows it.

        Args:
            states: those to read; empty: those that have not ended, and the ones that ended last.

        Raises:
            NotFound: the process does not exist, and has no requests.
        """
        process = self._process()
        wanted = set(states or ListedState)
        queue = read_queue(self._control.rows, process, self._now) if process and ListedState.QUEUED in wanted else None
        queued = self._queued(queue, limit) if queue else []
        started = [*map(self._shown, self._requests.started())] if ListedState.STARTED in wanted else []
        # What has started since the queue was read.
        running = {each["execution"] for each in started}
        queued = [each for each in queued if each["execution"] not in running]
        ended = self._ended(wanted - _OPEN, limit if states else LAST_ENDED)
        if process is None and not (started or ended):
            raise self._control.not_found(self._name)
        return {
            "process": self._name,
            "queued": len(queue.requests) if queue else None,
            "is_cut": queue.is_cut if queue else False,
            "requests": [*started, *queued, *ended][:limit],
            "not_shown": max(0, len(started) + (len(queue.requests) if queue else 0) + len(ended) - limit),
            "not_read": [each.as_dict() for each in self._search.not_read],
        }

    def _process(self) -> Process | MalformedProcess | None:
        try:
            return self._control.slots.read(self._name)
        except MalformedProcess as error:
            named = MalformedProcess(str(error), self._name)
            self._search.note_malformed(named)
            return named

    def _queued(self, queue: ProcessQueue, limit: int) -> list[dict[str, Any]]:
        for why in queue.malformed:
            self._search.note_unread("RequestTable", why)
        times = slot_seconds(self._control.rows, [self._name], self._now)
        starts = queue.expected_starts(times[self._name])
        return [
            each.as_dict(self._now) | {"expected_start": starts.get(each.execution)} for each in queue.requests[:limit]
        ]

    def _ended(self, states: Collection[ListedState], most: int) -> list[dict[str, Any]]:
        """Those that ended last."""
        asked: list[State] = [each for each in get_args(State) if _state_option(each) in states]
        listed = self._control.row_search.last_ended(self._name, asked, most) if asked else Listed[RequestRow]()
        return [self._shown(row) for row in self._search.rows(listed, "requests")]

    def _shown(self, row: RequestRow) -> dict[str, Any]:
        since = row.ended or row.started or row.sent
        shown = {"request_id": row.request_id, **attempt_as_dict(row)}
        return shown | {"position": None, "since": iso(since), "age_seconds": int(self._now - since)}


def render(console: Console, data: dict[str, Any]) -> None:
    """Print the list, one line for each request. `data` is the same as JSON shows it."""
    requests = data["requests"]
    if not requests:
        console.print(f"{data['process']} has no such request.")
    else:
        console.print(_table(requests))
    if data["not_shown"]:
        console.print(f"{data['not_shown']:,} more not shown: above --limit {len(requests)}")
    if data["is_cut"]:
        console.print(f"Only a part was read: more than {data['queued']:,} requests are queued.", style="yellow")
    print_not_read(console, data["not_read"])


def _table(requests: Sequence[dict[str, Any]]) -> Table:
    prioritized = any(each["priority"] != "normal" for each in requests)
    weighted = any(each["weight"] not in (None, 1) for each in requests)
    expected = [_start(each) for each in requests]
    made = Table(box=None, pad_edge=False, header_style="dim")
    made.add_column("place", justify="right", no_wrap=True)
    made.add_column("request", no_wrap=True)
    made.add_column("since", no_wrap=True)
    columns = ["priority"] * prioritized + ["weight"] * weighted + ["starts in"] * any(expected)
    for column in columns:
        made.add_column(column, no_wrap=True)
    made.add_column("why")
    for each, start in zip(requests, expected, strict=True):
        place = f"{each['position']:,}" if each["position"] else _state(each)
        shown = [place, cut(each["request_id"], ID_WIDTH), duration(each["age_seconds"])]
        shown += [each["priority"]] * prioritized + [str(each["weight"] or "")] * weighted + [start] * any(expected)
        why = one_line(each.get("because") or each.get("reason") or "")
        # This column alone becomes narrower, and its text is cut.
        made.add_row(*shown, Text(printable(why), no_wrap=True, overflow="ellipsis"))
    return made


def _state(request: dict[str, Any]) -> str:
    """The state of a request without a position; of a queued one, why it has none."""
    names = [reason["condition"] for reason in request.get("reasons", [])]
    return str({"starting": "starting", "limit": "blocked"}.get(names[0], "leaves") if names else request["state"])


def _start(request: dict[str, Any]) -> str:
    """The expected start, such as `2 min`; empty if it is not known."""
    expected = (request.get("expected_start") or {}).get("seconds")
    return "" if expected is None else duration(expected)
