"""The command: `make invoke FUNCTION=starter EVENT=happy`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from botocore.exceptions import BotoCoreError, ClientError

from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.chat_service import CLIENT_ID, CLIENT_SECRET, ChatService
from dev.emulator.deployment import STACK_NAME, DeploymentError
from dev.emulator.environment import ROOT
from dev.tools.invoke.event_setup import EventSetup
from dev.tools.invoke.function_stack import DeployedFunction, bring_up, events_of, folders
from dev.tools.invoke.lambda_runtime import FunctionFailed, Runtime, RuntimeUnavailable
from dev.tools.invoke.response_receiver import ResponseReceiver
from slotkeeper_cli.formatting import did_you_mean

LOCAL_STACK = ROOT / "build" / "local"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("function", default="")
@click.argument("event", default="")
def main(function: str, event: str) -> None:
    """Call FUNCTION in the real Lambda runtime with EVENT: a name in events/FUNCTION/, or the path of a JSON file.

    The function uses the stack of `make local-up` if that runs, otherwise a small stack that is created for the call.
    The answer is written to standard output, everything else to standard error. Without EVENT, list the events.

    Exit codes: 0 the function answered; 1 it raised or timed out; 2 it was not called.
    """
    if not function or not event:
        _list([_known(function)] if function else folders())
        return
    path = _event(_known(function), event)
    try:
        with tempfile.TemporaryDirectory() as scratch, prepared(function, Path(scratch)) as (deployed, setup, receiver):
            log = Path(scratch) / "function.log"
            with Runtime(deployed.configuration, deployed.aws.endpoint, log) as runtime:
                _call(runtime, setup, receiver, path)
    except (EngineError, DeploymentError, RuntimeUnavailable, BotoCoreError, ClientError) as error:
        _say(str(error))
        raise SystemExit(2) from None


def _call(runtime: Runtime, setup: EventSetup, receiver: ResponseReceiver, path: Path) -> None:
    first = setup.before(path)
    for each, note in [(first, ", which is required first"), (path, "")] if first else [(path, "")]:
        event = setup.prepare(each)
        _say(f"{_shown(each)}{note}")
        try:
            answer = runtime.invoke(event)
        except FunctionFailed as error:
            _say(runtime.new_output().strip(), label="")
            _say(f"the function failed: {error}")
            raise SystemExit(1) from None
        _say(runtime.new_output().strip(), label="")
    for response in receiver.answers[-1:]:
        _say(f"CloudFormation received: {json.dumps(response)}")
    click.echo(json.dumps(answer, indent=2))


@contextmanager
def prepared(function: str, scratch: Path) -> Iterator[tuple[DeployedFunction, EventSetup, ResponseReceiver]]:
    """Yield the function in the stack of `make local-up`, or in a new stack if that does not run or lacks the function,
    with the setup of its events and the receiver of its responses to CloudFormation."""
    running = _running(function)
    if running is None:
        _say("on a stack created for this call")
        with EmbeddedAws.start(scratch / "aws") as aws, own_stack(aws, function) as made:
            yield made
        return
    _say(f"on the stack of make local-up, at {running.aws.endpoint}")
    with ResponseReceiver() as receiver, ExitStack() as undo:
        yield running, EventSetup(running, function, receiver, undo=undo), receiver


@contextmanager
def own_stack(aws: EmbeddedAws, function: str) -> Iterator[tuple[DeployedFunction, EventSetup, ResponseReceiver]]:
    """As `prepared`, in a new stack on this embedded AWS."""
    with ExitStack() as stack:
        receiver = stack.enter_context(ResponseReceiver())
        parameters = {}
        if function in ("chatbot", "token_refresher"):
            service = ChatService(client_id=CLIENT_ID, client_secret=CLIENT_SECRET)
            parameters["ChatApiUrl"] = stack.enter_context(service).url
        if function in ("worker", "retry_report"):
            parameters["DeployWorker"] = "true"
        if function == "retry_report":
            parameters["RetryReportSchedule"] = "rate(7 days)"  # without it the template has no RetryReport
        if function == "token_refresher":
            parameters["TokenRefreshSchedule"] = "rate(30 minutes)"  # without it the template has no TokenRefresher
        made = DeployedFunction(aws, bring_up(aws, function, parameters), function)
        yield made, EventSetup(made, function, receiver), receiver


def _running(function: str) -> DeployedFunction | None:
    try:
        return DeployedFunction(EmbeddedAws.attach(LOCAL_STACK), STACK_NAME, function)
    except (EngineError, KeyError, ClientError, BotoCoreError):
        return None


def _known(function: str) -> str:
    if function not in folders():
        raise click.UsageError(f"there is no function {function!r}{_instead(function, folders())}")
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
    raise click.UsageError(f"{function} has no event {event!r}, nor is it a file{_instead(event, list(names))}")


def _instead(word: str, known: list[str]) -> str:
    return f".{did_you_mean(word, known)} There are {', '.join(known)}"


def _list(functions: list[str]) -> None:
    for function in functions:
        click.echo(f"{function}: {', '.join(path.stem for path in events_of(function))}")
    click.echo("events/README.md states what each event needs, and its outcome.", err=True)


def _say(message: str, label: str = "invoke: ") -> None:
    if message:
        click.echo(label + message, err=True)


def _shown(path: Path) -> str:
    whole = path.resolve()
    return str(whole.relative_to(ROOT)) if whole.is_relative_to(ROOT) else str(path)
