"""The commands `python -m dev.emulator up`, `credentials`, `down`, `status`, `say` and `work`."""

import json
import signal
import sys
from pathlib import Path

import click
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape

from dev.emulator import chatbot_client as chatbot
from dev.emulator import processes, work_result
from dev.emulator import worker_client as worker
from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.chat_service.control import PREFIX
from dev.emulator.chat_service.simulated_chat_api import CLIENT_ID, CLIENT_SECRET
from dev.emulator.deployment import DeploymentError, check_names
from dev.emulator.environment import ROOT
from dev.emulator.live_view import Stalled, watch
from dev.emulator.sample_data import read_dataset, split_by_month

STATE_DIR = ROOT / "build" / "local"
PROCESS = "sample"  # the template's default of ProcessName
CHAT_API_URL, DEPLOY_WORKER = "ChatApiUrl", "DeployWorker"  # the template's parameters
GIVE_CREDENTIALS = "build/venv/bin/python -m dev.emulator credentials"
TALK = 'make say TEXT="Good morning"'
FIRST_MONTH = worker.MONTH
console = Console(highlight=False, soft_wrap=True, emoji=False)  # an ARN has ":secret:" in it


def say(message: str) -> None:
    """One progress line."""
    console.print(f"[dim]local:[/dim] {message}")


class Interruptible(click.Group):
    """Ctrl-C ends a command with the shell's own exit code for it; the commands clean up on the way."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            _past_interrupts()
            say("interrupted")
            sys.exit(130)


def _past_interrupts() -> None:
    """Ignore further signals: an interrupted clean-up would leave processes running."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@click.group(cls=Interruptible, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run the embedded AWS with the project's template deployed to it."""


