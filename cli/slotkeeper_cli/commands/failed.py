"""`slotkeeper failed`: list, show, redrive and discard requests that failed, were rejected or too late."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotkeeper.printable import printable
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.bulk import MAX_NAMED, BulkReport, Chosen, names_of, reasons
from slotkeeper_cli.completion import process_names
from slotkeeper_cli.context import StackCommand, current_context
from slotkeeper_cli.errors import CommandRefused
from slotkeeper_cli.failures import FailureGroup, Failures, Filters, failed_at, grouped
from slotkeeper_cli.formatting import count, duration, local_time, one_line
from slotkeeper_cli.output import print_lines
from slotkeeper_cli.periods import SINCE, UNTIL, period
from slotkeeper_cli.request_finder import attempt_as_dict, fact_text
from slotkeeper_cli.requests import hide_tokens
from slotkeeper_cli.requeueing import BEFORE, Discarding, Redriving, RowChange
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.submission import deadline_of
from slotkeeper_cli.unread import Search, print_not_read

app = typer.Typer(help="List, show, redrive and discard failed requests.", no_args_is_help=True)

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[GROUP|ID]...", help="A group of the list, the id of a request, or of its execution."),
]
OfProcess = Annotated[
    str | None, typer.Option("--process", help="Only requests of this process.", autocompletion=process_names)
]
OfCode = Annotated[str | None, typer.Option("--code", help="Only failures of this code, such as Glue.Failed.")]
OfReason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Only failures with this text in the reason.")]
Since = Annotated[str | None, typer.Option(metavar="TIME", help=f"{SINCE}; by default all.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help=UNTIL)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be changed; change nothing.")]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of lines.")]
# Of a period without begin or end. The clocks of the functions that record ends may be ahead of this one.
_BEGIN, _END = "1970-01-01T00:00:00Z", 1e11
# Facts of a request that its first line has.
_NOT_LISTED = ("request_id", "process", "state")
# Characters of a cause, enough for a whole error message of Glue.
MAX_SHOWN = 4000


@app.command("list", cls=StackCommand)
def list_failures(
    process: OfProcess = None,
    code: OfCode = None,
    reason: OfReason = "",
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
) -> None:
    """List failures, equal ones on one line.

    They are the requests that failed, were rejected or too late, and were neither redriven nor discarded since. Two are
    equal if they have the same process, code and reason, but for ids, times and large numbers, which are shown as #.
    The first column is what show, redrive and discard take.
    """
    failures = _failures(process, code, reason, since, until)
    groups = grouped(failures.read())
    data = {
        "failures": sum(len(each.rows) for each in groups),
        "groups": [each.as_dict() for each in groups[:limit]],
        "not_shown": max(0, len(groups) - limit),
        **_unread(failures.search),
    }
    current_context().out.result(data, lambda console: _render_list(console, data, groups[:limit]))


@app.command("show", cls=StackCommand)
def show(
    names: Names = None,
    process: OfProcess = None,
    code: OfCode = None,
    reason: OfReason = "",
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
) -> None:
    """Show the requests of a group, or one in full.

    One request is shown with its cause, the link of its execution, and its content if you may read it. A caller's task
    token is never shown. The options alone select what the list would show.
    """
    context = current_context()
    failures = _failures(process, code, reason, since, until)
    rows = failures.select(names or [])
    if len(rows) == 1:
        data = {"request": _whole(context.stack, failures, rows[0]), **_unread(failures.search)}
        context.out.result(data, lambda console: _render_whole(console, data))
        return
    groups = grouped(rows)
    shown = {"groups": [_with_rows(each) for each in groups], **_unread(failures.search)}
    context.out.result(shown, lambda console: _render_groups(console, shown, groups, limit))


@app.command("redrive", cls=StackCommand)
def redrive(
    names: Names = None,
    process: OfProcess = None,
    code: OfCode = None,
    reason: OfReason = "",
    since: Since = None,
    until: Until = None,
    start_before: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Replaces the start_before of requests: HH:MM, or ISO 8601 with its zone."),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Queue requests again, each as its next attempt.

    Give groups, ids, or options that select what the list would show. By its id, also a request that was skipped or
    cancelled is queued again. One that was too late needs --start-before. The next attempt has no caller, since the
    caller of the one before has its answer. You can interrupt the command and run it again. If all requests are left,
    the exit code is 3.
    """
    _check_selection(names, process, code, reason, since, until)
    deadline = deadline_of(start_before) if start_before else ""
    failures = _failures(process, code, reason, since, until)
    redriving = Redriving(current_context(), failures.control, failures.select(names or []), deadline)
    _change(failures.search, redriving, "Queue {} again, each as its next attempt?", dry_run)


@app.command("discard", cls=StackCommand)
def discard(
    names: Names = None,
    process: OfProcess = None,
    code: OfCode = None,
    reason: OfReason = "",
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
) -> None:
    """Remove failures from the list, with their contents.

    Give groups, ids, or options that select what the list would show. A discarded request cannot be redriven. How it
    ended is kept until its row expires. You can interrupt the command and run it again.
    """
    _check_selection(names, process, code, reason, since, until)
    failures = _failures(process, code, reason, since, until)
    discarding = Discarding(current_context(), failures.control, failures.select(names or []))
    question = "Discard {} for good? Their contents are removed, so that they can never be redriven."
    _change(failures.search, discarding, question, dry_run)


