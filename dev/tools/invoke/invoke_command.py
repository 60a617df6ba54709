"""The command: `make invoke FUNCTION=starter EVENT=happy`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from botocore.exceptions import BotoCoreError, ClientError

from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.chat_service import CLIENT_ID, CLIENT_SECRET, ChatService
from dev.emulator.deployment import DeploymentError
from dev.tools.function_folders import code_folders
from dev.tools.invoke.event_setup import EventSetup
from dev.tools.invoke.function_stack import DeployedFunction, FunctionFailed, bring_up, events_of
from slotkeeper_cli.formatting import did_you_mean


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("function", default="")
@click.argument("event", default="")
def main(function: str, event: str) -> None:
    """Call FUNCTION with EVENT: a name in events/FUNCTION/, or the path of a JSON file.

    The function is deployed with the resources that it uses to an embedded AWS, for this call alone. The answer is
    written to standard output, everything else to standard error. Without EVENT, list the events.

    Exit codes: 0 the function answered; 1 it raised or timed out; 2 it was not called.
    """
    if not function or not event:
        _list([_known(function)] if function else code_folders())
        return
    path = _event(_known(function), event)
    try:
        with (
            tempfile.TemporaryDirectory() as scratch,
            EmbeddedAws.start(Path(scratch)) as aws,
            own_stack(aws, function) as deployed,
        ):
            call(deployed, path)
    except (EngineError, DeploymentError, BotoCoreError, ClientError) as error:
        _say(str(error))
        raise SystemExit(2) from None


def call(deployed: DeployedFunction, path: Path) -> None:
    """Call the function with the event in a file, after the one that it requires, and print log and answer."""
    setup = EventSetup(deployed)
    first = setup.before(path)
    for each, note in [(first, ", which is required first"), (path, "")] if first else [(path, "")]:
        event = setup.prepare(each)
        _say(f"{os.path.relpath(each)}{note}")
        try:
            answer = deployed.invoke(event)
        except FunctionFailed as error:
            _say(deployed.new_log(), label="")
            _say(f"the function failed: {error}")
            raise SystemExit(1) from None
        _say(deployed.new_log(), label="")
    if response := deployed.response():
        _say(f"CloudFormation received: {json.dumps(response)}")
    click.echo(json.dumps(answer, indent=2))


@contextmanager
def own_stack(aws: EmbeddedAws, function: str) -> Iterator[DeployedFunction]:
    """Deploy the function in a stack of its own, with a chat API that runs inside the `with` block."""
    with ChatService(client_id=CLIENT_ID, client_secret=CLIENT_SECRET) as service:
        # Without them the template has no chatbot, worker and retry report.
        parameters = {"ChatApiUrl": service.url, "DeployWorker": "true", "RetryReportSchedule": "rate(7 days)"}
        if function == "token_refresher":  # with it, the chatbot does not refresh the token
            parameters["TokenRefreshSchedule"] = "rate(30 minutes)"
        yield DeployedFunction(aws, bring_up(aws, function, parameters), function)


def _known(function: str) -> str:
    if function not in code_folders():
        raise click.UsageError(f"there is no function {function!r}{_instead(function, code_folders())}")
    return function


def _event(function: str, event: str) -> Path:
    names = {path.stem: path for path in events_of(function)}
    if event in names:
        return names[event]
    path = Path(event)
    if path.is_file():
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise click.UsageError(f"{event} is not JSON: {error}") from None
        return path
    raise click.UsageError(f"{function} has no event {event!r}, nor is it a file{_instead(event, names)}")


def _instead(word: str, known: Iterable[str]) -> str:
    return f".{did_you_mean(word, known)} There are {', '.join(known)}"


def _list(functions: Iterable[str]) -> None:
    for function in functions:
        click.echo(f"{function}: {', '.join(path.stem for path in events_of(function))}")
    click.echo("events/README.md states what each event needs, and its outcome.", err=True)


def _say(message: str, label: str = "invoke: ") -> None:
    if message:
        click.echo(label + message, err=True)
