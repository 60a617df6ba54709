"""`slotkeeper request redrive`: queue requests again that have failed, or ended without a start."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.completion import ProcessName
from slotkeeper_cli.context import CommandContext, current_context
from slotkeeper_cli.dead_letters import DeadLetterQueueName, DeadLetterQueueReader
from slotkeeper_cli.errors import CommandFailed, CommandRefused, NotFound
from slotkeeper_cli.formatting import count
from slotkeeper_cli.redrive import Deadline, NotRedrivable, check_row, redrive_row
from slotkeeper_cli.request_finder import ID_HELP, RequestFinder
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.submission import deadline_of


def redrive(
    process: ProcessName,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help=ID_HELP)],
    start_before: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Replaces the start_before of requests: HH:MM, or ISO 8601 with its zone."),
    ] = None,
) -> None:
    """Queue requests again, each as its next attempt.

    They have failed, or ended without a start: rejected, skipped, cancelled or too late. A request that was too late
    needs --start-before. The message that FailedRequestQueue keeps of a failed one is deleted. If all requests are
    left, the exit code is 3.
    """
    context = current_context()
    deadline = deadline_of(start_before) if start_before else ""
    control = SlotControl(context.stack)
    if control.process(process).target == NO_TARGET:
        raise CommandRefused(f"process {process} is for leases only: it runs no requests. Nothing was changed.")
    chosen, left = _chosen(control, process, ids, deadline)
    if not chosen:
        raise CommandRefused("nothing was redriven:", *(f"{one['request_id']}: {one['why']}" for one in left))
    names = ", ".join(row.request_id for row, _ in chosen)
    context.confirm(f"Queue {count(len(chosen), 'request')} of {process} again ({names})?")
    shown = [{"request_id": row.request_id, "execution": row.execution} for row, _ in chosen]
    audit("request redrive", process=process, requests=shown)
    redriven, failure = _redrive(control, process, chosen, left)
    _forget(context, [row for row, _ in redriven if row.state == "FAILED"])
    data: dict[str, Any] = {
        "process": process,
        "redriven": [
            {"request_id": row.request_id, "attempt": row.attempt + 1, "execution": execution}
            for row, execution in redriven
        ],
        "left": left,
    }
    lines = [f"queued: {one['request_id']}, attempt {one['attempt']}  {one['execution']}" for one in data["redriven"]]
    lines += [f"left: {one['request_id']}: {one['why']}" for one in left]
    context.out.result(data, lines)
    if failure or left:
        what = failure or "see the reasons above"
        raise CommandFailed(f"{len(redriven)} of {count(len(set(ids)), 'request')} queued again: {what}")


def _chosen(
    control: SlotControl, process: str, ids: list[str], deadline: str
) -> tuple[list[tuple[RequestRow, Deadline]], list[dict[str, Any]]]:
    """The rows to redrive, each with its deadline, and the requests that are left. Raises NotFound."""
    finder, now = RequestFinder(control), time.time()
    chosen, left = list[tuple[RequestRow, Deadline]](), list[dict[str, Any]]()
    for given in dict.fromkeys(ids):
        found = [one.last for one in finder.find(given, [process], process)]
        if not found:
            raise NotFound(f"{process} has no request {given}. Nothing was changed.")
        possible, refused = list[tuple[RequestRow, Deadline]](), list[dict[str, Any]]()
        for row in found:
            try:
                possible.append((row, check_row(row, deadline, now)))
            except NotRedrivable as error:
                refused.append({"request_id": row.request_id, "execution": row.execution, "why": str(error)})
        if len(possible) > 1:
            names = ", ".join(row.execution for row, _ in possible)
            raise CommandRefused(
                f"several requests have the id {given}: give the name of an execution, {names}. Nothing was changed."
            )
        chosen += possible
        left += [] if possible else refused[:1]
    return chosen, left


def _redrive(
    control: SlotControl, process: str, chosen: list[tuple[RequestRow, Deadline]], left: list[dict[str, Any]]
) -> tuple[list[tuple[RequestRow, str]], str]:
    """Redrive the rows, then ring; return those that are queued with their new executions, and what has failed."""
    redriven = list[tuple[RequestRow, str]]()
    try:
        for row, deadline in chosen:
            try:
                redriven.append((row, redrive_row(control, row, deadline, time.time())))
            except NotRedrivable as error:
                left.append({"request_id": row.request_id, "execution": row.execution, "why": str(error)})
    except (BotoCoreError, ClientError) as error:
        return redriven, str(error)
    finally:
        if redriven:
            control.doorbell.ring(Bell(process))
    return redriven, ""


def _forget(context: CommandContext, failed: list[RequestRow]) -> None:
    """Delete the messages that FailedRequestQueue keeps of requests that are queued again."""
    names = {row.execution for row in failed}
    if not names:
        return
    reader = DeadLetterQueueReader(context.stack, DeadLetterQueueName.FAILED)
    with closing(reader.sweep()) as batches:
        for message in (message for batch in batches for message in batch):
            if message.execution in names:
                reader.delete(message)
