"""`slotkeeper request submit`: send one request by options, or many from a file."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, TextIO

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from slotkeeper.slots.executions import Execution
from slotkeeper.slots.failure_reason import failure_reason
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import MAX_WEIGHT, Priority, Request
from slotkeeper_cli.audit import audit
from slotkeeper_cli.completion import process_names
from slotkeeper_cli.context import CommandContext, current_context
from slotkeeper_cli.errors import CommandFailed, NotFound
from slotkeeper_cli.formatting import count, duration, one_line
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.request_input import read_input, refuse_wrong_kind
from slotkeeper_cli.request_sender import BATCH, SendResult, read_lines, send_all
from slotkeeper_cli.slot_control import SlotControl

# Seconds between two polls of the executions that have not ended.
_POLL_SECONDS = 2.0
# Requests above which the command does not check whether they ran before: each check is a call.
MAX_CHECKED = 100
UNKNOWN = "may have been sent; sending it again has no second effect"


def submit(
    process: Annotated[str | None, typer.Option(help="Process of the request.", autocompletion=process_names)] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option(
            "--arg", metavar="KEY=VALUE", help="Argument of the Glue job: --arg=--day=2026-11-21; may be repeated."
        ),
    ] = None,
    given_input: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="JSON", help="Input of the state machine, a JSON object; @FILE reads it from a file."
        ),
    ] = None,
    request_id: Annotated[str | None, typer.Option(help="Idempotency key; by default a new UUID.")] = None,
    priority: Annotated[
        Priority | None,
        typer.Option(help="Waiting requests of a higher priority get slots first; by default normal."),
    ] = None,
    weight: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_WEIGHT,
            metavar="N",
            help="Weight in the unit of the limit, such as DPUs; by default the process's own.",
        ),
    ] = None,
    file: Annotated[
        typer.FileText | None,
        typer.Option(
            metavar="FILE", encoding="utf-8", help="File with one request (JSON) per line; - for standard input."
        ),
    ] = None,
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
            "give either --process, with --arg or --input, --request-id, --priority and --weight, or --file"
        )
    fields: dict[str, Any] = {"request_id": request_id, "priority": priority, "weight": weight}
    given = {name: value for name, value in fields.items() if value is not None}
    if file is not None and (argument or given or given_input is not None):
        raise typer.BadParameter(
            "--arg, --input, --request-id, --priority and --weight apply to --process only; in a file each request has "
            "its own"
        )
    if given_input is not None:
        given["input"] = read_input(given_input)
    requests = _from_file(file) if file is not None else [_from_options(str(process), argument or [], given)]
    if not requests:
        raise NotFound("the file contains no requests: write one JSON object per line. Nothing was sent.")
    _check_processes(context, requests, force)
    audit(
        "request submit",
        requests=len(requests),
        processes=dict(Counter(one.process for one in requests)),
        first=requests[0].request_id,
        last=requests[-1].request_id,
    )
    before = _ran_before(context, requests)
    sent = _send(context, requests)
    refused = [one for one in sent if one.error]
    ended = _wait(context, [one.request for one in sent if not one.error], timeout * 60) if wait else {}
    data: dict[str, Any] = {
        "sent": [_as_dict(one, before, ended) for one in sent if not one.error],
        "refused": [one.as_dict() for one in refused],
    }
    context.out.result(data, lambda console: _render(console, data, wait))
    if refused:
        raise CommandFailed(
            f"{len(refused)} of {count(len(sent), 'request')} not sent: submit those again with the same ids"
        )
    if wait:
        _raise_for_outcome(ended, len(sent), timeout * 60)


def _from_options(process: str, arguments: list[str], fields: Mapping[str, Any]) -> Request:
    named = {}
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--arg must be KEY=VALUE, as in --arg=--day=2026-11-21, got {text!r}")
        named[key if key.startswith("--") else f"--{key}"] = value
    stated = {"arguments": named} if named or "input" not in fields else {}
    (line,) = read_lines([json.dumps({"process": process, **stated, **fields})])
    return line.request


def _from_file(file: TextIO) -> list[Request]:
    try:
        return [line.request for line in read_lines(file)]
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"--file: the file is not UTF-8: {error}") from error


def _check_processes(context: CommandContext, requests: list[Request], force: bool) -> None:
    known = {one.name: one for one in SlotControl(context.stack).read_all()[0]}
    wanted = {one.process for one in requests}
    if (unknown := sorted(wanted - set(known))) and not force:
        raise NotFound(
            f"there is no process {', '.join(unknown)}. The processes are: {', '.join(known) or 'none'}. Its requests "
            "would be dead-lettered: add it with slotkeeper process add first, or give --force. Nothing was sent."
        )
    refuse_wrong_kind(known, requests)
    for name in sorted(wanted & set(known)):
        if known[name].paused:
            context.out.note(f"Warning: process {name} is paused. Resume it with: slotkeeper process resume {name}")
        _warn_of_weight(context, known[name], [one for one in requests if one.process == name])
    for one in requests:
        if one.process in known and one.execution_name in known[one.process].cancelled:
            context.out.note(
                f"Warning: request {one.request_id} of {one.process} is cancelled and will be dead-lettered. To run it "
                "all the same: slotkeeper dlq redrive request --code Cancelled."
            )


def _warn_of_weight(context: CommandContext, process: Process, requests: list[Request]) -> None:
    """Warn of requests that wait until the limit is raised, and of the others of their message groups."""
    weights = [one.weight or process.default_weight for one in requests]
    blocked = [weight for weight in weights if weight > process.slot_limit]
    if blocked:
        context.out.note(
            f"Warning: {count(len(blocked), 'request')} of {process.name} above the limit {process.slot_limit} "
            f"(largest weight: {max(blocked)}). Such a request, and those of its priority behind it, wait until the "
            f"limit is raised: slotkeeper process set-limit {process.name} {max(blocked)}"
        )


def _ran_before(context: CommandContext, requests: list[Request]) -> dict[str, str]:
    """Warn of requests that have an execution already, which do not run again; return the executions' statuses."""
    if len(requests) > MAX_CHECKED:
        return {}
    workflow = SlotControl(context.stack).workflow
    descriptions = in_parallel(lambda one: workflow.describe(one.execution_name), requests)
    known = [(one, execution) for one, execution in zip(requests, descriptions, strict=True) if execution is not None]
    for request, execution in known:
        context.out.note(
            f"Warning: request {request.request_id} of {request.process} was started before and is {execution.status}: "
            "it does not run again. Give a request that is to run a different id."
        )
    return {request.execution_name: execution.status for request, execution in known}


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


