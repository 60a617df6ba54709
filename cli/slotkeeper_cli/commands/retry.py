"""`slotkeeper retry`: list waiting retries, cancel them, or run them now."""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.text import Text

from slotkeeper.next_step import ToFillIn, next_step
from slotkeeper.retry.ledger import FAILED, WAITING, MalformedRow, Row
from slotkeeper.retry.message import epoch
from slotkeeper.retry.operations import (
    MessageOutOfReach,
    NoRetryWaiting,
    PayloadMismatch,
    RetryCancelled,
    RetrySentNow,
    awaited_attempt,
    is_cancelled,
)
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.context import CommandContext, StackCommand, current_context
from slotkeeper_cli.errors import CommandRefused, NotFound, ProblemsFound
from slotkeeper_cli.formatting import count, duration, iso, local_time
from slotkeeper_cli.output import table
from slotkeeper_cli.request_text import explain_work
from slotkeeper_cli.retries import OVERDUE_AFTER, RetryControl, is_awaited, lateness, line, not_closed, read_downstreams

app = typer.Typer(help="Show, run and cancel retries; report failures; breakers.", no_args_is_help=True)

_PAYLOAD_HELP = "File of the payload (JSON), if the message is delayed or lost; - for standard input."
Payload = Annotated[typer.FileText | None, typer.Option(metavar="FILE", encoding="utf-8", help=_PAYLOAD_HELP)]


@app.command("list", cls=StackCommand)
def list_retries(
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of retries, earliest first.")] = 50,
    overdue: Annotated[bool, typer.Option("--overdue", help="Only retries that are more than 5 minutes late.")] = False,
) -> None:
    """List the requests that wait for their next attempt.

    It shows when that is due, and why the last attempt failed. Scans RequestLedgerTable, at half a read unit per 4 KB.
    Of one request: slotkeeper explain ID.
    """
    context = current_context()
    work, now = RetryControl(context.stack), time.time()
    unreadable: list[str] = []
    rows = _rows(context, work, unreadable)
    waiting = [(name, row) for name, row in rows if not overdue or lateness(row, now) > 0]
    shown = heapq.nsmallest(limit, waiting, key=lambda row: (row[1].next_attempt_at or 0, row[0]))
    scheduled = set(work.schedule_names()) if shown else set()
    data = {
        "at": iso(now),
        "retries": [_as_dict(work, name, row, scheduled, now) for name, row in shown],
        "not_shown": len(waiting) - len(shown),
        "unreadable": unreadable,
        "open_breakers": not_closed(read_downstreams(context.stack)),
    }
    context.out.result(data, lambda console: _render(console, data))


@app.command("cancel", cls=StackCommand)
def cancel(
    request_id: Annotated[str, typer.Argument(help="Id of the request, as in slotkeeper retry list.")],
    why: Annotated[str, typer.Option(help="Reason, for the dead-letter message.")] = "by an operator",
    payload: Payload = None,
) -> None:
    """Cancel a waiting retry.

    The request is dead-lettered with its whole history. An attempt that has started is not stopped. A retry that
    EventBridge Scheduler delays is dead-lettered within moments, a retry that the queue delays when it is delivered.
    Redrive the dead-letter message to undo the cancellation. If the command is interrupted, run it again.
    """
    context = current_context()
    work = RetryControl(context.stack)
    given = _payload(payload)
    row = work.ledger.read(request_id)
    if row is None or not is_awaited(row):
        raise _not_waiting(request_id, row)
    context.confirm(f"Cancel attempt {awaited_attempt(row)} of request {request_id!r}?")
    audit("retry cancel", request_id=request_id, attempt=awaited_attempt(row), why=why)
    match _checked(lambda: work.steps.cancel(request_id, why, given)):
        case RetryCancelled(attempt, sent, due):
            when = "within moments" if sent else f"when its message is delivered{_due_at(due)}"
            context.out.result(
                {"cancelled": request_id, "attempt": attempt, "sent": sent},
                f"{request_id}: attempt {attempt} is cancelled. The request goes to WorkDeadLetterQueue, with code "
                f"Cancelled, {when}.",
            )
        case NoRetryWaiting(row):
            raise _not_waiting(request_id, row)


