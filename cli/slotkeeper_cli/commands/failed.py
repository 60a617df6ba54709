"""`slotkeeper failed`: list, show, redrive and discard requests that failed, were rejected or too late."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.account import Account
from slotkeeper_cli.bulk_run import carry_out
from slotkeeper_cli.completion import process_names
from slotkeeper_cli.context import CommandContext, StackCommand, current_context
from slotkeeper_cli.failures import Failures, Filters, failures
from slotkeeper_cli.formatting import count, cut, duration, local_time, seconds
from slotkeeper_cli.keys import KeyFilter
from slotkeeper_cli.output import print_lines, styled
from slotkeeper_cli.periods import SINCE, START_BEFORE, UNTIL, period, start_time
from slotkeeper_cli.requests import FailureGroup, attempt_as_dict, fact_text, failed_at, grouped
from slotkeeper_cli.requeueing import Discarding, Redriving
from slotkeeper_cli.unread import print_not_read

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
# Of a period without a begin.
_BEGIN = "1970-01-01T00:00:00Z"
# Facts of a request that its first line has.
_NOT_LISTED = ("request_id", "process", "state")
# Characters of a cause that are shown, enough for a whole error message of Glue, and of a reason in a list.
MAX_SHOWN, MAX_REASON = 4000, 400


@app.command("list", cls=StackCommand)
def list_failures(
    process: OfProcess = None,
    code: OfCode = None,
    reason: OfReason = "",
    key: KeyFilter = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
) -> None:
    """List failures, equal ones on one line.

    They are the requests that failed, were rejected or too late, and were neither redriven nor discarded since. Two are
    equal if they have the same process, code and reason, but for ids, times and large numbers, which are shown as #.
    The first column is what show, redrive and discard take.
    """
    context = current_context()
    data = failures(Account(context.stack), _filters(process, code, reason, key, since, until), limit)
    context.out.result(data, lambda console: _render_list(console, data))


@app.command("show", cls=StackCommand)
def show(
    names: Names = None,
    process: OfProcess = None,
    code: OfCode = None,
    reason: OfReason = "",
    key: KeyFilter = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
) -> None:
    """Show the requests of a group, or one in full.

    One request is shown with its cause, the link of its execution, and its content if you may read it. A caller's task
    token is never shown. The options alone select what the list would show.
    """
    context = current_context()
    found = Failures(Account(context.stack), _filters(process, code, reason, key, since, until))
    rows = found.select(names or [])
    one = found.whole(rows[0]) if len(rows) == 1 else None
    groups = [] if one else grouped(rows)
    shown: dict[str, Any] = {"request": one} if one else {"groups": [_with_rows(each) for each in groups]}
    shown["not_read"] = [each.as_dict() for each in found.search.not_read]

    def render(console: Console) -> None:
        if one:
            _render_whole(console, one)
        for group in groups:
            _render_group(console, group, limit)
        print_not_read(console, shown["not_read"])

    context.out.result(shown, render)


@app.command("redrive", cls=StackCommand)
def redrive(
    names: Names = None,
    process: OfProcess = None,
    code: OfCode = None,
    reason: OfReason = "",
    key: KeyFilter = None,
    since: Since = None,
    until: Until = None,
    start_before: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Replaces the start_before of requests: {START_BEFORE}.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Queue requests again, each as its next attempt.

    Give groups, ids, or options that select what the list would show. By its id, also a request that was skipped or
    cancelled is queued again. One that was too late needs --start-before. The next attempt has no caller, since the
    caller of the one before has its answer. You can interrupt the command and run it again. If all requests are left,
    the exit code is 3.
    """
    deadline = start_time(start_before, time.time()) if start_before else ""
    context, found, rows = _select(names, _filters(process, code, reason, key, since, until))
    change = Redriving(context, found.account, rows, deadline)
    carry_out(context, change, dry_run=dry_run, not_read=found.search.not_read)


@app.command("discard", cls=StackCommand)
def discard(
    names: Names = None,
    process: OfProcess = None,
    code: OfCode = None,
    reason: OfReason = "",
    key: KeyFilter = None,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
) -> None:
    """Remove failures from the list, with their contents.

    Give groups, ids, or options that select what the list would show. A discarded request cannot be redriven. How it
    ended is kept until its row expires. You can interrupt the command and run it again.
    """
    context, found, rows = _select(names, _filters(process, code, reason, key, since, until))
    change = Discarding(context, found.account, rows)
    carry_out(context, change, dry_run=dry_run, not_read=found.search.not_read)