def _parameter(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    parameters = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{value!r} is not of the form Name=value")
        parameters[name] = text
    try:
        check_names(parameters)
    except DeploymentError as error:
        raise click.BadParameter(str(error)) from None
    return parameters


@main.command()
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port on 127.0.0.1; 0 takes a free one.")
@click.option("--parameter", callback=_parameter, multiple=True, metavar="NAME=VALUE", help="A template parameter.")
def up(port: int, parameter: dict[str, str]) -> None:
    """Start it, deploy template.yaml, upload one month of sample data, and leave it running.

    All flows are deployed; --parameter ChatApiUrl= leaves out the chatbot, --parameter DeployWorker=false the worker.
    The chatbot calls a simulated chat API in the engine. To use another, deploy with --parameter ChatApiUrl=..., then
    store its credentials with `python -m dev.emulator credentials`.
    """
    own_api = CHAT_API_URL in parameter
    try:
        aws = EmbeddedAws.attach(STATE_DIR)
    except EngineError:
        aws = None
    try:
        if aws is not None:
            say(f"already running at {aws.endpoint}; deploying again")
            started = False
        else:
            aws = EmbeddedAws.start(STATE_DIR, port=port, chat_service=not own_api, say=say)
            started = True
        try:
            chat_api = None if own_api else aws.chat_service
            flows = {DEPLOY_WORKER: "true"} | ({CHAT_API_URL: chat_api} if chat_api else {})
            outputs = aws.deploy(flows | parameter, say=say)
            key = upload_sample(aws)
            if chat_api:
                chatbot.give_credentials(aws, CLIENT_ID, CLIENT_SECRET)
        except BaseException:
            _past_interrupts()
            if started:
                aws.stop()
            raise
    except (EngineError, DeploymentError, BotoCoreError, ClientError) as error:
        raise click.ClickException(str(error)) from None
    _past_interrupts()
    aws.detach()
    say(f"ready at {aws.endpoint}; {len(outputs)} outputs in {_shown(STATE_DIR / 'outputs.json')}")
    say(f"the functions' log: {_log()}")
    if chat_api:
        say(f"the chatbot calls the simulated chat API at {chat_api}; send a message: {TALK}")
        say(f"invalidate the shared token: curl -X POST {chat_api}{PREFIX}invalidate")
    if parameter.get(CHAT_API_URL):
        say(f"the chatbot calls {escape(parameter[CHAT_API_URL])}; store its credentials with:")
        console.print(GIVE_CREDENTIALS)
    _say_chatbot_url(aws)
    if "WorkQueueUrl" in outputs:
        like = work_result.resend(worker.sample_body("first"))
        say(f"send a sample request to the worker: make work; or your own body: {escape(like)}")
    say(f"{key} is in {outputs['DataBucketName']}; a message body for RequestQueueUrl that summarizes it:")
    # Bare, so that the line can be copied whole.
    console.print(first_body(parameter.get("ProcessName", PROCESS)), markup=False)


def _say_chatbot_url(aws: EmbeddedAws) -> None:
    if aws.chatbot_url:
        say(f"the chatbot's URL: {aws.chatbot_url}")


def upload_sample(aws: EmbeddedAws) -> str:
    """Upload one month of sample data to DataBucket, as CSV for a Glue job and as JSON Lines for the worker.

    Returns the CSV's key.
    """
    key, month = f"input/{FIRST_MONTH}.csv", split_by_month(read_dataset())[FIRST_MONTH]
    bucket = aws.outputs["DataBucketName"]
    aws.client("s3").put_object(Bucket=bucket, Key=key, Body=month, ContentType="text/csv")
    worker.upload_sample(aws)
    return key


def first_body(process: str) -> str:
    """A message body for RequestQueue that reads what `up` uploaded."""
    arguments = {"--input_key": f"input/{FIRST_MONTH}.csv", "--output_key": f"output/{FIRST_MONTH}.json"}
    return json.dumps({"process": process, "request_id": "first", "arguments": arguments})


@main.command()
@click.option("--client-id", prompt=True, help="Default: a prompt.")
@click.option("--client-secret", prompt=True, hide_input=True, help="Default: a hidden prompt.")
def credentials(client_id: str, client_secret: str) -> None:
    """Store the credentials of the chat API that ChatApiUrl names."""
    try:
        aws = EmbeddedAws.attach(STATE_DIR)
        if not aws.outputs:
            raise EngineError("nothing is deployed yet: run `make local-up`")
        if not aws.chatbot_url:
            raise EngineError("no chatbot is deployed here: deploy with --parameter ChatApiUrl=https://...")
        chatbot.give_credentials(aws, client_id, client_secret)
    except (EngineError, BotoCoreError, ClientError) as error:
        say(escape(str(error)))
        raise SystemExit(1) from None
    say("the chatbot's credentials are stored")


@main.command()
def down() -> None:
    """End the engine that `up` started, and its processes."""
    try:
        aws = EmbeddedAws.attach(STATE_DIR)
    except EngineError:
        EmbeddedAws.forget(STATE_DIR)
        say("not running")
        return
    _past_interrupts()
    aws.stop()
    say(f"ended the engine at {aws.endpoint}")


@main.command()
def status() -> None:
    """Show whether it runs, its endpoint, and the outputs of the stack."""
    try:
        aws = EmbeddedAws.attach(STATE_DIR)
    except EngineError as error:
        say(str(error))
        raise SystemExit(1) from None
    count = len(processes.session_members(aws.pid))
    say(f"running at {aws.endpoint} (process {aws.pid}, {count} processes in all)")
    if aws.chat_service:
        say(f"the simulated chat API: {aws.chat_service}")
    _say_chatbot_url(aws)
    for name, value in sorted(aws.outputs.items()):
        console.print(f"  {name} = {value}", markup=False)
    if not aws.outputs:
        say("nothing is deployed yet")


@main.command("say")
@click.argument("text")
def talk(text: str) -> None:
    """Sign TEXT as a chat service would, send it to the deployed chatbot, and print the answer."""
    if not text.strip():
        say("TEXT is empty: expected a message. Nothing was sent.")
        raise SystemExit(2)
    try:
        console.print(chatbot.ask(EmbeddedAws.attach(STATE_DIR), text), markup=False)
    except (EngineError, chatbot.Unanswered, BotoCoreError, ClientError) as error:
        say(escape(str(error)))
        raise SystemExit(1) from None


@main.command("work")
@click.argument("body", default="")
def send_work(body: str) -> None:
    """Send BODY or a sample request to the deployed worker, wait for its end, and print the outcome.

    Exit codes: 0 it has succeeded, or its next attempt is more than a minute away; 1 it is dead-lettered; 2 no worker
    runs here, or none takes the message.
    """
    try:
        aws = EmbeddedAws.attach(STATE_DIR)
        if "WorkQueueUrl" not in aws.outputs:
            raise EngineError("no worker is deployed here: run `make local-up`, which deploys it by default")
        sent = worker.SentMessage(aws, body or worker.sample_body())
        say(f"sent {escape(sent.name)}")
        last = watch(console, sent.observe, stalled_after=worker.STALLED_AFTER)
        result = work_result.describe(last, sent.name, sent.body, sent.manifest(last.row))
    except (EngineError, BotoCoreError, ClientError, Stalled) as error:
        say(escape(str(error)))
        raise SystemExit(2) from None
    for line in result.lines:
        say(escape(line))
    if result.command:
        console.print(result.command, markup=False)
    if result.code == work_result.NOTHING_RUNS:
        say(f"the functions' log: {_log()}")
    raise SystemExit(result.code)


def _log() -> str:
    return _shown(STATE_DIR / "engine.log")


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
