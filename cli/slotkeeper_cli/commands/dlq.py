"""`slotkeeper dlq`: what stands in the queues of failed requests and work, and sending it once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.text import Text

from slotkeeper_cli.audit import audit
from slotkeeper_cli.common import Cli, StackCommand, cli
from slotkeeper_cli.control import Control
from slotkeeper_cli.errors import Failed, NotFound, Refused
from slotkeeper_cli.letters import Box, Letter, Queue
from slotkeeper_cli.redriving import Hopeless, Redrive, plan, send
from slotkeeper_cli.words import count, local_time

# Sent again by whoever names it, and not with all the others: somebody has decided that it is not to run.
CANCELLED = "Cancelled"
# Characters; CloudWatch Logs takes events of 1 MiB (its quotas), and a letter of four bytes a character is none.
LONGEST_AUDITED = 200_000
LONGEST_SHOWN = 200

app = typer.Typer(help="The queues of requests and work that did not succeed.", no_args_is_help=True)

Which = Annotated[Queue, typer.Argument(metavar="QUEUE", help="request, failed, work or schedule.")]
Ids = Annotated[list[str] | None, typer.Option("--id", metavar="MESSAGE_ID", help="This letter; may be repeated.")]
Codes = Annotated[list[str] | None, typer.Option("--code", help="Those of this code; may be repeated.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]


@app.command("list", cls=StackCommand)
def list_letters(
    queue: Annotated[
        Queue | None,
        typer.Argument(metavar="[QUEUE]", help="request, failed, work or schedule; else all.", show_default=False),
    ] = None,
    limit: Limit = 100,
) -> None:
    """What stands in the queues, by code, and each letter's reason. Nothing is changed by looking."""
    here = cli()
    seen: list[tuple[dict[str, Any], list[Letter]]] = []
    for one in [queue] if queue else [each for each in Queue if each.is_deployed(here.stack)]:
        box = Box(here.stack, one)
        letters = box.peek(limit)
        told = {
            "queue": one.value,
            "name": one.full_name,
            "messages": max(box.size(), len(letters)),
            "codes": dict(Counter(letter.code for letter in letters)),
            "letters": [letter.summary() for letter in letters],
        }
        seen.append((told, letters))
    here.out.result({"queues": [told for told, _ in seen]}, lambda console: _render_queues(console, seen))


@app.command("show", cls=StackCommand)
def show(queue: Which, ids: Ids = None, limit: Limit = 10) -> None:
    """Letters in full: the body as it was sent, and all that was noted of it."""
    here = cli()
    letters = _named(Box(here.stack, queue), ids) if ids else Box(here.stack, queue).peek(limit)
    told = [{**letter.summary(), "body": letter.body, "attributes": dict(letter.attributes)} for letter in letters]

    def render(console: Console) -> None:
        for letter in letters:
            console.print(Text.assemble((letter.message_id, "bold"), f"  {local_time(letter.sent_at)}"))
            for name, value in letter.attributes.items():
                console.print(f"  {name}: {value}", markup=False)
            console.print(f"  {letter.body}\n", markup=False)
        if not letters:
            console.print(f"{queue.full_name} is empty.")

    here.out.result({"queue": queue.value, "letters": told}, render)


@dataclass
class Done:
    """What became of the letters that were chosen."""

    redriven: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)

    @property
    def number(self) -> int:
        return len(self.redriven) + len(self.skipped) + len(self.failed)

    def skip(self, letter: Letter, why: str) -> None:
        self.skipped.append({**letter.summary(), "why": why})


