"""`slotkeeper request submit`: send one request by options, or many from a file."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TextIO

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from slotkeeper.next_step import next_step
from slotkeeper.settings import MAX_WEIGHT
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import Priority, Request
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.completion import process_names
from slotkeeper_cli.context import CommandContext, current_context
from slotkeeper_cli.errors import CommandFailed, CommandRefused, NotFound
from slotkeeper_cli.formatting import count, duration, local_time, one_line, seconds
from slotkeeper_cli.requests import RequestState
from slotkeeper_cli.slot_control import SlotControl, add_command, no_process, repair_texts
from slotkeeper_cli.submission import (
    BATCH,
    Followed,
    NumberedRequest,
    SendResult,
    deadline_of,
    fields_of,
    read_input,
    read_lines,
    read_runs,
    refuse_wrong_kind,
    send_all,
)

# Seconds between two polls of the requests that have not ended.
_POLL_SECONDS = 1.0
# Requests above which the command does not check whether they were sent before: each check is a call.
MAX_CHECKED = 1000
# Ids that a printed command names.
MAX_NAMED = 5
UNKNOWN = "may have been sent; sending it again has no second effect"

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
SkipIfBusy = Annotated[
    bool, typer.Option("--skip-if-busy", help="Skip the request if it cannot start when it is received.")
]
StartBefore = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Do not start it from this time on: HH:MM in the local time zone, or ISO 8601 with its zone.",
    ),
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
    skip_if_busy: SkipIfBusy = False,
    start_before: StartBefore = None,
    file: RequestFile = None,
    force: Annotated[bool, typer.Option("--force", help="Send requests of processes that do not exist (yet).")] = False,
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
    fields: dict[str, Any] = {"request_id": request_id, "priority": priority, "weight": weight, "input": given_input}
    fields |= {"when_busy": "skip" if skip_if_busy else None}
    fields |= {"start_before": deadline_of(start_before) if start_before is not None else None}
    given = {name: value for name, value in fields.items() if value is not None}
    if file is not None and (argument or given):
        raise typer.BadParameter(
            "--arg, --input, --request-id, --priority, --weight, --skip-if-busy and --start-before apply to --process "
            "only; in a file each request has its own"
        )
    lines = _from_file(file) if file is not None else _from_options(str(process), argument or [], given)
    _check_processes(context, [line.request for line in lines], force)
    before = _sent_before(context, lines, named=file is not None)
    requests = [line.request for line in lines if line.request.execution_name not in before]
    if requests:
        audit(
            "request submit",
            requests=len(requests),
            processes=dict(Counter(one.process for one in requests)),
            first=requests[0].request_id,
            last=requests[-1].request_id,
        )
    sent = _send(context, requests)
    refused = [one for one in sent if one.error]
    runs = before | {
        one.request.execution_name: Followed(one.request, message_id=one.message_id) for one in sent if not one.error
    }
    if wait:
        runs = _wait(context, runs, timeout * 60)
    data: dict[str, Any] = {
        "sent": [_shown(one, runs[one.request.execution_name] if wait else None) for one in sent if not one.error],
        "sent_before": [fields_of(runs[name].request) | runs[name].as_dict() for name in before],
        "refused": [one.as_dict() for one in refused],
    }
    context.out.result(data, lambda console: _render(console, data, wait))
    if refused:
        raise CommandFailed(
            f"{len(refused)} of {count(len(sent), 'request')} not sent: submit those again with the same ids"
        )
    _raise_for_outcome(list(runs.values()), wait, timeout * 60)


def _shown(one: SendResult, run: Followed | None) -> dict[str, Any]:
    return one.as_dict() | ({} if run is None else {"execution": run.request.execution_name, **run.as_dict()})


def _from_options(process: str, arguments: list[str], fields: Mapping[str, Any]) -> list[NumberedRequest]:
    given = dict(fields)
    if "input" in given:
        given["input"] = read_input(given["input"])
    named = {}
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--arg must be KEY=VALUE, as in --arg=--day=2026-11-21, got {text!r}")
        named[key if key.startswith("--") else f"--{key}"] = value
    stated = {"arguments": named} if named or "input" not in given else {}
    return read_lines([json.dumps({"process": process, **stated, **given})])


def _from_file(file: TextIO) -> list[NumberedRequest]:
    try:
        lines = read_lines(file)
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"--file: the file is not UTF-8: {error}") from error
    if not lines:
        raise NotFound("the file contains no requests: write one JSON object per line. Nothing was sent.")
    return lines


def _check_processes(context: CommandContext, requests: list[Request], force: bool) -> None:
    processes, malformed = SlotControl(context.stack).read_all()
    known = {one.name: one for one in processes}
    wanted, unread = {one.process for one in requests}, {one.process: one for one in malformed}
    for text in repair_texts(unread[name] for name in sorted(wanted & set(unread))):
        context.out.note(f"Warning: its requests wait until it is repaired: {text}")
    if (unknown := sorted(wanted - set(known) - set(unread))) and not force:
        names = sorted([*known, *unread])
        raise NotFound(
            " ".join(no_process(each, names) for each in unknown)
            + f" The processes are: {', '.join(names) or 'none'}. "
            f"Its requests would be rejected: add it first, with {add_command(unknown[0])}, or give --force. "
            "Nothing was sent."
        )
    refuse_wrong_kind(known, requests)
    for name in sorted(wanted & set(known)):
        if known[name].paused:
            context.out.note(f"Warning: process {name} is paused. Resume it with: {next_step('process resume', name)}")
        _warn_of_weight(context, known[name], [one for one in requests if one.process == name])


def _warn_of_weight(context: CommandContext, process: Process, requests: list[Request]) -> None:
    """Warn of requests that wait until the limit is raised."""
    weights = [one.weight or process.default_weight for one in requests]
    blocked = [weight for weight in weights if weight > process.slot_limit]
    if blocked:
        context.out.note(
            f"Warning: {count(len(blocked), 'request')} of {process.name} above the limit {process.slot_limit} "
            f"(largest weight: {max(blocked)}). Such a request waits until the limit is raised: "
            f"{next_step('process set-limit', process.name, max(blocked))}"
        )


def _sent_before(context: CommandContext, lines: list[NumberedRequest], named: bool) -> dict[str, Followed]:
    """The requests that were sent before, and do not run again, by the name of the first attempt.

    One that ended without a start is not among them: it runs, if it is sent again.

    Args:
        named: name the line of a refused request.

    Raises:
        CommandRefused: another request has used the id. The starter would reject this one.
    """
    if len(lines) > MAX_CHECKED:
        context.out.note(
            f"Note: it was not checked which of the {len(lines):,} requests were sent before, since they are more than "
            f"{MAX_CHECKED:,}. Such a request does not run again, and one with the id of another is rejected as "
            "RequestIdReused."
        )
        return {}
    runs = read_runs(SlotControl(context.stack).row_search, [Followed(line.request) for line in lines])
    reused = [
        f"line {line.number}: " * named + f"request {line.request.request_id} of {line.request.process} ({run.state})"
        for line, run in zip(lines, runs, strict=True)
        if run.is_other
    ]
    if reused:
        raise CommandRefused(
            f"{count(len(reused), 'id was', 'ids were')} used by another request in the last 90 days. Give the new "
            "request an id of its own.",
            *reused,
            "Nothing was sent.",
        )
    return {line.request.execution_name: run for line, run in zip(lines, runs, strict=True) if run.row is not None}


def _send(context: CommandContext, requests: list[Request]) -> list[SendResult]:
    sent: list[SendResult] = []
    with context.out.progress() as progress:
        task = progress.add_task("sent", total=len(requests))
        try:
            for batch in send_all(context.stack, requests, context.out.note):
                sent += batch
                progress.update(task, completed=len(sent))
        except (BotoCoreError, ClientError) as error:
            # Report the batches that were sent. The result of the current one is unknown.
            left = requests[len(sent) :]
            sent += [SendResult(one, error=f"{UNKNOWN} ({error})") for one in left[:BATCH]]
            sent += [SendResult(one, error="not sent") for one in left[BATCH:]]
    return sent


def _wait(context: CommandContext, runs: Mapping[str, Followed], seconds: float) -> dict[str, Followed]:
    """Wait until the requests have ended, or the time has passed; return them as last read."""
    rows = SlotControl(context.stack).row_search
    until = time.monotonic() + seconds
    known = dict(runs)
    with context.out.progress() as progress:
        task = progress.add_task("ended", total=len(known))
        while True:
            pending = [name for name, run in known.items() if not run.has_ended]
            known |= zip(pending, read_runs(rows, [known[name] for name in pending]), strict=True)
            states = Counter(run.state for run in known.values() if not run.has_ended)
            still_open = states.total()
            shown = ", ".join(f"{number:,} {state}" for state, number in sorted(states.items()))
            progress.update(
                task, completed=len(known) - still_open, description=f"ended ({shown})" if shown else "ended"
            )
            left = until - time.monotonic()
            if not still_open or left <= 0:
                return known
            time.sleep(min(max(_POLL_SECONDS, still_open / 100), left))


def _raise_for_outcome(runs: list[Followed], wait: bool, seconds: float) -> None:
    texts = []
    for what, of in _failures(runs):
        texts.append(f"{len(of)} of {count(len(runs), 'request')} {what}")
    if wait and (left := sum(not run.has_ended for run in runs)):
        texts.append(
            f"{left} of {count(len(runs), 'request')} had not ended after {duration(seconds)}. Show the state "
            "of each with: slotkeeper explain"
        )
    if texts:
        raise CommandFailed(*texts)


def _failures(runs: list[Followed]) -> Iterator[tuple[str, list[Followed]]]:
    """The requests that have ended without success, by what the operator can do."""
    failed = [run for run in runs if run.has_failed and not run.is_other]
    others = [run for run in runs if run.is_other]
    if of := [run for run in failed if run.state == RequestState.FAILED]:
        yield (
            f"failed. Queue them again with: {next_step('failed redrive', *_ids(of), process=of[0].request.process)}",
            of,
        )
    if of := [run for run in failed if run.state == RequestState.TOO_LATE]:
        yield "had not started when start_before passed", of
    if of := [run for run in failed if run.state in (RequestState.CANCELLED, RequestState.REJECTED)]:
        yield f"did not run ({', '.join(sorted({run.state for run in of}))})", of
    if others:
        yield "did not run, since another request has used the id", others


def _ids(runs: list[Followed]) -> list[str]:
    return [run.request.request_id for run in runs][:MAX_NAMED]


def _render(console: Console, data: dict[str, Any], wait: bool) -> None:
    for one in data["sent"]:
        ending = f"  {one['state']}{_reason(one)}" if wait else ""
        console.print(f"sent: {one['request_id']}  {one['execution']}{_deadline(one)}{ending}")
    for one in data["sent_before"]:
        console.print(
            f"not sent: {one['request_id']}  {one['execution']}  {one['state']}{_reason(one)}. "
            f"The same request was sent before, and does not run again. {_advice(one)}"
        )
    for one in data["refused"]:
        console.print(f"not sent: {one['request_id']} ({one['process']}): {one['error']}")


def _deadline(one: dict[str, Any]) -> str:
    start_before = one.get("start_before")
    return f"  to start before {local_time(seconds(start_before))}" if start_before else ""


def _reason(one: dict[str, Any]) -> str:
    return f": {one_line(one['reason'])}" if one.get("reason") else ""


def _advice(one: dict[str, Any]) -> str:
    if one["state"] == RequestState.FAILED:
        return (
            f"Run it as its next attempt with: {next_step('failed redrive', one['request_id'], process=one['process'])}"
        )
    return f"Show it with: {next_step('request show', one['request_id'])}"