def _failures(process: str | None, code: str | None, reason: str, since: str | None, until: str | None) -> Failures:
    start, end = period(since or _BEGIN, until or "0m", time.time())
    filters = Filters(start, end if until else _END, process, code, reason)
    return Failures(SlotControl(current_context().stack), filters)


def _check_selection(names: Sequence[str] | None, *filters: str | None) -> None:
    if not (names or any(filters)):
        raise typer.BadParameter("give groups or ids, or select failures with --process, --code, --reason or --since")


def _unread(search: Search) -> dict[str, Any]:
    return {"not_read": [each.as_dict() for each in search.not_read]}


def _change(search: Search, change: RowChange, question: str, dry_run: bool) -> None:
    """Ask, change the requests, and report. Raises what the exit code states."""
    context, verb, again = current_context(), change.bulk.verb, change.again
    if not change.chosen:
        raise CommandRefused(f"nothing was {verb}:", *reasons(change.left))
    if not dry_run:
        more = f" {count(len(change.left), 'other')} cannot be: see --dry-run." if change.left else ""
        context.confirm(question.format(_which(change.chosen)) + more)
    report = BulkReport(done=change.chosen) if dry_run else change.bulk.run(change.chosen)
    report.left = [*change.left, *report.left]
    data = report.as_dict(verb, dry_run=dry_run) | _unread(search)
    data[verb] = [one | ({"next": again[name]} if (name := one["execution"]) in again else {}) for one in data[verb]]

    def render(console: Console) -> None:
        notes = {execution: f" as {name}" for execution, name in again.items()}
        for line in report.lines(f"would be {verb}" if dry_run else verb, notes):
            console.print(line)
        print_not_read(console, data["not_read"])

    context.out.result(data, render)
    report.raise_for_outcome(len(change.chosen), verb, BEFORE, is_done=dry_run)


def _which(chosen: Sequence[Chosen]) -> str:
    """The number of requests, and their ids or how many each process has."""
    of = Counter(one.process for one in chosen)
    some = names_of(chosen) if len(chosen) <= MAX_NAMED else ", ".join(f"{name}: {n:,}" for name, n in of.items())
    return f"{count(len(chosen), 'request')} ({some})"


def _whole(stack: StackConnection, failures: Failures, found: RequestRow) -> dict[str, Any]:
    """A request in full, as JSON shows it."""
    # The index of failures has no cause.
    row = failures.control.row_search.row(found.process, found.execution) or found
    body = failures.search.try_read("content", lambda: failures.control.row_search.body(row.process, row.execution), "")
    more = {"body": hide_tokens(body), "link": "" if row.started is None else stack.execution_link(row.execution)}
    whole = {"process": row.process, "request_id": row.request_id, **attempt_as_dict(row)}
    return whole | {name: value for name, value in more.items() if value}


def _with_rows(group: FailureGroup) -> dict[str, Any]:
    rows = [{"request_id": row.request_id, **attempt_as_dict(row)} for row in group.rows]
    return group.as_dict() | {"rows": rows}


def _render_list(console: Console, data: dict[str, Any], groups: Sequence[FailureGroup]) -> None:
    if groups:
        console.print(_table(groups))
    if data["not_shown"]:
        console.print(f"{data['not_shown']:,} more not shown: above --limit {len(groups)}")
    number = len(groups) + data["not_shown"]
    console.print(f"{count(data['failures'], 'failure')} in {count(number, 'group')}." if groups else "No failures.")
    print_not_read(console, data["not_read"])


def _table(groups: Sequence[FailureGroup]) -> Table:
    now = time.time()
    made = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("group", "process", "code", "requests", "first", "last"):
        made.add_column(name, no_wrap=True, justify="right" if name == "requests" else "left")
    made.add_column("reason")
    for each in groups:
        first, last = (f"{duration(now - failed_at(each.rows[at]))} ago" for at in (-1, 0))
        # This column alone becomes narrower, and its text is cut.
        reason = Text(printable(one_line(each.reason)), no_wrap=True, overflow="ellipsis")
        made.add_row(each.id, each.process, each.code, f"{len(each.rows):,}", first, last, reason)
    return made


def _render_groups(console: Console, data: dict[str, Any], groups: Sequence[FailureGroup], limit: int) -> None:
    for group in groups:
        console.print(f"{group.id}  {group.process}  {group.code}: {one_line(group.reason)}", style="bold")
        for row in group.rows[:limit]:
            console.print(f"  {row.request_id}  attempt {row.attempt}  {local_time(failed_at(row))}")
        if (more := len(group.rows) - limit) > 0:
            console.print(f"  {more:,} more not shown: above --limit {limit}")
    print_not_read(console, data["not_read"])


def _render_whole(console: Console, data: dict[str, Any]) -> None:
    request = data["request"]
    console.print(f"{request['request_id']} in {request['process']}: {request['state']}", style="bold")
    for name, value in request.items():
        if name in _NOT_LISTED or value is None or (name == "cause" and value == request.get("reason")):
            continue
        text = fact_text(name, value)
        more = "... (the whole text: --json)" if len(text) > MAX_SHOWN else ""
        print_lines(console, f"  {name.replace('_', ' ')}: {text[:MAX_SHOWN]}{more}", "    ")
    print_not_read(console, data["not_read"])