@app.command("redrive", cls=StackCommand)
def redrive(
    queue: Which,
    ids: Ids = None,
    code: Codes = None,
    every: Annotated[bool, typer.Option("--all", help="All of them, but those that somebody has cancelled.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.", show_default=False)] = None,
) -> None:
    """Send letters once more: under the same idempotency key, as the next attempt, and remove them from the queue.

    A letter that would only be refused again is left where it is, with the reason. It is safe to interrupt this and to
    run it again: what is sent twice has no second effect.
    """
    here = cli()
    if sum((bool(ids), bool(code), every)) != 1:
        raise typer.BadParameter("say which letters: --id, --code, or --all")
    box = Box(here.stack, queue)
    about = len(ids) if ids else min(box.size(), limit or box.size())
    if not about:
        raise NotFound(f"{queue.full_name} is empty")
    if not dry_run:
        which = f"of code {', '.join(code)} " if code else ""
        number = count(about, "letter") if ids else f"the letters {which}(at most {about:,})"
        here.confirm(f"Send {number} of {queue.full_name} once more?")
    done = _redrive(here, box, _choice(ids, code), dry_run, limit, about)
    here.out.result(_told(queue, done, dry_run), lambda console: _render_done(console, queue, done, dry_run))
    _judge(done, ids)


@app.command("discard", cls=StackCommand)
def discard(queue: Which, ids: Ids = None, code: Codes = None) -> None:
    """Delete letters that nobody needs any more, cancelled ones for example; their alarm is quiet then.

    The audit line keeps each body.
    """
    here = cli()
    if bool(ids) == bool(code):
        raise typer.BadParameter("say which letters: --id or --code")
    box = Box(here.stack, queue)
    which = count(len(ids), "letter") if ids else f"all letters of code {', '.join(code or [])}"
    here.confirm(f"Delete {which} of {queue.full_name} for good?")
    choose, deleted = _choice(ids, code), list[dict[str, Any]]()
    with closing(box.sweep()) as batches:
        for letter in (letter for batch in batches for letter in batch):
            if choose(letter) is None:
                continue
            body = letter.body[:LONGEST_AUDITED]
            audit("dlq discard", queue=queue.full_name, message_id=letter.message_id, code=letter.code, body=body)
            box.delete(letter)
            deleted.append(letter.summary())
    found = {letter["message_id"] for letter in deleted}
    told = {"queue": queue.value, "deleted": deleted}
    here.out.result(told, lambda console: console.print(f"{queue.full_name}: {count(len(deleted), 'letter')} deleted."))
    if not deleted or any(one not in found for one in ids or []):
        raise NotFound(f"{queue.full_name} has no such letter: slotkeeper dlq list {queue} shows which it has")


def _choice(ids: list[str] | None, codes: list[str] | None) -> Callable[[Letter], str | None]:
    """Whether a letter was chosen: why it is skipped although it was, `""` if it is not, None if it was not."""

    def choose(letter: Letter) -> str | None:
        if ids:
            return "" if letter.message_id in ids else None
        if codes:
            return "" if letter.code in codes else None
        if letter.code == CANCELLED:
            return f"it was cancelled: to run it after all, name it by --id or --code {CANCELLED}"
        return ""

    return choose


def _redrive(
    here: Cli, box: Box, choose: Callable[[Letter], str | None], dry_run: bool, limit: int | None, about: int
) -> Done:
    done = Done()
    processes = set(Control(here.stack).names()) if box.queue in (Queue.REQUEST, Queue.FAILED) else set[str]()
    with here.out.progress() as progress, closing(box.sweep()) as batches:
        task = progress.add_task(box.queue.full_name, total=about)
        for batch in batches:
            planned: list[Redrive] = []
            for letter in batch:
                skipped = choose(letter)
                if skipped is None or (limit is not None and done.number + len(planned) >= limit):
                    continue
                try:
                    if skipped:
                        raise Hopeless(skipped)
                    planned.append(plan(letter, processes))
                except Hopeless as error:
                    done.skip(letter, str(error))
            if planned and not dry_run:
                told = [{"message_id": one.letter.message_id, "request_id": one.letter.request_id} for one in planned]
                audit("dlq redrive", queue=box.queue.full_name, letters=told)
            for one in planned:
                _send_and_delete(here, box, one, dry_run, done)
                progress.update(task, completed=done.number)
            if limit is not None and done.number >= limit:
                break
    return done