def _filters(
    process: str | None, code: str | None, reason: str, key: str | None, since: str | None, until: str | None
) -> Filters:
    # Of an end without a begin, any begin is before it.
    start, end = period(since or _BEGIN, until or "0m", time.time())
    return Filters(start if since else None, end if until else None, process, code, reason, key)


def _select(names: Sequence[str] | None, filters: Filters) -> tuple[CommandContext, Failures, list[RequestRow]]:
    """The failures to change. Raises typer.BadParameter if the command line selects none."""
    if not names and filters == Filters():
        options = "--process, --code, --reason, --key or --since"
        raise typer.BadParameter(f"give groups or ids, or select failures with {options}")
    context = current_context()
    if period_text := _period(filters.since, filters.until):
        context.out.note(f"Failures{period_text}:")
    found = Failures(Account(context.stack), filters)
    return context, found, found.select(names or [])


def _period(since: float | None, until: float | None) -> str:
    """The period in words, after a space; empty if it has no begin and no end."""
    moments = {"since": since, "until": until}
    return "".join(f" {name} {local_time(moment)}" for name, moment in moments.items() if moment is not None)


def _with_rows(group: FailureGroup) -> dict[str, Any]:
    rows = [{"request_id": row.request_id, **attempt_as_dict(row)} for row in group.rows]
    return group.as_dict() | {"rows": rows}


def _render_list(console: Console, data: dict[str, Any]) -> None:
    now = time.time()
    for each in data["groups"]:
        share, number = each["of_process"], count(each["requests"], "failure")
        first, last = (f"{duration(now - seconds(each[name]))} ago" for name in ("first", "last"))
        when = last if first == last else f"the last {last}, the first {first}"
        line = styled(f"{each['group']}  {each['process']}  {number}, {when}", "bold")
        if share and share["ended"]:
            # The share is what an operator looks for first: one that failed, or a process that always fails.
            every = share["failed"] == share["ended"] > 1
            line.append_text(styled(f"  {_share(share, data['since'])}", "bold red" if every else "dim"))
        console.print(line)
        console.print(f"          {each['code']}: {cut(each['reason'], MAX_REASON)}")
    number = len(data["groups"]) + data["not_shown"]
    if data["not_shown"]:
        console.print(f"{data['not_shown']:,} more not shown: above --limit {len(data['groups'])}")
    found = f"{count(data['failures'], 'failure')} in {count(number, 'group')}" if number else "No failures"
    console.print(f"{found}{_period(*(data[name] and seconds(data[name]) for name in ('since', 'until')))}.")
    print_not_read(console, data["not_read"])


def _share(share: dict[str, Any], since: str | None) -> str:
    last = f"the last {share['ended']:,}" if share["has_more"] else f"{share['ended']:,}"
    return f"{share['failed']:,} of {last} that ended{'' if since else ' in 24 h'} failed"


def _render_group(console: Console, group: FailureGroup, limit: int) -> None:
    console.print(f"{group.id}  {group.process}  {group.code}: {cut(group.reason, MAX_REASON)}", style="bold")
    for row in group.rows[:limit]:
        key = f"  key {row.key}" * bool(row.key)
        console.print(f"  {row.request_id}  attempt {row.attempt}  {local_time(failed_at(row))}{key}")
    if (more := len(group.rows) - limit) > 0:
        console.print(f"  {more:,} more not shown: above --limit {limit}")


def _render_whole(console: Console, request: dict[str, Any]) -> None:
    console.print(f"{request['request_id']} in {request['process']}: {request['state']}", style="bold")
    for name, value in request.items():
        if name in _NOT_LISTED or value is None or (name == "cause" and value == request.get("reason")):
            continue
        text = fact_text(name, value)
        if (more := len(text) - MAX_SHOWN) > 0:
            # The end of an error message is often its cause.
            half = MAX_SHOWN // 2
            text = f"{text[:half]}\n... {count(more, 'character')} more: --json has the whole text ...\n{text[-half:]}"
        print_lines(console, f"  {name.replace('_', ' ')}: {text}", "    ")
