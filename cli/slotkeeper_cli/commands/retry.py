"""`slotkeeper retry`: what the worker is to try again, and when; cancel it, or have it tried now."""

from __future__ import annotations

import heapq
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

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
from slotkeeper_cli.audit import audit
from slotkeeper_cli.common import Cli, StackCommand, cli
from slotkeeper_cli.errors import NotFound, ProblemsFound, Refused
from slotkeeper_cli.output import table
from slotkeeper_cli.retrying import WorkRetries
from slotkeeper_cli.words import count, duration, iso, local_time

# Seconds. Scheduler brings a retry up to two minutes late (docs/retries-reference.md), and the queue's own comes when a
# worker is free. What is later than this deserves a look.
OVERDUE_AFTER = 300

app = typer.Typer(help="What the worker is to try again.", no_args_is_help=True)


def list_(
    limit: Annotated[int, typer.Option(min=1, help="Show so many, those that are due first.")] = 50,
    request_id: Annotated[str | None, typer.Option(help="Only this request's, without a scan.")] = None,
    overdue: Annotated[bool, typer.Option("--overdue", help="Only those that should have begun by now.")] = False,
) -> None:
    """Which requests wait for another attempt: when it is due, who brings it, and what the last one failed of.

    Reads the whole ledger (with --request-id one row), each 4 KB of it at half a read unit.
    """
    here = cli()
    work, now = WorkRetries(here.stack), time.time()
    unreadable: list[str] = []
    rows = _rows(here, work, request_id, unreadable)
    waiting = [(name, row) for name, row in rows if not overdue or _lateness(row, now) > 0]
    shown = heapq.nsmallest(limit, waiting, key=lambda found: (found[1].next_attempt_at or 0, found[0]))
    scheduled = set(_schedules(here, work)) if shown or request_id is None else set()
    ours = {work.steps.schedule_name(name, row) for name, row in waiting}
    data = {
        "at": iso(now),
        "retries": [_told(work, name, row, scheduled, now) for name, row in shown],
        "not_shown": len(waiting) - len(shown),
        "unreadable": unreadable,
        # Copies of attempts that have begun already, mostly: whatever they bring is dropped. Not known of a part.
        "other_schedules": None if request_id or overdue else len(scheduled - ours),
    }
    here.out.result(data, lambda console: _render(console, data))


def cancel(
    request_id: Annotated[str, typer.Argument(help="The request whose attempt waits, as list shows it.")],
    why: Annotated[str, typer.Option(help="For people: the dead letter will say it.")] = "by an operator",
    payload: Annotated[
        str | None, typer.Option(metavar="FILE", help="The request's payload, where its message is lost; - is stdin.")
    ] = None,
) -> None:
    """Give up a request that waits for another attempt: it becomes a dead letter with its whole history.

    An attempt that has begun is not stopped. One that Scheduler was to bring becomes a dead letter within moments, one
    that the queue delays when it comes. Sending the dead letter's body to the queue gives it the attempt back. Who was
    interrupted gives the command again.
    """
    here = cli()
    work = WorkRetries(here.stack)
    given = _payload(payload) if payload else None
    row = work.ledger.read(request_id)
    if row is None or not _is_awaited(row):
        raise _not_waiting(request_id, row)
    here.confirm(f"Give up request {request_id!r}, whose attempt {awaited_attempt(row)} waits?")
    audit("retry cancel", request_id=request_id, attempt=awaited_attempt(row), why=why)
    try:
        outcome = work.steps.cancel(request_id, why, given)
    except PayloadMismatch as error:
        raise Refused(f"{error}: nothing was changed") from error
    match outcome:
        case RetryCancelled(attempt, sent, due):
            when = "within moments" if sent else f"when its message comes{_due_at(due)}"
            data = {"cancelled": request_id, "attempt": attempt, "sent": sent}
            here.out.result(
                data,
                lambda console: console.print(
                    f"{request_id}: attempt {attempt} will not be made. The request becomes a dead letter {when} "
                    "(code Cancelled, in WorkDeadLetterQueue)."
                ),
            )
        case NoRetryWaiting(seen):
            raise _not_waiting(request_id, seen)