def _send_and_delete(here: Cli, box: Box, one: Redrive, dry_run: bool, done: Done) -> None:
    sent = False
    try:
        if not dry_run:
            send(here.stack, one)
            sent = True
            box.delete(one.letter)
    except (BotoCoreError, ClientError) as error:
        doubt = "it was sent, and its letter is still there: redrive it again, which has no second effect"
        done.failed.append({**one.summary(), "error": f"{doubt if sent else 'it was not sent'} ({error})"})
        return
    done.redriven.append(one.summary())


def _judge(done: Done, ids: list[str] | None) -> None:
    if done.failed:
        raise Failed(f"{count(len(done.failed), 'letter')} could not be redriven; {len(done.redriven)} were")
    if not ids:
        return
    found = {letter["message_id"] for letter in (*done.redriven, *done.skipped)}
    if missing := [one for one in ids if one not in found]:
        raise NotFound(f"no such letter: {', '.join(missing)} (or somebody else is looking at it; try again)")
    if done.skipped:
        raise Refused("not sent: " + "; ".join(f"{one['message_id']}: {one['why']}" for one in done.skipped))


def _named(box: Box, ids: list[str]) -> list[Letter]:
    found: dict[str, Letter] = {}
    with closing(box.sweep()) as batches:
        for batch in batches:
            found |= {letter.message_id: letter for letter in batch if letter.message_id in ids}
            if len(found) == len(set(ids)):
                break
    if missing := [one for one in ids if one not in found]:
        raise NotFound(
            f"{box.queue.full_name} has no letter {', '.join(missing)}: slotkeeper dlq list {box.queue} shows which"
        )
    return [found[one] for one in dict.fromkeys(ids)]


def _told(queue: Queue, done: Done, dry_run: bool) -> dict[str, Any]:
    return {
        "queue": queue.value,
        "dry_run": dry_run,
        "redriven": done.redriven,
        "skipped": done.skipped,
        "failed": done.failed,
    }


def _render_queues(console: Console, seen: list[tuple[dict[str, Any], list[Letter]]]) -> None:
    for queue, letters in seen:
        codes = ", ".join(f"{number:,} {code}" for code, number in sorted(queue["codes"].items()))
        line = f" ({queue['queue']}): {queue['messages']:,}" + f"  ({codes})" * bool(codes)
        console.print(Text.assemble((queue["name"], "bold"), line))
        for letter in letters:
            # Not a table: an id that is folded cannot be copied.
            console.print(f"  {letter.message_id}  {letter.code}  {_named_so(letter)}", markup=False)
            line = f"    {local_time(letter.sent_at)}  {letter.reason[:LONGEST_SHOWN]}"
            console.print(line, markup=False, style="dim")
        if more := queue["messages"] - len(letters):
            console.print(f"  {more:,} more are not shown: beyond --limit, or behind the first ten of their process")


def _named_so(letter: Letter) -> str:
    names = [letter.process, letter.request_id] if letter.execution else [letter.request_id]
    return f"{'/'.join(names)}, attempt {letter.attempt}"


def _render_done(console: Console, queue: Queue, done: Done, dry_run: bool) -> None:
    for letter in done.redriven:
        who = f"{letter['request_id']}, attempt {letter['attempt']}  {letter.get('execution', '')}"
        console.print(f"{'would be sent' if dry_run else 'sent'}: {letter['message_id']}  {who}", markup=False)
    for letter in done.skipped:
        console.print(f"left: {letter['message_id']}  {letter['code']}: {letter['why']}", markup=False)
    for letter in done.failed:
        console.print(f"failed: {letter['message_id']}  {letter['error']}", markup=False)
    verb = "would be sent" if dry_run else "sent"
    console.print(
        f"{queue.full_name}: {count(len(done.redriven), 'letter')} {verb} once more, {len(done.skipped)} left, "
        f"{len(done.failed)} failed."
    )
