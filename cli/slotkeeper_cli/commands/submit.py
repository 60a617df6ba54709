"""`slotkeeper request submit`: requests on their way, one by options or a file of them."""

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
from slotkeeper_cli.common import Cli, cli
from slotkeeper_cli.control import Control
from slotkeeper_cli.errors import Failed, NotFound
from slotkeeper_cli.sending import BATCH, Sent, read_lines, send_all
from slotkeeper_cli.words import count, duration

# Seconds between two looks at what is not done yet.
_LOOK_EVERY = 2.0
_LOOKERS = 8
# Each costs a call before anything is sent.
MOST_LOOKED_UP = 100
UNKNOWN = "nobody knows whether it was sent; once more has no second effect"


def submit(
    process: Annotated[str | None, typer.Option(help="The process whose slots it takes.", show_default=False)] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option(
            "--arg", metavar="KEY=VALUE", help="An argument of the Glue job, --day=2026-11-21; may be repeated."
        ),
    ] = None,
    request_id: Annotated[
        str | None, typer.Option(help="Your own idempotency key; else one is made up.", show_default=False)
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Requests, one JSON object a line; - for standard input.", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also to a process that is not there (yet).")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until they are done; exit code 1 if one failed.")] = False,
    timeout: Annotated[float, typer.Option(help="Minutes to wait at most.", min=0)] = 60,
) -> None:
    """Send requests. All are checked as the starter checks them before the first is sent."""
    here = cli()
    if (file is None) == (process is None):
        raise typer.BadParameter("give either --process, with --arg and --request-id, or --file")
    if file is not None and (argument or request_id):
        raise typer.BadParameter("--arg and --request-id are for --process; in a file each request has its own")
    requests = _from_file(file) if file is not None else [_from_options(str(process), argument or [], request_id)]
    if not requests:
        raise NotFound("there are no requests in the file")
    _check_processes(here, requests, force)
    audit(
        "request submit",
        requests=len(requests),
        processes=dict(Counter(one.process for one in requests)),
        first=requests[0].request_id,
        last=requests[-1].request_id,
    )
    before = _ran_before(here, requests)
    sent = _send(here, requests)
    refused = [one for one in sent if one.error]
    ended = _wait(here, [one.request for one in sent if not one.error], timeout * 60) if wait else {}
    told: dict[str, Any] = {
        "sent": [_told(one, before, ended) for one in sent if not one.error],
        "refused": [one.told() for one in refused],
    }
    here.out.result(told, lambda console: _render(console, told, wait))
    if refused:
        raise Failed(
            f"{len(refused)} of {count(len(sent), 'request')} were not sent: send those again, under the same ids"
        )
    if wait:
        _judge(ended, len(sent), timeout * 60)


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


def _check_processes(here: Cli, requests: list[Request], force: bool) -> None:
    known = {one.name: one for one in Control(here.stack).processes.all() if isinstance(one, Process)}
    wanted = {one.process for one in requests}
    if (unknown := sorted(wanted - set(known))) and not force:
        raise NotFound(
            f"there is no process {', '.join(unknown)}; there are {', '.join(sorted(known)) or 'none'}. Its requests "
            "would be dead-lettered: make it by slotkeeper process add first, or give --force. Nothing was sent."
        )
    for name in sorted(wanted & set(known)):
        if known[name].paused:
            here.out.note(f"Mind: process {name} is paused; its requests wait until slotkeeper process resume {name}.")
    for one in requests:
        if one.process in known and one.execution_name in known[one.process].cancelled:
            here.out.note(
                f"Mind: request {one.request_id} of {one.process} is cancelled and will be set aside. To run it after "
                "all, redrive its letter: slotkeeper dlq redrive request --code Cancelled."
            )


def _ran_before(here: Cli, requests: list[Request]) -> dict[str, str]:
    """The status of those that were started before: they are taken from the queue, and not run again."""
    if len(requests) > MOST_LOOKED_UP:
        return {}
    workflow = Control(here.stack).workflow
    with ThreadPoolExecutor(_LOOKERS) as pool:
        looks = pool.map(lambda one: workflow.describe(one.execution_name), requests)
        known = [(one, found) for one, found in zip(requests, looks, strict=True) if found is not None]
    for request, found in known:
        here.out.note(
            f"Mind: request {request.request_id} of {request.process} was started before and is {found.status}: it is "
            "not run again. A request that is meant to run needs an id of its own."
        )
    return {request.execution_name: found.status for request, found in known}


def _send(here: Cli, requests: list[Request]) -> list[Sent]:
    sent: list[Sent] = []
    with here.out.progress() as progress:
        task = progress.add_task("sent", total=len(requests))
        try:
            for batch in send_all(here.stack, requests, here.out.note):
                sent += batch
                progress.update(task, completed=len(sent))
        except (BotoCoreError, ClientError) as error:
            # What was sent must be told all the same. Of the batch at hand nobody knows.
            left = requests[len(sent) :]
            sent += [Sent(one, error=f"{UNKNOWN} ({error})" if n < BATCH else "not sent") for n, one in enumerate(left)]
    return sent


def _wait(here: Cli, requests: list[Request], seconds: float) -> dict[str, Execution]:
    """How the requests ended, by the execution's name of their first attempt; those that have, by the time."""
    workflow = Control(here.stack).workflow
    until = time.monotonic() + seconds
    ended: dict[str, Execution] = {}
    # An attempt that found its slot gone has put its request on the queue again, as the next one.
    current = {one.execution_name: one for one in requests}
    with here.out.progress() as progress, ThreadPoolExecutor(_LOOKERS) as pool:
        task = progress.add_task("done", total=len(requests))
        while True:
            asked = list(current.items())
            looks = pool.map(lambda one: workflow.describe(one[1].execution_name), asked)
            for (name, request), found in zip(asked, looks, strict=True):
                if found is None or not found.is_closed:
                    continue
                if found.error == "RequestReturned":
                    current[name] = replace(request, attempt=request.attempt + 1)
                    continue
                ended[name] = found
                del current[name]
            progress.update(task, completed=len(ended))
            left = until - time.monotonic()
            if not current or left <= 0:
                return ended
            time.sleep(min(max(_LOOK_EVERY, len(current) / 50), left))


def _judge(ended: Mapping[str, Execution], sent: int, seconds: float) -> None:
    failed = [one for one in ended.values() if one.status != "SUCCEEDED"]
    texts = []
    if failed:
        texts.append(f"{len(failed)} of {count(sent, 'request')} failed; they stand in FailedRequestQueue")
    if len(ended) < sent:
        texts.append(
            f"{sent - len(ended)} of {count(sent, 'request')} were not done after {duration(seconds)}: "
            "slotkeeper request show says where each is"
        )
    if texts:
        raise Failed("; ".join(texts))


def _told(one: Sent, before: Mapping[str, str], ended: Mapping[str, Execution]) -> dict[str, Any]:
    told = one.told()
    if status := before.get(one.request.execution_name):
        told["ran_before"] = status
    if found := ended.get(one.request.execution_name):
        told |= {"status": found.status, "error": found.error or None, "cause": found.cause or None}
    return told


def _render(console: Console, told: dict[str, Any], wait: bool) -> None:
    for one in told["sent"]:
        ending = f"  {one.get('status', 'not done yet')}" if wait else ""
        console.print(f"sent: {one['request_id']}  {one['execution']}{ending}", markup=False)
    for one in told["refused"]:
        console.print(f"not sent: {one['request_id']} ({one['process']}): {one['error']}", markup=False)