def run_now(
    request_id: Annotated[str | None, typer.Argument(help="The request whose attempt waits.")] = None,
    overdue: Annotated[bool, typer.Option("--overdue", help="All that should have begun by now.")] = False,
    payload: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The request's payload, for a message out of reach or lost; - is stdin."),
    ] = None,
) -> None:
    """Have an attempt that waits made now, once: whatever brings it later finds that it has begun.

    It takes the message from the attempt's schedule. One that the queue delays (up to a quarter of an hour, or in hops)
    is out of reach, and so is one that was lost: for these give the payload, which the ledger knows by its hash.
    """
    if (request_id is None) == (not overdue) or (overdue and payload):
        raise typer.BadParameter("give a request's id, or --overdue for all; --payload is for one request")
    here = cli()
    work = WorkRetries(here.stack)
    if request_id is None:
        _run_overdue(here, work)
        return
    given = _payload(payload) if payload else None
    row = work.ledger.read(request_id)
    if row is None or row.status != WAITING:
        raise _not_waiting(request_id, row)
    audit("retry run-now", request_id=request_id, attempt=awaited_attempt(row), payload_given=given is not None)
    try:
        outcome = work.steps.run_now(request_id, given)
    except PayloadMismatch as error:
        raise Refused(f"{error}: nothing was sent") from error
    match outcome:
        case RetrySentNow(attempt):
            here.out.result(
                {"sent": request_id, "attempt": attempt},
                lambda console: console.print(f"{request_id}: attempt {attempt} is on the queue."),
            )
        case MessageOutOfReach(attempt, due):
            raise Refused(_out_of_reach(request_id, attempt, due, time.time()))
        case NoRetryWaiting(seen):
            raise _not_waiting(request_id, seen)


def _run_overdue(here: Cli, work: WorkRetries) -> None:
    now = time.time()
    unreadable: list[str] = []
    overdue = [(name, row) for name, row in _rows(here, work, None, unreadable) if _lateness(row, now) > 0]
    late = [name for name, row in overdue if not is_cancelled(row)]
    sent: list[str] = []
    lost: list[str] = []
    if late:
        here.confirm(f"Bring {count(len(late), 'overdue attempt')} to the queue?")
        audit("retry run-now", overdue=len(late))
    for name in late:
        match work.steps.run_now(name):
            case RetrySentNow():
                sent.append(name)
            case MessageOutOfReach(attempt, due):
                lost.append(name)
                here.out.note(_out_of_reach(name, attempt, due, now))
            case NoRetryWaiting():
                here.out.note(f"{name}: it has begun meanwhile")
    for name in {name for name, _ in overdue} - set(late):
        here.out.note(
            f"{name}: it was cancelled, and its message has not come: slotkeeper retry cancel {name} --payload FILE"
        )
    for text in unreadable:
        here.out.note(text)
    here.out.result(
        {"sent": sent, "out_of_reach": lost, "unreadable": unreadable},
        lambda console: console.print(
            f"{count(len(sent), 'overdue attempt')} brought to the queue." if late else "No attempt is overdue."
        ),
    )
    if lost or unreadable:
        raise ProblemsFound(f"{len(lost) + len(unreadable)} overdue attempts could not be brought to the queue")


def _rows(here: Cli, work: WorkRetries, request_id: str | None, unreadable: list[str]) -> Iterator[tuple[str, Row]]:
    """The rows whose attempt waits, a cancelled one too."""
    if request_id is not None:
        row = work.ledger.read(request_id)
        if row is None:
            raise NotFound(f"the ledger knows of no request {request_id!r}: it was not tried yet, or long ago")
        if _is_awaited(row):
            yield request_id, row
        return
    with here.out.progress() as progress:
        task = progress.add_task("rows of the ledger", total=work.rows_there_are() or None)
        for name, found in work.ledger.rows((WAITING, FAILED), lambda rows: progress.advance(task, rows)):
            if isinstance(found, MalformedRow):
                unreadable.append(str(found))
            elif _is_awaited(found):
                yield name, found


def _schedules(here: Cli, work: WorkRetries) -> Iterator[str]:
    with here.out.progress() as progress:
        task = progress.add_task("schedules", total=None)
        yield from work.schedule_names(lambda names: progress.advance(task, names))


def _is_awaited(row: Row) -> bool:
    return row.status == WAITING or is_cancelled(row)


