"""`slotkeeper dlq`: list, show, redrive and discard dead-letter messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.text import Text

from slotkeeper.next_step import next_step
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.bulk import BulkReport, Chosen, NotRedrivable, reasons
from slotkeeper_cli.context import StackCommand, current_context
from slotkeeper_cli.dead_letters import DeadLetterMessage, DeadLetterQueueName, DeadLetterQueueReader
from slotkeeper_cli.errors import CommandFailed, NotFound, failure_text
from slotkeeper_cli.formatting import count, cut, local_time
from slotkeeper_cli.output import print_lines, styled
from slotkeeper_cli.redrive import CANCELLED, find_messages, plan, refuse_if_ambiguous, send
from slotkeeper_cli.requests import FIELD, HIDDEN
from slotkeeper_cli.slot_control import SlotControl, name_of
from slotkeeper_cli.unread import UnreadSource

# Characters of at most four bytes; CloudWatch Logs accepts events of 1 MiB (CloudWatch Logs quotas).
MAX_BODY_AUDITED = 200_000
# Messages of a queue that `dlq list` reads to count their codes, if --limit is not larger.
_COUNTED = 1000

app = typer.Typer(help="List, redrive and discard dead-letter messages.", no_args_is_help=True)

QueueName = Annotated[DeadLetterQueueName, typer.Argument(metavar="QUEUE", help="Queue: request, work or schedule.")]
Ids = Annotated[
    list[str] | None, typer.Option("--id", metavar="ID", help="Id of a request, or of the message; may be repeated.")
]
Codes = Annotated[list[str] | None, typer.Option("--code", help="All messages of this code; may be repeated.")]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of messages per queue.")]


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
    queues: list[tuple[dict[str, Any], list[DeadLetterMessage]]] = []
    for one in [queue] if queue else [each for each in DeadLetterQueueName if each.is_deployed(context.stack)]:
        reader = DeadLetterQueueReader(context.stack, one)
        most = max(limit, _COUNTED)
        messages = reader.peek(most)
        data = {
            "queue": one.value,
            "name": one.full_name,
            "messages": max(reader.size(), len(messages)),
            "codes": dict(Counter(message.code for message in messages)),
            "dead_letters": [message.summary() for message in messages[:limit]],
            "unread": _unread_dict(reader.unread(most)),
        }
        queues.append((data, messages))
    context.out.result({"queues": [data for data, _ in queues]}, lambda console: render_queues(console, queues, limit))


@app.command("show", cls=StackCommand)
def show(queue: QueueName, ids: Ids = None, limit: Limit = 10) -> None:
    """Show dead-letter messages in full.

    It shows reason, attributes and body of each. A caller's task token is hidden.
    """
    context = current_context()
    reader = DeadLetterQueueReader(context.stack, queue)
    messages = find_messages(reader, ids) if ids else reader.peek(limit)
    unread = reader.unread(None if ids else limit)
    shown = [
        {**message.summary(), "body": message.shown_body, "attributes": dict(message.attributes)}
        | ({FIELD: HIDDEN} if message.had_token else {})
        for message in messages
    ]

    def render(console: Console) -> None:
        for message in messages:
            render_message(console, message)
        if unread:
            console.print(unread.text)
        elif not messages:
            console.print(f"{queue.full_name} is empty.")

    data = {"queue": queue.value, "dead_letters": shown, "unread": _unread_dict(unread)}
    context.out.result(data, render)


def _unread_dict(unread: UnreadSource | None) -> dict[str, Any] | None:
    return {"queue": unread.source, "messages": unread.messages, "why": unread.why} if unread else None


@app.command("redrive", cls=StackCommand)
def redrive(
    queue: QueueName,
    ids: Ids = None,
    code: Codes = None,
    every: Annotated[bool, typer.Option("--all", help="All messages except cancelled work.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent; send nothing.")] = False,
) -> None:
    """Send messages again, under the same key.

    A message is deleted after that. They are handled in the order of their requests, at most 500 at a time. A message
    that would be refused again stays, with the reason. If all stay, the exit code is 3. You can interrupt the command
    and run it again: a second redrive of a message has no effect. For requests that failed: slotkeeper failed redrive.
    """
    context = current_context()
    if sum((bool(ids), bool(code), every)) != 1:
        raise typer.BadParameter("select messages with one of --id, --code and --all")
    known = SlotControl(context.stack).processes.all() if queue.has_requests else ()
    processes = {name_of(one): one for one in known}

    def send_again(reader: DeadLetterQueueReader, message: DeadLetterMessage) -> None:
        if every and message.code == CANCELLED:
            raise NotRedrivable(f"it was cancelled: to run it all the same, select it with --id or --code {CANCELLED}")
        planned = plan(message, processes)
        if not dry_run:
            audit("dlq redrive", queue=queue.full_name, **_names(message), process=message.process)
            send(context.stack, message.body, planned)
            reader.delete(message)

    _change(queue, ids, code, "Send {} again?", "sent again", send_again, dry_run)


@app.command("discard", cls=StackCommand)
def discard(queue: QueueName, ids: Ids = None, code: Codes = None) -> None:
    """Delete messages permanently, such as cancelled work.

    The audit log keeps each body.
    """
    if bool(ids) == bool(code):
        raise typer.BadParameter("select messages with either --id or --code")

    def delete(reader: DeadLetterQueueReader, message: DeadLetterMessage) -> None:
        body = message.shown_body[:MAX_BODY_AUDITED]
        audit("dlq discard", queue=queue.full_name, **_names(message), code=message.code, body=body)
        reader.delete(message)

    _change(queue, ids, code, "Delete {} permanently?", "deleted", delete)


def _names(message: DeadLetterMessage) -> dict[str, str]:
    return {"message_id": message.message_id, "request_id": message.request_id}


def _change(
    queue: DeadLetterQueueName,
    ids: list[str] | None,
    codes: list[str] | None,
    question: str,
    verb: str,
    act: Callable[[DeadLetterQueueReader, DeadLetterMessage], None],
    dry_run: bool = False,
) -> None:
    """Act on the messages with these ids, of these codes, or on all. Raises what the exit code states.

    Args:
        act: raises NotRedrivable for a message that stays.
    """
    context = current_context()
    reader = DeadLetterQueueReader(context.stack, queue)
    named = find_messages(reader, ids) if ids else []
    refuse_if_ambiguous(named, ids or [])
    chosen_ids = {each.message_id for each in named}
    # The size is approximate: 0 may be out of date.
    expected = len(named) or max(reader.size(), len(reader.peek(1)))
    if expected and not dry_run:
        of_code = f"of code {', '.join(codes)} " if codes else ""
        labels = f"{count(len(named), 'message')} ({', '.join(each.label for each in named)})"
        which = labels if named else f"the messages {of_code}(about {expected:,})"
        context.confirm(question.format(f"{which} of {queue.full_name}"))
    report, done = BulkReport(), list[dict[str, Any]]()
    with context.out.progress() as progress, closing(reader.sweep()) as batches:
        task = progress.add_task(queue.full_name, total=expected)
        for message in (message for batch in batches for message in batch):
            is_chosen = message.message_id in chosen_ids if ids else codes is None or message.code in codes
            if report.failure or not is_chosen:
                continue
            one = Chosen(message.process, message.message_id, message.label)
            try:
                act(reader, message)
                report.done.append(one)
                done.append({"label": message.label, **message.summary()})
                if message.had_token:
                    done[-1] |= {FIELD: "removed"}
            except NotRedrivable as error:
                report.left.append((one, str(error)))
            except (BotoCoreError, ClientError) as error:
                report.failure = failure_text(error)
            progress.update(task, completed=report.handled)
    unread = None if named else reader.unread()
    left = [{"message_id": one.execution, "label": one.request_id, "why": why} for one, why in report.left]
    data = {"queue": queue.value, "dry_run": dry_run, "done": done, "left": left, "unread": _unread_dict(unread)}
    was = f"would be {verb}" if dry_run else verb
    lines = [f"{was}: {one['label']}" + "  without its task_token" * (FIELD in one) for one in done]
    lines += [*reasons(report.left), *([f"{unread.text}."] if unread else [])]
    lines.append(f"{queue.full_name}: {count(len(done), 'message')} {was}, {len(left)} left.")
    context.out.result(data, lines)
    if not report.handled and not report.failure and unread:
        raise CommandFailed(f"nothing was {verb}: no such message could be read")
    if not report.failure and report.handled < (len(named) or bool(codes)):
        raise NotFound(
            f"{queue.full_name} has no such message any more. List them with: {next_step('dlq list', queue)}"
        )
    report.raise_for_outcome(expected, verb, noun="message")


def render_queues(console: Console, queues: list[tuple[dict[str, Any], list[DeadLetterMessage]]], limit: int) -> None:
    """Print the number of messages of each queue and code, two lines a message, and the number of unread ones."""
    for queue, messages in queues:
        codes = ", ".join(f"{number:,} {code}" for code, number in sorted(queue["codes"].items()))
        line = f" ({queue['queue']}): {queue['messages']:,}" + f"  ({codes})" * bool(codes)
        console.print(Text.assemble((queue["name"], "bold"), styled(line)))
        for message in messages[:limit]:
            # Not a table, in which a folded id could not be copied.
            console.print(f"  {message.label}  {message.code}: {cut(message.reason)}")
            console.print(f"    {local_time(message.sent_at)}  message {message.message_id}", style="dim")
        if len(messages) > limit:
            console.print(f"  {len(messages) - limit:,} more not shown: above --limit {limit}")
        if unread := queue["unread"]:
            console.print(f"  {UnreadSource(queue['name'], unread['why'], unread['messages']).text}")


def render_message(console: Console, message: DeadLetterMessage) -> None:
    """Print a message in full."""
    console.print(message.label, style="bold")
    console.print(f"  message {message.message_id}")
    console.print(f"  since: {local_time(message.sent_at)}")
    console.print(f"  code: {message.code}")
    print_lines(console, f"  reason: {message.reason}", "    ")
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