@app.command("run-now", cls=StackCommand)
def run_now(
    request_id: Annotated[str | None, typer.Argument(help="Id of the request.")] = None,
    overdue: Annotated[bool, typer.Option("--overdue", help="All retries that are more than 5 minutes late.")] = False,
    payload: Payload = None,
) -> None:
    """Run a waiting retry now.

    A later delivery of the same attempt has no effect. The command sends the message of the attempt's schedule to
    WorkQueue. A message that the queue delays, or that was lost, has no schedule: for these give --payload, which is
    checked by the hash in RequestLedgerTable.
    """
    if (request_id is None) == (not overdue) or (overdue and payload):
        raise typer.BadParameter("give the id of a request, or --overdue for all; --payload applies to one request")
    context = current_context()
    work = RetryControl(context.stack)
    if request_id is None:
        _run_overdue(context, work)
        return
    given = _payload(payload)
    row = work.ledger.read(request_id)
    if row is None or row.status != WAITING:
        raise _not_waiting(request_id, row)
    audit("retry run-now", request_id=request_id, attempt=awaited_attempt(row), payload_given=given is not None)
    match _checked(lambda: work.steps.run_now(request_id, given)):
        case RetrySentNow(attempt):
            text = f"{request_id}: attempt {attempt} is on WorkQueue."
            context.out.result({"sent": request_id, "attempt": attempt}, text)
        case MessageOutOfReach(attempt, due):
            raise CommandRefused(_out_of_reach(request_id, attempt, due, time.time()))
        case NoRetryWaiting(row):
            raise _not_waiting(request_id, row)


def _checked[Outcome](act: Callable[[], Outcome]) -> Outcome:
    """The outcome of an operation on one request. Raises CommandRefused for the payload of another."""
    try:
        return act()
    except PayloadMismatch as error:
        raise CommandRefused(f"{error}: give the payload of this request. Nothing was changed.") from error


def _run_overdue(context: CommandContext, work: RetryControl) -> None:
    now = time.time()
    unreadable: list[str] = []
    overdue = [(name, row) for name, row in _rows(context, work, unreadable) if lateness(row, now) > 0]
    late = [name for name, row in overdue if not is_cancelled(row)]
    sent: list[str] = []
    lost: list[str] = []
    if late:
        context.confirm(f"Send {count(len(late), 'overdue attempt')} to WorkQueue?")
        audit("retry run-now", overdue=len(late))
    for name in late:
        match work.steps.run_now(name):
            case RetrySentNow():
                sent.append(name)
            case MessageOutOfReach(attempt, due):
                lost.append(name)
                context.out.note(_out_of_reach(name, attempt, due, now))
            case NoRetryWaiting():
                context.out.note(f"{name}: the attempt has started meanwhile")
    for name in {name for name, _ in overdue} - set(late):
        context.out.note(
            f"{name}: the attempt was cancelled, and its message was not delivered. Dead-letter it with: "
            + next_step("retry cancel", name, payload=ToFillIn("FILE"))
        )
    for text in unreadable:
        context.out.note(text)
    text = f"{count(len(sent), 'overdue attempt')} sent to WorkQueue." if late else "No attempt is overdue."
    context.out.result({"sent": sent, "out_of_reach": lost, "unreadable": unreadable}, text)
    if lost or unreadable:
        not_sent = count(len(lost) + len(unreadable), "overdue attempt")
        raise ProblemsFound(f"{not_sent} could not be sent to WorkQueue: see the lines above")