def _lateness(row: Row, now: float) -> float:
    """For how many seconds it should have begun; 0 if it need not have."""
    if row.next_attempt_at is None or now < row.next_attempt_at + OVERDUE_AFTER:
        return 0
    return now - row.next_attempt_at


def _due_at(due: float | None) -> str:
    if due is None:
        return ""
    if time.time() > due + OVERDUE_AFTER:
        return f", which was due at {local_time(due)}; if it is lost, give the command again with --payload FILE"
    return f", due at {local_time(due)}"


def _told(work: WorkRetries, request_id: str, row: Row, scheduled: set[str], now: float) -> dict[str, Any]:
    late = _lateness(row, now)
    by_schedule = work.steps.schedule_name(request_id, row) in scheduled
    return {
        "request_id": request_id,
        "attempt": awaited_attempt(row),
        "due": iso(row.next_attempt_at) if row.next_attempt_at is not None else None,
        "overdue_seconds": int(late) if late else None,
        "by": "schedule" if by_schedule else "unknown" if late else "queue",
        "cancelled": is_cancelled(row),
        "last_attempt_at": iso(row.last_attempt_at),
        "last_error": row.last_error,
    }


def _not_waiting(request_id: str, row: Row | None) -> Refused | NotFound:
    if row is None:
        return NotFound(f"the ledger knows of no request {request_id!r}: it was not tried yet, or long ago")
    said = {
        "RUNNING": f"attempt {row.attempts} is being made, until {local_time(row.lease_until)} at the latest",
        "FAILED": f"what follows attempt {row.attempts} is being carried out; look again in a moment",
        "SUCCEEDED": "it has succeeded",
        "DEAD_LETTERED": "it is a dead letter: slotkeeper dlq list",
    }
    if is_cancelled(row):
        return Refused(f"{request_id}: attempt {row.attempts} was cancelled, and its message becomes a dead letter")
    return Refused(f"{request_id}: no attempt waits, {said.get(row.status, row.status)}")


def _out_of_reach(request_id: str, attempt: int, due: float | None, now: float) -> str:
    late = 0 if due is None else now - due
    if late <= OVERDUE_AFTER:
        return (
            f"{request_id}: attempt {attempt} is delayed by the queue, where nobody can reach it, and comes by itself "
            f"in {duration(-late)}. To have it now all the same, give its payload: --payload FILE"
        )
    return (
        f"{request_id}: attempt {attempt} is {duration(late)} overdue and has no schedule. Its message may wait in "
        "WorkQueue for a worker, or in RetryScheduleDeadLetterQueue (slotkeeper dlq list); if it does not, it is lost, "
        "and the payload makes it good: --payload FILE"
    )


def _payload(file: str) -> dict[str, Any]:
    try:
        told = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"--payload: {file} cannot be read as JSON: {error}") from error
    if not isinstance(told, dict):
        raise typer.BadParameter(f"--payload: {file} must hold a JSON object, the payload alone")
    return told


def _render(console: Console, data: dict[str, Any]) -> None:
    if not data["retries"]:
        console.print("No request waits for another attempt.")
    else:
        made = table("request", ">attempt", "due", "brought by", "the last one failed of")
        for one in data["retries"]:
            made.add_row(
                one["request_id"], str(one["attempt"]), _due(one), _by(one), Text(one["last_error"], overflow="fold")
            )
        console.print(made)
    if data["not_shown"]:
        console.print(f"{data['not_shown']:,} more, due later: --limit")
    for text in data["unreadable"]:
        console.print(f"not readable: {text}", style="red", markup=False)
    if data["other_schedules"]:
        console.print(f"{count(data['other_schedules'], 'more schedule')}, of attempts that nobody waits for: dropped.")


def _due(one: dict[str, Any]) -> Text:
    if one["due"] is None:
        return Text("")
    text = local_time(epoch(one["due"]))
    if one["overdue_seconds"]:
        return Text(f"{text}, overdue by {duration(one['overdue_seconds'])}", style="red")
    return Text(text)


def _by(one: dict[str, Any]) -> str:
    if one["cancelled"]:
        return "cancelled: a dead letter"
    return {"schedule": "Scheduler", "queue": "the queue", "unknown": "nobody knows"}[str(one["by"])]


app.command("list", cls=StackCommand)(list_)
app.command("cancel", cls=StackCommand)(cancel)
app.command("run-now", cls=StackCommand)(run_now)
