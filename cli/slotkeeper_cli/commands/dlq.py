"""`slotkeeper dlq`: list, show, redrive and discard dead-letter messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.text import Text

from slotkeeper.next_step import next_step
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.context import CommandContext, StackCommand, current_context
from slotkeeper_cli.dead_letters import (
    DeadLetterMessage,
    DeadLetterQueueName,
    DeadLetterQueueReader,
    Read,
)
from slotkeeper_cli.errors import CommandFailed, CommandRefused, NotFound
from slotkeeper_cli.formatting import count, local_time, one_line
from slotkeeper_cli.output import print_lines, styled
from slotkeeper_cli.redrive import (
    Redrive,
    Selection,
    all_but_cancelled,
    find_messages,
    of_codes,
    of_messages,
    plan,
    refuse_if_ambiguous,
    send,
)
from slotkeeper_cli.requests import FIELD, HIDDEN
from slotkeeper_cli.requeueing import NotRedrivable
from slotkeeper_cli.slot_control import SlotControl, name_of
from slotkeeper_cli.stack_connection import UnreadSource

# Characters of at most four bytes; CloudWatch Logs accepts events of 1 MiB (CloudWatch Logs quotas).
MAX_BODY_AUDITED = 200_000
# Messages of a queue that `dlq list` reads to count their codes, if --limit is not larger.
_COUNTED = 1000

app = typer.Typer(help="List, redrive and discard dead-letter messages.", no_args_is_help=True)

QueueName = Annotated[DeadLetterQueueName, typer.Argument(metavar="QUEUE", help="Queue: request, work or schedule.")]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="Id of a request, or of the message; may be repeated."),
]
Codes = Annotated[list[str] | None, typer.Option("--code", help="All messages of this code; may be repeated.")]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of messages per queue.")]
# Characters of a reason, enough for a whole error message of Glue.
MAX_REASON_SHOWN = 4000


@app.command("list", cls=StackCommand)
def list_dead_letters(
    queue: Annotated[
        DeadLetterQueueName | None,
        typer.Argument(metavar="[QUEUE]", help="Queue: request, work or schedule; by default all."),
    ] = None,
    limit: Limit = 100,
) -> None:
    """List dead-letter messages by code, with their reasons.

    Changes nothing.
    """
    context = current_context()
    queues: list[tuple[dict[str, Any], Read]] = []
    for one in [queue] if queue else [each for each in DeadLetterQueueName if each.is_deployed(context.stack)]:
        reader = DeadLetterQueueReader(context.stack, one)
        read = reader.peek(max(limit, _COUNTED))
        data = {
            "queue": one.value,
            "name": one.full_name,
            "messages": max(reader.size(), len(read.messages)),
            "codes": dict(Counter(message.code for message in read.messages)),
            "dead_letters": [message.summary() for message in read.messages[:limit]],
            "unread": _unread_dict(read.unread),
        }
        queues.append((data, read))
    context.out.result({"queues": [data for data, _ in queues]}, lambda console: render_queues(console, queues, limit))


@app.command("show", cls=StackCommand)
def show(queue: QueueName, ids: Ids = None, limit: Limit = 10) -> None:
    """Show dead-letter messages in full.

    It shows reason, attributes and body of each. A caller's task token is hidden.
    """
    context = current_context()
    reader = DeadLetterQueueReader(context.stack, queue)
    read = Read(find_messages(reader, ids), reader.unread()) if ids else reader.peek(limit)
    shown = [
        {**message.summary(), "body": message.shown_body, "attributes": dict(message.attributes)}
        | ({FIELD: HIDDEN} if message.had_token else {})
        for message in read.messages
    ]

    def render(console: Console) -> None:
        for message in read.messages:
            render_message(console, message)
        if read.unread:
            console.print(read.unread.text)
        elif not read.messages:
            console.print(f"{queue.full_name} is empty.")

    data = {"queue": queue.value, "dead_letters": shown, "unread": _unread_dict(read.unread)}
    context.out.result(data, render)


def _unread_dict(unread: UnreadSource | None) -> dict[str, Any] | None:
    return {"queue": unread.source, "messages": unread.messages, "why": unread.why} if unread else None


@dataclass
class RedriveReport:
    """What the command did with the selected messages."""

    redriven: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)

    @property
    def handled(self) -> int:
        return len(self.redriven) + len(self.skipped) + len(self.failed)

    def skip(self, message: DeadLetterMessage, why: str) -> None:
        self.skipped.append({**message.summary(), "why": why})


@app.command("redrive", cls=StackCommand)
def redrive(
    queue: QueueName,
    ids: Ids = None,
    code: Codes = None,
    every: Annotated[bool, typer.Option("--all", help="All messages except cancelled work.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent; send nothing.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum number of messages; by default no maximum.")
    ] = None,
) -> None:
    """Send messages again, under the same key.

    A message is deleted after that. They are handled in the order of their requests, at most 1,000 at a time. A message
    that would be refused again stays, with the reason. If all stay, the exit code is 3. You can interrupt the command
    and run it again: what is redriven twice has no second effect. For requests that failed: slotkeeper failed redrive.
    """
    context = current_context()
    if sum((bool(ids), bool(code), every)) != 1:
        raise typer.BadParameter("select messages with one of --id, --code and --all")
    reader = DeadLetterQueueReader(context.stack, queue)
    named = _find_unambiguous(reader, ids) if ids else []
    # The size is approximate: 0 may be out of date.
    is_empty = not named and not reader.size() and not reader.peek(1).messages
    expected = len(named) or max(1, min(reader.size(), limit or reader.size()))
    if not dry_run and not is_empty:
        of_code = f"of code {', '.join(code)} " if code else ""
        which = _labels(named) if named else f"the messages {of_code}(about {expected:,})"
        context.confirm(f"Send {which} of {queue.full_name} again?")
    choose = of_codes(code) if code else all_but_cancelled
    choose = of_messages(named) if named else choose
    report = RedriveReport() if is_empty else _redrive(context, reader, choose, dry_run, limit, expected)
    is_limited = limit is not None and report.handled >= limit
    unread = None if named or is_limited else reader.unread()
    data = {"queue": queue.value, "dry_run": dry_run, **vars(report), "unread": _unread_dict(unread)}
    context.out.result(data, list(_report_lines(queue, report, dry_run, unread)))
    _raise_for_outcome(report, named, unread, code or [])


@app.command("discard", cls=StackCommand)
def discard(queue: QueueName, ids: Ids = None, code: Codes = None) -> None:
    """Delete messages permanently, such as cancelled work.

    The audit log keeps each body.
    """
    context = current_context()
    if bool(ids) == bool(code):
        raise typer.BadParameter("select messages with either --id or --code")
    reader = DeadLetterQueueReader(context.stack, queue)
    named = _find_unambiguous(reader, ids) if ids else []
    which = _labels(named) if named else f"all messages of code {', '.join(code or [])}"
    context.confirm(f"Delete {which} of {queue.full_name} permanently?")
    choose = of_messages(named) if named else of_codes(code or [])
    deleted = list[dict[str, Any]]()
    with closing(reader.sweep()) as batches:
        for message in (message for batch in batches for message in batch):
            if choose(message) is None:
                continue
            body = message.shown_body[:MAX_BODY_AUDITED]
            names = {"message_id": message.message_id, "request_id": message.request_id}
            audit("dlq discard", queue=queue.full_name, **names, code=message.code, body=body)
            reader.delete(message)
            deleted.append(message.summary())
    unread = None if named else reader.unread()
    text = [f"{queue.full_name}: {count(len(deleted), 'message')} deleted.", *([f"{unread.text}."] if unread else [])]
    context.out.result({"queue": queue.value, "deleted": deleted, "unread": _unread_dict(unread)}, text)
    if not deleted and unread:
        raise CommandFailed("nothing was deleted, since no message could be read that was to be deleted")
    if not deleted:
        raise NotFound(f"{queue.full_name} has no such message. List the messages with: {next_step('dlq list', queue)}")
    _raise_if_missing(named, deleted)


def _find_unambiguous(reader: DeadLetterQueueReader, ids: list[str]) -> list[DeadLetterMessage]:
    messages = find_messages(reader, ids)
    refuse_if_ambiguous(messages, ids)
    return messages


def _labels(messages: list[DeadLetterMessage]) -> str:
    return count(len(messages), "message") + f" ({', '.join(message.label for message in messages)})"


def _redrive(
    context: CommandContext,
    reader: DeadLetterQueueReader,
    choose: Selection,
    dry_run: bool,
    limit: int | None,
    expected: int,
) -> RedriveReport:
    report = RedriveReport()
    known = SlotControl(context.stack).processes.all() if reader.queue.has_requests else ()
    processes = {name_of(one): one for one in known}
    with context.out.progress() as progress, closing(reader.sweep()) as batches:
        task = progress.add_task(reader.queue.full_name, total=expected)
        for batch in batches:
            planned: list[Redrive] = []
            for message in batch:
                why = choose(message)
                if why is None or (limit is not None and report.handled + len(planned) >= limit):
                    continue
                try:
                    if why:
                        raise NotRedrivable(why)
                    planned.append(plan(message, processes))
                except NotRedrivable as error:
                    report.skip(message, str(error))
            if planned and not dry_run:
                audit("dlq redrive", queue=reader.queue.full_name, sent=[_for_audit(one) for one in planned])
            for one in planned:
                _send_and_delete(context, reader, one, dry_run, report)
                progress.update(task, completed=report.handled)
            if limit is not None and report.handled >= limit:
                break
    return report


def _for_audit(one: Redrive) -> dict[str, Any]:
    keys = ("message_id", "request_id", "process", "attempt")
    return {key: value for key, value in one.summary().items() if key in keys}


def _send_and_delete(
    context: CommandContext, reader: DeadLetterQueueReader, one: Redrive, dry_run: bool, report: RedriveReport
) -> None:
    sent = False
    try:
        if not dry_run:
            send(context.stack, one)
            sent = True
            reader.delete(one.dlq_message)
    except (BotoCoreError, ClientError) as error:
        not_deleted = "it was sent, but not deleted: redrive it again, which has no second effect"
        report.failed.append({**one.summary(), "error": f"{not_deleted if sent else 'it was not sent'} ({error})"})
        return
    report.redriven.append(one.summary())


def _raise_for_outcome(
    report: RedriveReport, named: list[DeadLetterMessage], unread: UnreadSource | None, codes: list[str]
) -> None:
    if report.failed:
        raise CommandFailed(
            f"{count(len(report.failed), 'message')} not redriven, {len(report.redriven)} redriven: run this again"
        )
    if named:
        _raise_if_missing(named, [*report.redriven, *report.skipped])
    if named and report.skipped:
        raise CommandRefused("not sent: " + "; ".join(f"{one['request_id']}: {one['why']}" for one in report.skipped))
    if report.redriven:
        return
    if report.skipped:
        raise CommandRefused(f"nothing was sent: {count(len(report.skipped), 'message')} left, for the reasons above")
    if unread:
        raise CommandFailed("nothing was sent, since no message could be read that was to be sent")
    if codes:
        raise NotFound(f"there is no message of code {', '.join(codes)}")


def _raise_if_missing(named: list[DeadLetterMessage], handled: list[dict[str, Any]]) -> None:
    by_id = {message["message_id"] for message in handled}
    if missing := [one.label for one in named if one.message_id not in by_id]:
        raise NotFound(
            f"no message of {', '.join(missing)} found any more. Another command may be reading it: run this again"
        )


def _report_lines(
    queue: DeadLetterQueueName, report: RedriveReport, dry_run: bool, unread: UnreadSource | None
) -> Iterator[str]:
    verb = "would be sent" if dry_run else "sent"
    for message in report.redriven:
        token = "  without its task_token: no caller is answered" * (FIELD in message)
        yield f"{verb}: {_name(message)}, attempt {message['attempt']}{token}"
    for message in report.skipped:
        yield f"left: {_name(message)}  {message['code']}: {message['why']}"
    for message in report.failed:
        yield f"failed: {_name(message)}  {message['error']}"
    if unread:
        yield f"{unread.text}."
    elif not report.handled:
        yield f"{queue.full_name} has no message to send again."
        return
    yield (
        f"{queue.full_name}: {count(len(report.redriven), 'message')} {verb} again, {len(report.skipped)} left, "
        f"{len(report.failed)} failed."
    )


def _name(message: dict[str, Any]) -> str:
    """The request of a message; the message, if it has no request id."""
    return str(message["request_id"] or message["message_id"])


def render_queues(console: Console, queues: list[tuple[dict[str, Any], Read]], limit: int) -> None:
    """Print the number of messages of each queue and code, two lines for each message, and what was not read."""
    for queue, read in queues:
        codes = ", ".join(f"{number:,} {code}" for code, number in sorted(queue["codes"].items()))
        line = f" ({queue['queue']}): {queue['messages']:,}" + f"  ({codes})" * bool(codes)
        console.print(Text.assemble((queue["name"], "bold"), styled(line)))
        for message in read.messages[:limit]:
            # Not a table, in which a folded id could not be copied.
            console.print(f"  {message.label}  {message.code}: {one_line(message.reason)}")
            console.print(f"    {local_time(message.sent_at)}  message {message.message_id}", style="dim")
        if len(read.messages) > limit:
            console.print(f"  {len(read.messages) - limit:,} more not shown: above --limit {limit}")
        if read.unread:
            console.print(f"  {read.unread.text}")


def render_message(console: Console, message: DeadLetterMessage) -> None:
    """Print a message in full."""
    console.print(message.label, style="bold")
    console.print(f"  message {message.message_id}")
    console.print(f"  since: {local_time(message.sent_at)}")
    console.print(f"  code: {message.code}")
    reason = message.reason[:MAX_REASON_SHOWN]
    more = "... (the whole text: --json)" if len(message.reason) > MAX_REASON_SHOWN else ""
    print_lines(console, f"  reason: {reason}{more}", "    ")
    for name, value in message.details.items():
        console.print(f"  {name.replace('_', ' ')}: {_readable(name, value)}")
    if message.had_token:
        console.print(f"  {FIELD}: {HIDDEN}")
    print_lines(console, f"  {message.shown_body}")
    console.print()


def _readable(name: str, value: str) -> str:
    """An attribute; a time, in seconds since the epoch or ISO 8601, in the local time zone."""
    try:
        if name.endswith("_at"):
            return local_time(float(value) if value.isdecimal() else datetime.fromisoformat(value).timestamp())
    except (ValueError, OverflowError, OSError):
        pass  # not a time: an attribute of another sender
    return value
