"""`make run-chatbot`: send messages to the deployed chatbot, and invalidate its token repeatedly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import click

from dev.emulator.aws import EmbeddedAws
from dev.emulator.chat_service import ChatService
from dev.emulator.chatbot_client import UNTHROTTLED, give_credentials, signing_key
from dev.emulator.live_view import Snapshot, counted, watch
from dev.scenarios.runner.scenario import Command, FiniteRange, Run, Scenario, carry_out, option

from . import token_records
from .messages import ChatbotClient, Rounds
from .token_records import Records
from .token_report import Parameters, build

MAX_AUTH_SECONDS = 3.0  # the chatbot has four for a probe of the old token and `POST /auth`
ANSWER_LATENCY = 0.05  # seconds
# Seconds to wait for the first container: a machine with few processors starts all of them equally slowly.
FIRST_CONTAINER = 240.0
SCENARIO = Scenario(Path("build/run-chatbot"))


def stack(service: ChatService) -> dict[str, str]:
    """The stack's parameters."""
    # 0: the interval limits refreshes for requests that are always refused. Here it would be measured as a wait.
    return {"ChatApiUrl": service.url, "TokenMinRefreshSeconds": "0", **UNTHROTTLED}


def converse(aws: EmbeddedAws, service: ChatService, parameters: Parameters, run: Run) -> Records:
    """Send the messages, and wait for each answer; what they have left. Raises Stalled."""
    give_credentials(aws, service.client_id, service.client_secret)
    client, senders = ChatbotClient(str(aws.chatbot_url), signing_key(aws)), parameters.senders
    with run.phase("containers", f"start {senders} containers, about a second of a processor each"):
        warm = [Thread(target=client.warm_up, daemon=True) for _ in range(senders)]
        for each in warm:
            each.start()
        watch(run.console, lambda elapsed: warming_up(warm, elapsed), stalled_after=FIRST_CONTAINER)
    rounds = Rounds(parameters.messages, senders, parameters.invalidations, client.deliver, service.invalidate)
    times = counted(parameters.invalidations, "time")
    with (
        run.phase("run", f"send {counted(parameters.messages, 'message')}, invalidate the token {times}"),
        rounds.sending(),
    ):
        watch(
            run.console,
            lambda elapsed: progress(rounds, service, parameters.messages, elapsed),
            "Slotkeeper: one token",
        )
    with run.phase("collect", "collect the records"):
        outputs = aws.outputs
        function = aws.client("lambda").get_function_configuration(FunctionName=outputs["ChatbotFunctionName"])
        stored = token_records.read_stored(aws.client("dynamodb"), outputs["TokenTableName"], service)
        metrics = token_records.read_metrics(aws.client("logs"), function["LoggingConfig"]["LogGroup"])
        return Records(rounds.deliveries(), service.log, service.token_history, stored, metrics)


def warming_up(requests: Sequence[Thread], elapsed: float) -> Snapshot:
    warm, count = sum(not each.is_alive() for each in requests), len(requests)
    return Snapshot(elapsed, warm == count, warm, count, gauges={"containers": (warm, count)})


def progress(rounds: Rounds, service: ChatService, messages: int, elapsed: float) -> Snapshot:
    ended = rounds.deliveries()
    answered = sum(each.answer is not None for each in ended)
    counts = {
        "answered": answered,
        "refused": len(ended) - answered,
        "invalidations": rounds.invalidations,
        "POST /auth": service.auths,
    }
    return Snapshot(elapsed, len(ended) == messages, len(ended), messages, counts=counts)


@click.command(cls=Command)
@option("--messages", click.IntRange(1, 2000), 200, "Number of messages")
@option(
    "--senders",
    click.IntRange(1, 100),
    50,
    "Concurrent senders. Each uses a container of the chatbot, 80 MB of memory; two processors can run about fifty",
)
@option("--invalidations", click.IntRange(0, 50), 5, "Invalidations of the token; fewer than messages")
@option("--auth-latency", FiniteRange(0.0, MAX_AUTH_SECONDS), 0.5, "Seconds of a POST /auth")
def main(messages: int, senders: int, invalidations: int, auth_latency: float) -> None:
    """Send signed messages from concurrent senders to the deployed chatbot, and invalidate its token meanwhile.

    The third-party API is simulated on 127.0.0.1, and accepts one token at a time. Writes
    build/run-chatbot/report.json. Uses nothing outside this machine, and leaves nothing running.
    """
    if invalidations >= messages:
        raise click.BadParameter(
            f"{invalidations} is not below the number of messages, {messages}: each invalidation needs a message that "
            f"meets it.\n{main.epilog}",
            param_hint="'--invalidations'",
        )
    parameters = Parameters(messages, senders, invalidations, auth_latency)
    with ChatService(auth_latency=auth_latency, answer_latency=ANSWER_LATENCY) as service:
        carry_out(
            SCENARIO,
            stack(service),
            lambda aws, run: build(parameters, converse(aws, service, parameters, run), run),
        )
