"""`make run-chatbot`: send messages to the deployed chatbot, and invalidate its token repeatedly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import click
from rich.table import Table

from dev.emulator.aws import EmbeddedAws
from dev.emulator.chat_service import ChatService
from dev.emulator.chatbot_client import UNTHROTTLED, give_credentials, signing_key
from dev.emulator.live_view import Snapshot, counted
from dev.scenarios.runner.scenario import (
    Command,
    FiniteRange,
    Run,
    Scenario,
    carry_out,
    figure_table,
    option,
    spread_text,
)
from slotkeeper_cli.audit import chart
from slotkeeper_cli.audit.chart import Bar, Point

from . import token_records
from .messages import ChatbotClient, Rounds
from .token_figures import Parameters, build

MAX_AUTH_SECONDS = 3.0  # the chatbot has four for a probe of the old token and `POST /auth`
ANSWER_LATENCY = 0.05  # seconds
# Seconds to wait for the first container: a machine with few processors starts all of them equally slowly.
FIRST_CONTAINER = 240.0
KINDS = {  # kind: colour, meaning
    "direct": (chart.BLUE, "answered directly"),
    "renewed": (chart.AMBER, "answered after a 401, with the next token"),
    "cold": (chart.GREY, "sent before the first token"),
    "refused": (chart.VERMILLION, "refused"),
}


def perform(aws: EmbeddedAws, service: ChatService, parameters: Parameters, run: Run) -> dict[str, Any]:
    """Run on a started engine, and return the report. Raises Stalled."""
    with run.phase("deploy", "build and deploy"):
        # 0: the interval limits refreshes for requests that are always refused. Here it would be measured as a wait.
        aws.deploy({"ChatApiUrl": service.url, "TokenMinRefreshSeconds": "0", **UNTHROTTLED})
    give_credentials(aws, service.client_id, service.client_secret)
    client, senders = ChatbotClient(str(aws.chatbot_url), signing_key(aws)), parameters.senders
    with run.phase("containers", f"start {senders} containers, about a second of a processor each"):
        warm = [Thread(target=client.warm_up, daemon=True) for _ in range(senders)]
        for each in warm:
            each.start()
        run.watch(lambda elapsed: warming_up(warm, elapsed), stalled_after=FIRST_CONTAINER)
    rounds = Rounds(parameters.messages, senders, parameters.invalidations, client.deliver, service.invalidate)
    times = counted(parameters.invalidations, "time")
    with (
        run.phase("run", f"send {counted(parameters.messages, 'message')}, invalidate the token {times}"),
        rounds.sending(),
    ):
        run.watch(lambda elapsed: progress(rounds, service, parameters.messages, elapsed), "Slotkeeper: one token")
    with run.phase("collect", "collect the records"):
        records = collect(aws, service, rounds)
    return build(parameters, records, run)


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


def collect(aws: EmbeddedAws, service: ChatService, rounds: Rounds) -> token_records.Records:
    outputs = aws.outputs
    function = aws.client("lambda").get_function_configuration(FunctionName=outputs["ChatbotFunctionName"])
    group = function.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{outputs['ChatbotFunctionName']}"
    return token_records.Records(
        deliveries=rounds.deliveries(),
        log=service.log,
        tokens=service.token_history,
        stored=token_records.read_stored(aws.client("dynamodb"), outputs["TokenTableName"], service),
        metrics=token_records.read_metrics(aws.client("logs"), group),
    )


# ----------------------------------------------------------------------------------------------------- report, shown


def _per_invalidation(counts: Sequence[int]) -> str:
    if len(set(counts)) == 1:
        return f"then {counts[0]} for each of {len(counts)} invalidations"
    return f"then {', '.join(map(str, counts))}" if counts else "no invalidations"


def tables(report: Mapping[str, Any]) -> list[Table]:
    auths, containers = report["auths"], report["containers"]
    rows = {
        "messages answered": f"{report['answered']} of {report['parameters']['messages']}",
        "containers of the bot": "unknown" if containers is None else containers,
        "POST /auth": f"{auths['cold']} at first, {_per_invalidation(auths['per_invalidation'])}",
        "wait for a new token": spread_text(report["token_waits"]),
        "total time": f"{report['total_seconds']:.2f} s",
    }
    return [figure_table("The run, by the API's log and its senders' clocks", rows)]


def draw(report: Mapping[str, Any], path: Path) -> None:
    """The life of each token, and each message."""
    end, tokens = report["total_seconds"], report["tokens"]
    lives = [
        Bar(life["number"], life["since"], end if life["until"] is None else life["until"], chart.BLUE, "token valid")
        for life in tokens
    ]
    lanes = max(1, len(tokens))
    auths = [
        Point(request["began"], min(request["token"] or lanes, lanes), chart.INK, "POST /auth", "|")
        for request in report["auth_requests"]
    ]
    invalidated = [
        Point(each["at"], each["token"], chart.VERMILLION, "invalidated") for each in report["invalidations"]
    ]
    bars, rejections = [], []
    for lane, message in enumerate(sorted(report["fates"], key=lambda each: each["sent"]), 1):
        bars.append(Bar(lane, message["sent"], message["ended"], *KINDS[message["kind"]]))
        rejections += [
            Point(ask["began"], lane, chart.INK, "401 from the API", ".")
            for ask in message["asks"]
            if ask["status"] == 401
        ]
    one_each = report["auths"]["cold"] == 1 and set(report["auths"]["per_invalidation"]) <= {1}
    cause = f"the first token and {counted(len(report['invalidations']), 'invalidation')}"
    panels = [
        chart.lanes_panel(
            f"{report['auths']['total']} POST /auth for {cause}{'' if one_each else ': NOT one each'}",
            "token",
            lanes,
            lives,
            [*auths, *invalidated],
        ),
        chart.lanes_panel(
            f"{report['answered']} of {report['parameters']['messages']} messages answered",
            "message, as sent",
            len(bars),
            bars,
            rejections,
        ),
    ]
    chart.draw(path, "Slotkeeper: one token", "seconds since the first message was sent", end, panels)


SCENARIO = Scenario(Path("build/run-chatbot"), "tokens.png", draw, tables)


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

    The third-party API is simulated on 127.0.0.1, and accepts one token at a time. Writes build/run-chatbot/report.json
    and build/run-chatbot/tokens.png. Uses nothing outside this machine, and leaves nothing running.
    """
    if invalidations >= messages:
        raise click.BadParameter(
            f"{invalidations} is not below the number of messages, {messages}: each invalidation needs a message that "
            f"meets it.\n{main.epilog}",
            param_hint="'--invalidations'",
        )
    parameters = Parameters(messages, senders, invalidations, auth_latency)

    def run_with_service(aws: EmbeddedAws, run: Run) -> dict[str, Any]:
        with ChatService(auth_latency=auth_latency, answer_latency=ANSWER_LATENCY) as service:
            return perform(aws, service, parameters, run)

    carry_out(SCENARIO, run_with_service)