def _wait(context: CommandContext, requests: list[Request], seconds: float) -> dict[str, Execution]:
    """Wait for executions; return those that have ended in time, by the name of the request's first attempt."""
    workflow = SlotControl(context.stack).workflow
    until = time.monotonic() + seconds
    ended: dict[str, Execution] = {}
    # A workflow that lost its reservation returns its request to the queue as the next attempt.
    current = {one.execution_name: one for one in requests}
    with context.out.progress() as progress:
        task = progress.add_task("ended", total=len(requests))
        while True:
            pending = list(current.items())
            descriptions = in_parallel(lambda one: workflow.describe(one[1].execution_name), pending)
            for (name, request), execution in zip(pending, descriptions, strict=True):
                if execution is None or not execution.is_closed:
                    continue
                if execution.error == "RequestReturned":
                    current[name] = replace(request, attempt=request.attempt + 1)
                else:
                    ended[name] = execution
                    del current[name]
            progress.update(task, completed=len(ended))
            left = until - time.monotonic()
            if not current or left <= 0:
                return ended
            time.sleep(min(max(_POLL_SECONDS, len(current) / 50), left))


def _raise_for_outcome(ended: Mapping[str, Execution], sent: int, seconds: float) -> None:
    failed = [one for one in ended.values() if one.status != "SUCCEEDED"]
    texts = []
    if failed:
        texts.append(f"{len(failed)} of {count(sent, 'request')} failed. List them with: slotkeeper dlq list failed")
    if len(ended) < sent:
        texts.append(
            f"{sent - len(ended)} of {count(sent, 'request')} had not ended after {duration(seconds)}. Show the state "
            "of each with: slotkeeper request show"
        )
    if texts:
        raise CommandFailed(*texts)


def _as_dict(one: SendResult, before: Mapping[str, str], ended: Mapping[str, Execution]) -> dict[str, Any]:
    data = one.as_dict()
    if status := before.get(one.request.execution_name):
        data["ran_before"] = status
    if execution := ended.get(one.request.execution_name):
        data |= {"status": execution.status, "error": execution.error or None, "cause": execution.cause or None}
        data["reason"] = failure_reason(execution.cause) or None
    return data


def _render(console: Console, data: dict[str, Any], wait: bool) -> None:
    for one in data["sent"]:
        reason = f": {one_line(one['reason'])}" if one.get("reason") else ""
        ending = f"  {one.get('status', 'not ended yet')}{reason}" if wait else ""
        console.print(f"sent: {one['request_id']}  {one['execution']}{ending}")
    for one in data["refused"]:
        console.print(f"not sent: {one['request_id']} ({one['process']}): {one['error']}")
