"""`make run-chatbot`: deploy the chatbot, let many senders talk to it, kill its token again and again, report.

Exit codes: see dev/scenarios/runner/command.py.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from dev.emulator.aws import EmbeddedAws
from dev.emulator.chat_service import ChatService
from dev.emulator.chatbot_client import UNTHROTTLED, give_credentials, signing_key
from dev.emulator.gateway import reachable
from dev.scenarios.runner.checking import counted
from dev.scenarios.runner.command import Command, Phases, carry_out
from dev.scenarios.runner.viewing import for_console
from dev.scenarios.runner.waiting import wait_until_over

from . import picture, records, summary, view
from .course import Course
from .messages import Message
from .report import Parameters, build
from .sending import Senders

RUN_DIR = Path("build/run-chatbot")
WRITTEN = ("report.json", "tokens.png")
MOST_MESSAGES, MOST_SENDERS, MOST_INVALIDATIONS = 2000, 100, 50
LONGEST_AUTH = 3.0  # seconds; the chatbot gives `POST /auth` four, and probes the old token before it
FROM_MAKE = (
    f"from make: MESSAGES=1..{MOST_MESSAGES} SENDERS=1..{MOST_SENDERS} INVALIDATIONS=0..{MOST_INVALIDATIONS} "
    f"AUTH_LATENCY=0..{LONGEST_AUTH:g}"
)
ANSWER_LATENCY = 0.05  # seconds
# Seconds in which no container need be ready: a machine with few processors starts all of them at the same slow pace.
FIRST_CONTAINER = 240.0


def collect(aws: EmbeddedAws, service: ChatService, senders: Senders, course: Course) -> records.Records:
    """Everything that was written down, once all is over."""
    outputs = aws.outputs
    function = aws.client("lambda").get_function_configuration(FunctionName=outputs["ChatbotFunctionName"])
    group = function.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{outputs['ChatbotFunctionName']}"
    return records.Records(
        deliveries=senders.deliveries(),
        log=service.log,
        tokens=service.token_history,
        invalidations=course.invalidations,
        stored=records.read_stored(aws.client("dynamodb"), outputs["TokenTableName"], service),
        metrics=records.read_metrics(aws.client("logs"), group),
    )


def perform(
    aws: EmbeddedAws, service: ChatService, parameters: Parameters, console: Console, phases: Phases
) -> dict[str, Any]:
    """The run on an engine that is up; returns the report. Raises Stuck."""
    with phases.phase("deploy", "build and deploy"):
        # 0: the interval guards against requests that are always refused; here it would be measured as a wait.
        aws.deploy({"ChatApiUrl": service.url, "TokenMinRefreshSeconds": "0", **UNTHROTTLED})
    give_credentials(aws, service.client_id, service.client_secret)
    messages = [Message(number) for number in range(1, parameters.messages + 1)]
    course = Course(messages, parameters.senders, parameters.invalidations, service.invalidate)
    url = reachable(aws.outputs["ChatbotUrl"], aws.endpoint)
    senders = Senders(course, url, signing_key(aws), parameters.senders)
    with (
        # Nearly all of it goes into importing Python modules, which no two containers share.
        phases.phase("containers", f"start {parameters.senders} containers, about a second of a processor each"),
        for_console(console, view.starting_panel, view.starting_line) as starts,
    ):
        senders.knock()
        wait_until_over(
            lambda elapsed: view.Starting(elapsed, parameters.senders, senders.knocked),
            starts.show,
            starts.interval,
            stalled_after=FIRST_CONTAINER,
        )
    times = counted(parameters.invalidations, "time")
    said = f"send {counted(parameters.messages, 'message')}, kill the token {times}"
    with (
        phases.phase("run", said),
        for_console(console, view.panel, view.plain_line) as shown,
        senders.at_work(),
    ):
        wait_until_over(
            lambda elapsed: view.look(course, service, parameters.messages, elapsed), shown.show, shown.interval
        )
    with phases.phase("collect", "collect the records"):
        found = collect(aws, service, senders, course)
    return build(parameters, found, phases.seconds)


def write(report: dict[str, Any], console: Console) -> None:
    (RUN_DIR / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    picture.draw(report, RUN_DIR / "tokens.png")
    summary.show(console, report)
    console.print(f"{RUN_DIR}/report.json, {RUN_DIR}/tokens.png", highlight=False)


def _seconds(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    """FloatRange lets "nan" through, since it is neither below nor above anything."""
    if math.isnan(value):
        raise click.BadParameter(f"nan is not in the range 0.0<=x<={LONGEST_AUTH}.")
    return value


@click.command(cls=Command, epilog=FROM_MAKE, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--messages",
    type=click.IntRange(1, MOST_MESSAGES),
    default=200,
    show_default=True,
    help="How many messages to send (make: MESSAGES).",
)
@click.option(
    "--senders",
    type=click.IntRange(1, MOST_SENDERS),
    default=50,
    show_default=True,
    help="How many send at once. Each keeps a container of the chatbot busy, 80 MB of memory; two processors take "
    "about fifty of them (make: SENDERS).",
)
@click.option(
    "--invalidations",
    type=click.IntRange(0, MOST_INVALIDATIONS),
    default=5,
    show_default=True,
    help="How often the token is killed on the way; fewer than messages (make: INVALIDATIONS).",
)
@click.option(
    "--auth-latency",
    type=click.FloatRange(0.0, LONGEST_AUTH),
    default=0.5,
    callback=_seconds,
    show_default=True,
    help="Seconds that the API takes for POST /auth (make: AUTH_LATENCY).",
)
def main(messages: int, senders: int, invalidations: int, auth_latency: float) -> None:
    """Send signed messages from concurrent senders through the deployed chatbot, and kill its API token on the way.

    The third-party API is a stand-in on 127.0.0.1 that allows one token at a time. Writes build/run-chatbot/report.json
    and build/run-chatbot/tokens.png. Nothing outside this machine is touched, and nothing is left running.
    """
    if invalidations >= messages:
        raise click.BadParameter(
            f"{invalidations} is not below the number of messages, {messages}: each needs a message that finds the "
            f"token dead.\n{FROM_MAKE}",
            param_hint="'--invalidations'",
        )
    parameters = Parameters(messages, senders, invalidations, auth_latency)

    def run(aws: EmbeddedAws, console: Console, phases: Phases) -> dict[str, Any]:
        with ChatService(auth_latency=auth_latency, answer_latency=ANSWER_LATENCY) as service:
            report = perform(aws, service, parameters, console, phases)
        write(report, console)
        return report

    carry_out(RUN_DIR, WRITTEN, run)
