"""`slotkeeper request submit`: send requests, one by options or many by file."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from slotkeeper.slots.executions import Execution
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import Request
from slotkeeper_cli.audit import audit
from slotkeeper_cli.context import CommandContext, current_context
from slotkeeper_cli.errors import CommandFailed, NotFound
from slotkeeper_cli.formatting import count, duration
from slotkeeper_cli.request_sender import BATCH, SendResult, read_lines, send_all
from slotkeeper_cli.slot_control import SlotControl

# Seconds between two polls of what has not ended yet.
_POLL_SECONDS = 2.0
_THREADS = 8
# Each costs a call before anything is sent.
MAX_LOOKED_UP = 100
UNKNOWN = "it is not known whether it was sent; sending it again has no second effect"


def submit(
    process: Annotated[
        str | None, typer.Option(help="Process whose slot the request takes.", show_default=False)
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="KEY=VALUE",
            help="Argument of the Glue job, as in --arg=--day=2026-11-21; may be repeated.",
        ),
    ] = None,
    request_id: Annotated[
        str | None, typer.Option(help="Idempotency key of the request; by default a new UUID.", show_default=False)
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="File of requests, one JSON object per line; - for standard input.", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Send them although a process does not exist (yet).")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until they have ended; exit code 1 if one failed.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Minutes to wait with --wait.", min=0)] = 60,
) -> None:
    """Submit requests. All are checked, as the starter checks them, before the first is sent."""
    context = current_context()
    if (file is None) == (process is None):
        raise typer.BadParameter("give either --process, with --arg and --request-id, or --file")
    if file is not None and (argument or request_id):
        raise typer.BadParameter("--arg and --request-id are for --process; in a file each request has its own")
    requests = _from_file(file) if file is not None else [_from_options(str(process), argument or [], request_id)]
    if not requests:
        raise NotFound("the file contains no requests: give one JSON object per line. Nothing was sent.")
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
            f"{len(refused)} of {count(len(sent), 'request')} were not sent: send those again, under the same ids"
        )
    if wait:
        _raise_for_outcome(ended, len(sent), timeout * 60)


def _from_options(process: str, arguments: list[str], request_id: str | None) -> Request:
    named = {}
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--arg takes KEY=VALUE, as in --arg --day=2026-11-21; got {text!r}")
        named[key if key.startswith("--") else f"--{key}"] = value
    body = {"process": process, "arguments": named} | ({"request_id": request_id} if request_id is not None else {})
    (line,) = read_lines([json.dumps(body)])
    return line.request


def _from_file(file: str) -> list[Request]:
    with _opened(file) as lines:
        return [line.request for line in read_lines(lines)]


@contextmanager
def _opened(file: str) -> Iterator[TextIO]:
    if file == "-":
        yield sys.stdin
        return
    try:
        with Path(file).open(encoding="utf-8") as opened:
            yield opened
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot read {file}: {error}") from error


def _check_processes(context: CommandContext, requests: list[Request], force: bool) -> None:
    known = {one.name: one for one in SlotControl(context.stack).processes.all() if isinstance(one, Process)}
    wanted = {one.process for one in requests}
    if (unknown := sorted(wanted - set(known))) and not force:
        raise NotFound(
            f"there is no process {', '.join(unknown)}. The processes are: "
            f"{', '.join(sorted(known)) or 'none'}. Its requests "
            "would be dead-lettered: add it with slotkeeper process add first, or give --force. Nothing was sent."
        )
    for name in sorted(wanted & set(known)):
        if known[name].paused:
            context.out.note(
                f"Warning: process {name} is paused; its requests wait until slotkeeper process resume {name}."
            )
    for one in requests:
        if one.process in known and one.execution_name in known[one.process].cancelled:
            context.out.note(
                f"Warning: request {one.request_id} of {one.process} is cancelled and will be dead-lettered. To "
                "run it after "
                "all: slotkeeper dlq redrive request --code Cancelled."
            )


def _ran_before(context: CommandContext, requests: list[Request]) -> dict[str, str]:
    """The status of those that were started before: they are taken from the queue, and not run again."""
    if len(requests) > MAX_LOOKED_UP:
        return {}
    workflow = SlotControl(context.stack).workflow
    with ThreadPoolExecutor(_THREADS) as pool:
        descriptions = pool.map(lambda one: workflow.describe(one.execution_name), requests)
        known = [
            (one, execution) for one, execution in zip(requests, descriptions, strict=True) if execution is not None
        ]
    for request, execution in known:
        context.out.note(
            f"Warning: request {request.request_id} of {request.process} was started before and is "
            f"{execution.status}: it is "
            "not run again. A request that is meant to run needs an id of its own."
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
            # Report what was sent. Of the batch at hand it is unknown.
            left = requests[len(sent) :]
            sent += [
                SendResult(one, error=f"{UNKNOWN} ({error})" if n < BATCH else "not sent") for n, one in enumerate(left)
            ]
    return sent


def _wait(context: CommandContext, requests: list[Request], seconds: float) -> dict[str, Execution]:
    """How the requests ended, by the execution's name of their first attempt; those that have, by the time."""
    workflow = SlotControl(context.stack).workflow
    until = time.monotonic() + seconds
    ended: dict[str, Execution] = {}
    # An attempt that found its slot gone has put its request on the queue again, as the next one.
    current = {one.execution_name: one for one in requests}
    with context.out.progress() as progress, ThreadPoolExecutor(_THREADS) as pool:
        task = progress.add_task("done", total=len(requests))
        while True:
            pending = list(current.items())
            descriptions = pool.map(lambda one: workflow.describe(one[1].execution_name), pending)
            for (name, request), execution in zip(pending, descriptions, strict=True):
                if execution is None or not execution.is_closed:
                    continue
                if execution.error == "RequestReturned":
                    current[name] = replace(request, attempt=request.attempt + 1)
                    continue
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
        texts.append(
            f"{len(failed)} of {count(sent, 'request')} failed; they are in FailedRequestQueue: slotkeeper dlq "
            "list failed"
        )
    if len(ended) < sent:
        texts.append(
            f"{sent - len(ended)} of {count(sent, 'request')} were not done after {duration(seconds)}: "
            "slotkeeper request show shows where each is"
        )
    if texts:
        raise CommandFailed("; ".join(texts))


def _as_dict(one: SendResult, before: Mapping[str, str], ended: Mapping[str, Execution]) -> dict[str, Any]:
    data = one.as_dict()
    if status := before.get(one.request.execution_name):
        data["ran_before"] = status
    if execution := ended.get(one.request.execution_name):
        data |= {"status": execution.status, "error": execution.error or None, "cause": execution.cause or None}
    return data


def _render(console: Console, data: dict[str, Any], wait: bool) -> None:
    for one in data["sent"]:
        ending = f"  {one.get('status', 'not ended yet')}" if wait else ""
        console.print(f"sent: {one['request_id']}  {one['execution']}{ending}", markup=False)
    for one in data["refused"]:
        console.print(f"not sent: {one['request_id']} ({one['process']}): {one['error']}", markup=False)
