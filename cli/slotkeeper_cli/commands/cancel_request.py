"""`slotkeeper request cancel`: cancel queued requests, or stop running ones."""

from __future__ import annotations

from typing import Annotated

import typer

from slotkeeper.slots.request import Priority
from slotkeeper_cli.account import Account
from slotkeeper_cli.bulk_run import carry_out
from slotkeeper_cli.cancellation import Cancelling
from slotkeeper_cli.completion import process_names, request_ids
from slotkeeper_cli.context import current_context
from slotkeeper_cli.formatting import period_seconds
from slotkeeper_cli.request_finder import ID_HELP


def cancel(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help=ID_HELP, autocompletion=request_ids)
    ] = None,
    process: Annotated[
        str | None,
        typer.Option(
            help="Process of the requests; needed with --all, or if several processes have an id.",
            autocompletion=process_names,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All queued requests of the process.")] = False,
    priority: Annotated[Priority | None, typer.Option(help="With --all: only those of this priority.")] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="PERIOD", help="With --all: only those sent before 30m, 2h or 7d.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop those that run, with their Glue run or child.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be cancelled; cancel nothing.")] = False,
) -> None:
    """Cancel queued requests, so that they never start.

    Their callers are answered, and events are published. A request that has a slot is no longer queued; --stop ends its
    execution. Its Glue run or child execution is then stopped, its slot released, and the request has failed. You can
    interrupt the command and run it again. If all requests are left, the exit code is 3.
    """
    context = current_context()
    if bool(ids) == every:
        raise typer.BadParameter("give either the ids of requests, or --process and --all")
    if every and not process:
        raise typer.BadParameter("--all needs --process")
    if every and stop:
        raise typer.BadParameter("--stop needs the ids of requests")
    if (priority or older_than) and not every:
        raise typer.BadParameter("--priority and --older-than need --all")
    period = period_seconds(older_than) if older_than else None
    if older_than and period is None:
        raise typer.BadParameter(f"--older-than must be a period such as 30m, 2h or 7d, got {older_than!r}")
    change = Cancelling(context, Account(context.stack))
    if every and process:
        change.choose_queued(process, priority, period)
    else:
        change.choose(ids or [], process, stop=stop)
    carry_out(context, change, dry_run=dry_run, also="stopped", not_read=change.search.not_read)
