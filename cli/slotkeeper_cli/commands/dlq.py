"""`slotkeeper dlq`: list, show, redrive and discard dead-letter messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.text import Text

from slotkeeper_cli.audit import audit
from slotkeeper_cli.context import CommandContext, StackCommand, current_context
from slotkeeper_cli.dead_letter_queues import DeadLetterMessage, DeadLetterQueueName, DeadLetterQueueReader
from slotkeeper_cli.errors import CommandFailed, CommandRefused, NotFound
from slotkeeper_cli.formatting import count, local_time
from slotkeeper_cli.redrive import NotRedrivable, Redrive, plan, send
from slotkeeper_cli.slot_control import SlotControl

# The code of a cancelled request. Redriven only by --id or --code, not by --all, since an operator decided against it.
CANCELLED = "Cancelled"
# Characters of at most four bytes; CloudWatch Logs accepts events of 1 MiB (CloudWatch Logs quotas).
MAX_BODY_AUDITED = 200_000
MAX_REASON_SHOWN = 200

app = typer.Typer(help="List, redrive and discard dead-letter messages.", no_args_is_help=True)

QueueName = Annotated[
    DeadLetterQueueName, typer.Argument(metavar="QUEUE", help="Queue: request, failed, work or schedule.")
]
Ids = Annotated[list[str] | None, typer.Option("--id", metavar="MESSAGE_ID", help="Id of a message; may be repeated.")]
Codes = Annotated[list[str] | None, typer.Option("--code", help="All messages of this code; may be repeated.")]
Limit = Annotated[int, typer.Option(min=1, help="Maximum number of messages per queue.")]


@app.command("list", cls=StackCommand)
def list_dead_letters(
    queue: Annotated[
        DeadLetterQueueName | None,
        typer.Argument(metavar="[QUEUE]", help="Queue: request, failed, work or schedule; by default all."),
    ] = None,
    limit: Limit = 100,
) -> None:
    """List dead-letter messages: the number of each code, and the reason of each message. Changes nothing."""
    context = current_context()
    queues: list[tuple[dict[str, Any], list[DeadLetterMessage]]] = []
    for one in [queue] if queue else [each for each in DeadLetterQueueName if each.is_deployed(context.stack)]:
        reader = DeadLetterQueueReader(context.stack, one)
        messages = reader.peek(limit)
        data = {
            "queue": one.value,
            "name": one.full_name,
            "messages": max(reader.size(), len(messages)),
            "codes": dict(Counter(message.code for message in messages)),
            "dead_letters": [message.summary() for message in messages],
        }
        queues.append((data, messages))
    context.out.result({"queues": [data for data, _ in queues]}, lambda console: _render_queues(console, queues))


@app.command("show", cls=StackCommand)
def show(queue: QueueName, ids: Ids = None, limit: Limit = 10) -> None:
    """Show dead-letter messages in full: body and attributes."""
    context = current_context()
    reader = DeadLetterQueueReader(context.stack, queue)
    messages = _read_named(reader, ids) if ids else reader.peek(limit)
    data = [{**message.summary(), "body": message.body, "attributes": dict(message.attributes)} for message in messages]

    def render(console: Console) -> None:
        for message in messages:
            console.print(Text.assemble((message.message_id, "bold"), f"  {local_time(message.sent_at)}"))
            for name, value in message.attributes.items():
                console.print(f"  {name}: {value}")
            console.print(f"  {message.body}\n")
        if not messages:
            console.print(f"{queue.full_name} is empty.")

    context.out.result({"queue": queue.value, "dead_letters": data}, render)


@dataclass
class RedriveReport:
    """What the command did with the selected messages."""

    redriven: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)

    @property
    def number(self) -> int:
        return len(self.redriven) + len(self.skipped) + len(self.failed)

    def skip(self, message: DeadLetterMessage, why: str) -> None:
        self.skipped.append({**message.summary(), "why": why})


@app.command("redrive", cls=StackCommand)
def redrive(
    queue: QueueName,
    ids: Ids = None,
    code: Codes = None,
    every: Annotated[bool, typer.Option("--all", help="All messages except cancelled requests.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent; send nothing.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of messages; by default no maximum.")] = None,
) -> None:
    """Redrive messages: send them again under the same idempotency key, as the next attempt.

    Each message is sent first and then deleted. A message that would be refused again stays, with the reason. You can
    interrupt the command and run it again: a message that is sent twice has no second effect.
    """
    context = current_context()
    if sum((bool(ids), bool(code), every)) != 1:
        raise typer.BadParameter("select messages with one of --id, --code and --all")
    reader = DeadLetterQueueReader(context.stack, queue)
    expected = len(ids) if ids else min(reader.size(), limit or reader.size())
    if not expected:
        raise NotFound(f"{queue.full_name} is empty: there is nothing to redrive")
    if not dry_run:
        of_code = f"of code {', '.join(code)} " if code else ""
        number = count(expected, "message") if ids else f"the messages {of_code}(at most {expected:,})"
        context.confirm(f"Send {number} of {queue.full_name} again?")
    report = _redrive(context, reader, _selection(ids, code), dry_run, limit, expected)
    data = {"queue": queue.value, "dry_run": dry_run, **vars(report)}
    context.out.result(data, "\n".join(_report_lines(queue, report, dry_run)))
    _raise_for_outcome(report, ids)


@app.command("discard", cls=StackCommand)
def discard(queue: QueueName, ids: Ids = None, code: Codes = None) -> None:
    """Delete messages permanently, such as cancelled requests. The audit log keeps each body."""
    context = current_context()
    if bool(ids) == bool(code):
        raise typer.BadParameter("select messages with either --id or --code")
    reader = DeadLetterQueueReader(context.stack, queue)
    which = count(len(ids), "message") if ids else f"all messages of code {', '.join(code or [])}"
    context.confirm(f"Delete {which} of {queue.full_name} permanently?")
    choose, deleted = _selection(ids, code), list[dict[str, Any]]()
    with closing(reader.sweep()) as batches:
        for message in (message for batch in batches for message in batch):
            if choose(message) is None:
                continue
            body = message.body[:MAX_BODY_AUDITED]
            audit("dlq discard", queue=queue.full_name, message_id=message.message_id, code=message.code, body=body)
            reader.delete(message)
            deleted.append(message.summary())
    by_id = {message["message_id"] for message in deleted}
    text = f"{queue.full_name}: {count(len(deleted), 'message')} deleted."
    context.out.result({"queue": queue.value, "deleted": deleted}, text)
    if not deleted or any(one not in by_id for one in ids or []):
        raise NotFound(f"{queue.full_name} has no such message. List the messages with: slotkeeper dlq list {queue}")


def _selection(ids: list[str] | None, codes: list[str] | None) -> Callable[[DeadLetterMessage], str | None]:
    """A function that returns None for a message that is not selected, otherwise why it is skipped, or `""`."""

    def choose(message: DeadLetterMessage) -> str | None:
        if ids:
            return "" if message.message_id in ids else None
        if codes:
            return "" if message.code in codes else None
        if message.code == CANCELLED:
            return f"it was cancelled: to run it all the same, select it with --id or --code {CANCELLED}"
        return ""

    return choose


def _redrive(
    context: CommandContext,
    reader: DeadLetterQueueReader,
    choose: Callable[[DeadLetterMessage], str | None],
    dry_run: bool,
    limit: int | None,
    expected: int,
) -> RedriveReport:
    report = RedriveReport()
    processes = SlotControl(context.stack).names() if reader.queue.has_requests else []
    with context.out.progress() as progress, closing(reader.sweep()) as batches:
        task = progress.add_task(reader.queue.full_name, total=expected)
        for batch in batches:
            planned: list[Redrive] = []
            for message in batch:
                skipped = choose(message)
                if skipped is None or (limit is not None and report.number + len(planned) >= limit):
                    continue
                try:
                    if skipped:
                        raise NotRedrivable(skipped)
                    planned.append(plan(message, processes))
                except NotRedrivable as error:
                    report.skip(message, str(error))
            if planned and not dry_run:
                messages = [one.dlq_message for one in planned]
                ids = [{"message_id": each.message_id, "request_id": each.request_id} for each in messages]
                audit("dlq redrive", queue=reader.queue.full_name, dead_letters=ids)
            for one in planned:
                _send_and_delete(context, reader, one, dry_run, report)
                progress.update(task, completed=report.number)
            if limit is not None and report.number >= limit:
                break
    return report


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


def _raise_for_outcome(report: RedriveReport, ids: list[str] | None) -> None:
    if report.failed:
        raise CommandFailed(
            f"{count(len(report.failed), 'message')} not redriven, {len(report.redriven)} redriven: run this again"
        )
    if not ids:
        return
    by_id = {message["message_id"] for message in (*report.redriven, *report.skipped)}
    if missing := [one for one in ids if one not in by_id]:
        raise NotFound(f"no message {', '.join(missing)} found. Another command may be reading it: run this again")
    if report.skipped:
        raise CommandRefused("not sent: " + "; ".join(f"{one['message_id']}: {one['why']}" for one in report.skipped))


def _read_named(reader: DeadLetterQueueReader, ids: list[str]) -> list[DeadLetterMessage]:
    by_id: dict[str, DeadLetterMessage] = {}
    with closing(reader.sweep()) as batches:
        for batch in batches:
            by_id |= {message.message_id: message for message in batch if message.message_id in ids}
            if len(by_id) == len(set(ids)):
                break
    if missing := [one for one in ids if one not in by_id]:
        raise NotFound(
            f"{reader.queue.full_name} has no message {', '.join(missing)}. List the messages with: slotkeeper "
            f"dlq list {reader.queue}"
        )
    return [by_id[one] for one in dict.fromkeys(ids)]


def _render_queues(console: Console, queues: list[tuple[dict[str, Any], list[DeadLetterMessage]]]) -> None:
    for queue, messages in queues:
        codes = ", ".join(f"{number:,} {code}" for code, number in sorted(queue["codes"].items()))
        line = f" ({queue['queue']}): {queue['messages']:,}" + f"  ({codes})" * bool(codes)
        console.print(Text.assemble((queue["name"], "bold"), line))
        for message in messages:
            # Not a table, in which a folded id could not be copied.
            console.print(f"  {message.message_id}  {message.code}  {_label(message)}")
            console.print(f"    {local_time(message.sent_at)}  {message.reason[:MAX_REASON_SHOWN]}", style="dim")
        if more := queue["messages"] - len(messages):
            console.print(f"  {more:,} more not shown: above --limit, or behind the first ten of their process")


def _label(message: DeadLetterMessage) -> str:
    names = [message.process, message.request_id] if message.execution else [message.request_id]
    return f"{'/'.join(names)}, attempt {message.attempt}"


def _report_lines(queue: DeadLetterQueueName, report: RedriveReport, dry_run: bool) -> Iterator[str]:
    verb = "would be sent" if dry_run else "sent"
    for message in report.redriven:
        request = f"{message['request_id']}, attempt {message['attempt']}  {message.get('execution', '')}"
        yield f"{verb}: {message['message_id']}  {request}"
    for message in report.skipped:
        yield f"left: {message['message_id']}  {message['code']}: {message['why']}"
    for message in report.failed:
        yield f"failed: {message['message_id']}  {message['error']}"
    yield (
        f"{queue.full_name}: {count(len(report.redriven), 'message')} {verb} again, {len(report.skipped)} left, "
        f"{len(report.failed)} failed."
    )
