"""`slotkeeper request submit`: send one request by options, or many from a file."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console

from slotkeeper.next_step import next_step
from slotkeeper.settings import MAX_WEIGHT
from slotkeeper.slots.request import MAX_KEY_BYTES, Priority
from slotkeeper_cli.account import Account
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.completion import process_names
from slotkeeper_cli.context import CommandContext, current_context
from slotkeeper_cli.errors import CommandFailed, CommandRefused, NotFound
from slotkeeper_cli.formatting import count, cut, duration, local_time, seconds
from slotkeeper_cli.periods import START_BEFORE, start_time
from slotkeeper_cli.requests import RequestState
from slotkeeper_cli.row_search import RowSearch
from slotkeeper_cli.submission import Submitted, check_processes, read_lines, read_options, send_all, with_rows

# Seconds between two polls of the requests that have not ended.
_POLL_SECONDS = 1.0
# Ids that a printed command names.
MAX_NAMED = 5

Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--arg", metavar="KEY=VALUE", help="Argument of the Glue job: --arg=--day=2026-11-21; may be repeated."
    ),
]
Input = Annotated[
    str | None,
    typer.Option(
        "--input", metavar="JSON", help="Input of the state machine, a JSON object; @FILE reads it from a file."
    ),
]
RequestPriority = Annotated[
    Priority | None, typer.Option(help="Waiting requests of a higher priority get slots first; by default normal.")
]
Weight = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_WEIGHT,
        metavar="N",
        help="Weight in the unit of the limit, such as DPUs; by default the process's own.",
    ),
]
RequestKey = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help=f"Whose turn it takes, such as a customer, and whose limit applies to it; at most {MAX_KEY_BYTES} bytes.",
    ),
]
SkipIfBusy = Annotated[
    bool, typer.Option("--skip-if-busy", help="Skip the request if it cannot start when it is received.")
]
StartBefore = Annotated[
    str | None, typer.Option(metavar="TIME", help=f"Do not start it from this time on: {START_BEFORE}.")
]
RequestFile = Annotated[
    typer.FileText | None,
    typer.Option(metavar="FILE", encoding="utf-8", help="File with one request (JSON) per line; - for standard input."),
]


def submit(
    process: Annotated[str | None, typer.Option(help="Process of the request.", autocompletion=process_names)] = None,
    argument: Arguments = None,
    given_input: Input = None,
    request_id: Annotated[str | None, typer.Option(help="Idempotency key; by default a new UUID.")] = None,
    priority: RequestPriority = None,
    weight: Weight = None,
    key: RequestKey = None,
    skip_if_busy: SkipIfBusy = False,
    start_before: StartBefore = None,
    file: RequestFile = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all have ended; exit code 1 if one failed.")] = False,
    timeout: Annotated[float, typer.Option(metavar="MINUTES", help="Minutes to wait with --wait.", min=0)] = 60,
) -> None:
    """Submit requests.

    All are checked by the rules of the starter before the first is sent.
    """
    context = current_context()
    if (file is None) == (process is None):
        raise typer.BadParameter(
            "give either --process, with the options of a request such as --arg and --request-id, or --file"
        )
    fields: dict[str, Any] = {"request_id": request_id, "priority": priority, "weight": weight, "key": key}
    fields |= {"when_busy": "skip" if skip_if_busy else None}
    fields |= {"start_before": start_time(start_before, time.time()) if start_before is not None else None}
    given = {name: value for name, value in fields.items() if value is not None}
    if file is not None and (argument or given or given_input is not None):
        raise typer.BadParameter(
            "--arg, --input, --request-id, --priority, --weight, --key, --skip-if-busy and --start-before apply to "
            "--process only; in a file each request has its own"
        )
    if file is not None:
        lines = _from_file(file)
    else:
        lines = [Submitted(1, read_options(str(process), argument or [], given_input, given))]
    account = Account(context.stack)
    rows = account.control.row_search
    for warning in check_processes(account, lines):
        context.out.note(f"Warning: {warning}")
    lines = _sent_before(rows, lines, named=file is not None)
    to_send = [one for one in lines if one.row is None]
    if to_send:
        audit(
            "request submit",
            requests=len(to_send),
            processes=dict(Counter(one.request.process for one in to_send)),
            first=to_send[0].request.request_id,
            last=to_send[-1].request.request_id,
        )
    before = [one for one in lines if one.row is not None]
    sent = _send(context, to_send)
    refused = [one for one in sent if one.error]
    followed = [*before, *(one for one in sent if not one.error)]
    if wait:
        followed = _wait(context, rows, followed, timeout * 60)
    data: dict[str, Any] = {
        "sent": [one.as_dict(outcome=wait) for one in followed[len(before) :]],
        "sent_before": [one.as_dict(outcome=True) for one in followed[: len(before)]],
        "refused": [one.as_dict() for one in refused],
    }
    context.out.result(data, lambda console: _render(console, data))
    if refused:
        raise CommandFailed(
            f"{len(refused)} of {count(len(sent), 'request')} not sent: submit those again with the same ids"
        )
    _raise_for_outcome(followed, wait, timeout * 60)


def _from_file(file: TextIO) -> list[Submitted]:
    try:
        lines = read_lines(file)
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"--file: the file is not UTF-8: {error}") from error
    if not lines:
        raise NotFound("the file contains no requests: write one JSON object per line. Nothing was sent.")
    return lines


def _sent_before(rows: RowSearch, lines: list[Submitted], *, named: bool) -> list[Submitted]:
    """The requests, with the row of each that was sent before and does not run again.

    One that ended without a start has none: it runs, if it is sent again.

    Args:
        named: name the line of a refused request.

    Raises:
        CommandRefused: another request has used the id. The starter would reject this one.
    """
    found = with_rows(rows, lines)
    reused = [
        f"line {one.number}: " * named + f"request {one.request.request_id} of {one.request.process} ({one.state})"
        for one in found
        if one.is_other
    ]
    if reused:
        raise CommandRefused(
            f"{count(len(reused), 'id was', 'ids were')} used by another request in the last 90 days. Give the new "
            "request another id.",
            *reused,
            "Nothing was sent.",
        )
    # The message has the request as it was given: the starter gives it the number of its attempt.
    return [one if one.row else line for line, one in zip(lines, found, strict=True)]


def _send(context: CommandContext, lines: list[Submitted]) -> list[Submitted]:
    sent: list[Submitted] = []
    with context.out.progress() as progress:
        task = progress.add_task("sent", total=len(lines))
        for one in send_all(context.stack, lines, context.out.note):
            sent.append(one)
            progress.update(task, completed=len(sent))
    return sent


def _wait(context: CommandContext, rows: RowSearch, given: list[Submitted], timeout: float) -> list[Submitted]:
    """Wait until the requests have ended, or `timeout` seconds have passed; return them as last read."""
    until = time.monotonic() + timeout
    known = dict(enumerate(given))
    with context.out.progress() as progress:
        task = progress.add_task("ended", total=len(known))
        while True:
            pending = [at for at, one in known.items() if not one.has_ended]
            known |= zip(pending, with_rows(rows, [known[at] for at in pending]), strict=True)
            states = Counter(one.state for one in known.values() if not one.has_ended)
            still_open = states.total()
            shown = ", ".join(f"{number:,} {state}" for state, number in sorted(states.items()))
            progress.update(
                task, completed=len(known) - still_open, description=f"ended ({shown})" if shown else "ended"
            )
            left = until - time.monotonic()
            if not still_open or left <= 0:
                return [*known.values()]
            time.sleep(min(max(_POLL_SECONDS, still_open / 100), left))


def _raise_for_outcome(followed: list[Submitted], wait: bool, timeout: float) -> None:
    """Raise CommandFailed if a request has ended without success, or with --wait not ended."""
    states: dict[str, list[Submitted]] = {}
    for one in followed:
        states.setdefault("other" if one.is_other else one.state, []).append(one)
    failed = states.get(RequestState.FAILED, [])
    process = failed[0].request.process if failed else ""
    ids = [one.request.request_id for one in failed if one.request.process == process][:MAX_NAMED]
    step = next_step("failed redrive", *ids, process=process) if failed else ""
    never = [each for each in (RequestState.CANCELLED, RequestState.REJECTED) if each in states]
    reasons = {
        f"failed. Queue {'them' if len(ids) == len(failed) else 'the first'} again with: {step}": len(failed),
        "had not started when start_before passed": len(states.get(RequestState.TOO_LATE, ())),
        f"did not run ({', '.join(never)})": sum(len(states[each]) for each in never),
        "did not run, since another request has used the id": len(states.get("other", ())),
        f"had not ended after {duration(timeout)}. Show the state of each with: slotkeeper explain": sum(
            wait and not one.has_ended for one in followed
        ),
    }
    texts = [f"{number} of {count(len(followed), 'request')} {why}" for why, number in reasons.items() if number]
    if texts:
        raise CommandFailed(*texts)


def _render(console: Console, data: dict[str, Any]) -> None:
    for one in data["sent"]:
        deadline = f"  to start before {local_time(seconds(at))}" if (at := one.get("start_before")) else ""
        console.print(f"sent: {one['request_id']}  {one['execution']}{deadline}{_outcome(one)}")
    for one in data["sent_before"]:
        console.print(
            f"not sent: {one['request_id']}  {one['execution']}{_outcome(one)}. "
            f"The same request was sent before, and does not run again. {_advice(one)}"
        )
    for one in data["refused"]:
        console.print(f"not sent: {one['request_id']} ({one['process']}): {one['error']}")


def _outcome(one: dict[str, Any]) -> str:
    reason = f": {cut(one['reason'])}" if one.get("reason") else ""
    return f"  {one['state']}{reason}" if "state" in one else ""


def _advice(one: dict[str, Any]) -> str:
    if one["state"] == RequestState.FAILED:
        again = next_step("failed redrive", one["request_id"], process=one["process"])
        return f"Run it as its next attempt with: {again}"
    return f"Show it with: {next_step('request show', one['request_id'])}"
