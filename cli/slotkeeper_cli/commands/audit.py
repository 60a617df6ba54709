"""`slotkeeper audit`: whether the guarantees held, by AWS's own records."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper_cli.account import Account
from slotkeeper_cli.audit import judge
from slotkeeper_cli.audit.audit_page import audit_page
from slotkeeper_cli.audit.check_result import CheckResult, Result
from slotkeeper_cli.audit.figures import figures
from slotkeeper_cli.audit.history_reader import MAX_CALLS, read_history
from slotkeeper_cli.completion import process_names
from slotkeeper_cli.context import current_context
from slotkeeper_cli.errors import CommandFailed, ProblemsFound
from slotkeeper_cli.formatting import count, duration, iso, local_time, seconds
from slotkeeper_cli.look.pages import write_page
from slotkeeper_cli.output import styled, table
from slotkeeper_cli.periods import SINCE, UNTIL, period
from slotkeeper_cli.process_rows import MAX_HISTORY_CALLS as MAX_PROCESS_CALLS
from slotkeeper_cli.unread import print_not_read

# Step Functions service quotas, "Execution history retention time".
MAX_PERIOD = 90 * 86400
_STYLES = {Result.HOLDS: "green", Result.FAILS: "bold red", Result.NOT_SHOWN: "yellow"}

HELP = f"""Show from AWS's own records whether the limit held.

It checks executions, Glue runs, child executions, the rows of requests, the audit log and the slot table of a period:
never more weight at work than the limit, nor of a key than its limit, no request lost, nothing that succeeded run
again, slots of ended executions freed, order, and free slots. A check holds, fails, or is not shown, if its records
could not be read.

The command makes at most {MAX_CALLS:,} calls, and {MAX_PROCESS_CALLS:,} for each process: a few for one with less than
two thousand requests. It reads up to 200,000 executions, and as many Glue runs. If there are more, it states what it
did not read, and shows no check that needs it. It changes nothing. Exit code 5 if a check fails.
"""


def show_audit(
    process: Annotated[
        str | None, typer.Argument(help="Name of the process; by default all.", autocompletion=process_names)
    ] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help=f"{SINCE}; at most 90d.")] = "24h",
    until: Annotated[str, typer.Option(metavar="TIME", help=UNTIL)] = "0m",
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write one HTML page, with the timeline.", dir_okay=False)
    ] = None,
) -> None:
    """Show whether the limit held. `HELP` is the text of --help."""
    now = time.time()
    start, end = period(since, until, now)
    if start < now - MAX_PERIOD:
        raise typer.BadParameter(f"--since ({iso(start)}) is too early: Step Functions keeps executions for 90 days")
    context = current_context()
    with context.out.counting() as on_read:
        history = read_history(Account(context.stack), start, end, process, on_read)
    results = judge(history)
    if html is not None:
        write_page(html, audit_page(history, results, context.stack.name))
        context.out.note(f"The page is in {html}.")
    data = {
        "stack": context.stack.name,
        "since": iso(start),
        "until": iso(end),
        "checks": [each.as_dict() for each in results],
        "figures": figures(history),
        "not_read": [each.as_dict() for each in history.not_read],
    }
    context.out.result(data, lambda console: _render(console, data, results))
    if failed := [each.id for each in results if each.result is Result.FAILS]:
        raise ProblemsFound(f"{count(len(failed), 'check fails', 'checks fail')}: {', '.join(failed)}")
    if history.not_read:
        raise CommandFailed("not all could be read, so some checks are not shown: see what could not be read above")


def _render(console: Console, data: dict[str, Any], results: list[CheckResult]) -> None:
    since, until = seconds(data["since"]), seconds(data["until"])
    period = f"{local_time(since)} to {local_time(until)} ({duration(until - since)})"
    console.print(f"Stack {data['stack']}, {period}, by AWS's records")
    console.print()
    for each in results:
        line = styled(f"{each.result:<11}", _STYLES[each.result])
        console.print(line + styled(f"{each.id:<11}{each.claim}"))
        console.print(" " * 22 + each.finding, style="dim")
        for example in each.examples:
            console.print(" " * 22 + f"- {example}")
    console.print()
    if data["figures"]:
        console.print(_figures_table(data["figures"]))
    print_not_read(console, data["not_read"])


def _figures_table(of: dict[str, Any]) -> Any:
    made = table("process", ">executions", "ended", "priorities", "wait p50, p90, p99, max", ">used")
    for name, each in of.items():
        share = each["utilization"]
        made.add_row(
            name,
            f"{sum(each['executions'].values()):,}",
            ", ".join(f"{number:,} {status}" for status, number in each["executions"].items()) or "none",
            ", ".join(f"{one['executions']:,} {priority}" for priority, one in each["priorities"].items()),
            _wait_text(each["wait"]),
            "unknown" if share is None else f"{share:.0%}",
        )
    return made


def _wait_text(wait: dict[str, Any]) -> str:
    times = [f"{wait[name]:,.1f}" for name in ("p50", "p90", "p99", "max")] if wait["count"] else []
    return f"{', '.join(times)} s (of {wait['count']:,})" if times else "not recorded"