def _rows(context: CommandContext, work: RetryControl, unreadable: list[str]) -> Iterator[tuple[str, Row]]:
    """The rows whose attempt has not started, including cancelled attempts."""
    with context.out.progress() as progress:
        task = progress.add_task("rows of the ledger", total=work.approximate_row_count() or None)
        for name, listed in work.ledger.rows((WAITING, FAILED), lambda rows: progress.advance(task, rows)):
            if isinstance(listed, MalformedRow):
                unreadable.append(str(listed))
            elif is_awaited(listed):
                yield name, listed


def _due_at(due: float | None) -> str:
    if due is None:
        return ""
    if time.time() > due + OVERDUE_AFTER:
        return f" (it was due at {local_time(due)}; if it is lost, run this again with --payload FILE)"
    return f" (due at {local_time(due)})"


def _as_dict(work: RetryControl, request_id: str, row: Row, scheduled: set[str], now: float) -> dict[str, Any]:
    late = lateness(row, now)
    by_schedule = work.steps.schedule_name(request_id, row) in scheduled
    return {
        "request_id": request_id,
        "attempt": awaited_attempt(row),
        "due": iso(row.next_attempt_at) if row.next_attempt_at is not None else None,
        "overdue_seconds": int(late) if late else None,
        "by": "schedule" if by_schedule else "unknown" if late else "queue",
        "cancelled": is_cancelled(row),
        "downstream": row.downstream or None,
        "last_attempt_at": iso(row.last_attempt_at),
        "last_error": row.last_error,
    }


def _not_waiting(request_id: str, row: Row | None) -> CommandRefused | NotFound:
    if row is None:
        return NotFound(
            f"RequestLedgerTable has no request {request_id!r}: it has not been tried yet, or its row expired"
        )
    why = explain_work(request_id, row, (), time.time())["answer"]
    return CommandRefused(f"{request_id}: no attempt waits: {why} Nothing was changed.")


def _out_of_reach(request_id: str, attempt: int, due: float | None, now: float) -> str:
    late = 0 if due is None else now - due
    if late <= OVERDUE_AFTER:
        return (
            f"{request_id}: attempt {attempt} is delayed by WorkQueue, where it cannot be reached, and is delivered "
            f"in {duration(-late)}. To run it now, give its payload with --payload FILE. Nothing was sent."
        )
    return (
        f"{request_id}: attempt {attempt} is {duration(late)} overdue and has no schedule. Its message may be in "
        "WorkQueue, or in RetryScheduleDeadLetterQueue (slotkeeper dlq list schedule). If it is in neither, it is "
        "lost: recover it with its payload, --payload FILE. Nothing was sent."
    )


def _payload(file: TextIO | None) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        data = json.load(file)
    except ValueError as error:
        raise typer.BadParameter(f"--payload: the file is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise typer.BadParameter("--payload: the file must contain the payload as a JSON object")
    return data


def _render(console: Console, data: dict[str, Any]) -> None:
    if not data["retries"]:
        console.print("No request waits for another attempt.")
    else:
        made = table("request", ">next attempt", "due", "delivered by", "last error")
        for one in data["retries"]:
            made.add_row(one["request_id"], str(one["attempt"]), _due(one), _by(one), one["last_error"])
        console.print(made)
    if data["not_shown"]:
        console.print(f"{data['not_shown']:,} more, due later, are not shown: raise --limit")
    for text in data["unreadable"]:
        console.print(f"malformed: {text}", style="red")
    for one in data["open_breakers"]:
        console.print(f"Messages may be held back: {line(one, time.time())}", style="yellow")


def _due(one: dict[str, Any]) -> Text:
    if one["due"] is None:
        return Text("")
    text = local_time(epoch(one["due"]))
    if one["overdue_seconds"]:
        return Text(f"{text}, overdue by {duration(one['overdue_seconds'])}", style="red")
    return Text(text)


def _by(one: dict[str, Any]) -> str:
    if one["cancelled"]:
        return "cancelled"
    return {"schedule": "Scheduler", "queue": "the queue", "unknown": "unknown"}[str(one["by"])]
