"""The commands `python -m dev.emulator up`, `down`, `say` and `work`."""

import signal
import sys

import click
from botocore.exceptions import BotoCoreError, ClientError
from rich.markup import escape

from dev.emulator import chatbot_client as chatbot
from dev.emulator import docker_bridge
from dev.emulator import worker_client as worker
from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.chat_service import CLIENT_ID, CLIENT_SECRET
from dev.emulator.deployment import DeploymentError, check_values, stack_parameters
from dev.emulator.environment import ROOT
from dev.emulator.live_view import Stalled, watch
from dev.emulator.next_steps import (
    CHAT_API_URL,
    GLUE_JOB_NAME,
    console,
    sample_body,
    say,
    say_next_steps,
    shown,
    upload_sample,
)
from dev.emulator.own_job import InvalidJob, OwnJob, read_job, split_words

STATE_DIR = ROOT / "build" / "local"
UNCHANGED = "Nothing was started or changed."


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


def _parameters(_context: click.Context, _option: click.Parameter, text: str) -> dict[str, str]:
    parameters = {}
    try:
        for word in split_words(text):
            name, separator, value = word.partition("=")
            if not separator:
                raise InvalidJob(f"{word!r} is not of the form Name=value")
            parameters[name] = value
        check_values(parameters)
    except (InvalidJob, DeploymentError) as error:
        raise click.BadParameter(f"{error}\n{UNCHANGED}") from None
    return parameters


def _job(script: str, parameters: dict[str, str], arguments: str) -> OwnJob | None:
    if not script:
        if parameters.get(GLUE_JOB_NAME) or arguments:
            given = "the arguments" if arguments else f"{GLUE_JOB_NAME}={parameters[GLUE_JOB_NAME]}"
            raise click.UsageError(f"{given} without a job: give its script, as in JOB=my_job.py\n{UNCHANGED}")
        return None
    try:
        return read_job(script, parameters.get(GLUE_JOB_NAME, ""), arguments)
    except InvalidJob as error:
        raise click.UsageError(f"{error}\n{UNCHANGED}") from None


@main.command()
@click.option("--job", default="", metavar="SCRIPT", help="Script of your Glue job; without: the sample job.")
@click.option("--arguments", default="", metavar="'--NAME=VALUE ...'", help="Default arguments of that job.")
@click.option(
    "--parameters", default="", callback=_parameters, metavar="'NAME=VALUE ...'", help="Parameters of the template."
)
@click.option("--docker", is_flag=True, help="Let containers reach it: listen on Docker's bridge too.")
def up(job: str, arguments: str, parameters: dict[str, str], docker: bool) -> None:
    """Start it, deploy template.yaml, upload one month of sample data, and leave it running.

    All flows are deployed; ChatApiUrl= in --parameters leaves out the chatbot, DeployWorker=false the worker.
    The chatbot calls a simulated chat API in the engine. To use another, deploy with ChatApiUrl=..., then store its
    credentials in the secret (docs/deploy.md, The chatbot).
    """
    own_job = _job(job, parameters, arguments)
    if own_job:
        parameters |= {GLUE_JOB_NAME: own_job.name}
    try:
        aws, started = _running(chat_service=CHAT_API_URL not in parameters, docker=docker)
        try:
            chat_api = None if CHAT_API_URL in parameters else aws.chat_service
            flows = {"DeployWorker": "true"} | ({CHAT_API_URL: chat_api} if chat_api else {})
            if own_job:
                own_job.create(aws)
            aws.deploy(flows | parameters, say=say)
            upload_sample(aws)
            if chat_api:
                chatbot.give_credentials(aws, CLIENT_ID, CLIENT_SECRET)
            deployed = stack_parameters(aws)
        except BaseException:
            _past_interrupts()
            if started:
                aws.stop()
            raise
    except (EngineError, docker_bridge.BridgeError, DeploymentError, BotoCoreError, ClientError) as error:
        raise click.ClickException(str(error)) from None
    _past_interrupts()
    aws.detach()
    say_next_steps(aws, deployed, chat_api)


def _running(*, chat_service: bool, docker: bool) -> tuple[EmbeddedAws, bool]:
    """The engine, and whether this command has started it."""
    try:
        aws = EmbeddedAws.attach(STATE_DIR)
    except EngineError:
        # Docker Desktop's containers reach 127.0.0.1 without a further address.
        host = docker_bridge.container_host() if docker or sys.platform != "linux" else ""
        started = EmbeddedAws.start(STATE_DIR, chat_service=chat_service, container_host=host, say=say)
        return started, True
    if docker and not aws.container_host:
        raise EngineError(
            f"the embedded AWS at {aws.endpoint} runs without DOCKER=yes, so that containers cannot reach it: run "
            "make local-down first. Nothing was changed."
        )
    say(f"already running at {aws.endpoint}; deploying again")
    return aws, False


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
        sent = worker.SentMessage(aws, body or sample_body())
        say(f"sent {escape(sent.name)}")
        result = watch(console, sent.observe, stalled_after=worker.STALLED_AFTER).result or worker.NOT_BEGUN
    except (EngineError, BotoCoreError, ClientError) as error:
        say(escape(str(error)))
        raise SystemExit(2) from None
    except Stalled:
        result = worker.NOT_BEGUN
    for line in result.lines:
        say(escape(line))
    if result.code == worker.NOTHING_RUNS:
        say(f"the functions' log: {shown(aws.state_dir / 'engine.log')}")
    raise SystemExit(result.code)
