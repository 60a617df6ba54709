"""The command line: a command for each load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dev.emulator.chat_service import ChatService
from dev.scenarios.faults import fault_run
from dev.scenarios.runner.scenario import carry_out
from dev.scenarios.slots import slot_load
from dev.scenarios.slots.priorities import MIN_LIMIT, MIN_REQUESTS
from dev.scenarios.token import token_load
from dev.scenarios.worker import worker_checks, worker_load

MAX_AUTH_SECONDS = 3.0  # the chatbot has four for a probe of the old token and `POST /auth`
ANSWER_LATENCY = 0.05  # seconds
MOST_WITH_FAULTS = 20  # slots
YES_NO = click.Choice(["no", "yes"])


def option(name: str, kind: click.ParamType | type[int], default: float | str, text: str) -> Callable[..., Any]:
    """An option. Most users set its variable in the Makefile: AUTH_LATENCY for --auth-latency."""
    return click.option(name, type=kind, default=default, show_default=True, help=text)


@click.group()
def main() -> None:
    """Deploy to an embedded AWS, send a load, judge the records, report. Uses nothing outside this machine."""


@main.command("slots")
@option("--requests", click.IntRange(1, 2000), 40, "Number of requests")
@option("--limit", click.IntRange(1, 500), 3, "Number of slots")
@option("--fail", click.FloatRange(0.0, 1.0), 0.0, "Share of requests whose input is damaged; above 0: at least one")
@option("--priorities", YES_NO, "no", "yes: urgent and heavy requests come between the others")
@option("--target", click.Choice(["glue", "workflow"]), "glue", "workflow: a state machine; callers wait for half")
@option("--doorbell", YES_NO, "yes", "no: no message of DispatchQueue is delivered, so that the janitor starts all")
@option("--keys", click.IntRange(0, 20), 0, "Keys, each with a limit; the first one sends half of the requests")
@option("--watch", YES_NO, "no", "yes: open the console in the browser, until Ctrl-C")
@option("--faults", click.FloatRange(0.0, 120.0), 0.0, "Minutes of faults, for requests that the seed draws; 0: none")
@option("--seed", int, 1, "Draws the requests and faults; the same seed gives the same schedule")
def slots(limit: int, watch: str, faults: float, seed: int, **given: Any) -> None:
    """Send requests through the deployed workflow, and report from AWS's own records.

    A Glue job aggregates one month of Seattle's daily weather for each request. With priorities, urgent and heavy
    requests come in between, one is cancelled, and one waits until the limit is raised. With the target `workflow`, a
    state machine does this work, and callers wait for half of the results. With keys, the limit of each is one below
    the number of slots, so that the one that sends most leaves a slot to the others. Writes build/run.

    With faults, workflows are aborted, containers killed, calls refused and answers lost. Limits change, processes
    pause, messages are delivered twice, the engine is restarted and killed. Then the faults are removed and the queue
    is drained. The first process has `limit` slots, the second one less, the third one. Writes build/soak.
    """
    of_requests = {name: value == "yes" if value in ("yes", "no") else value for name, value in given.items()}
    parameters = slot_load.Parameters(limit=limit, **of_requests)
    others = {name for name, is_set in _kinds(parameters, faults).items() if is_set}
    if len(others) > 1:
        raise click.UsageError(f"they do not go together: {', '.join(sorted(others))}.")
    if parameters.priorities and (parameters.requests < MIN_REQUESTS or limit < MIN_LIMIT):
        text = f"priorities need at least {MIN_REQUESTS} requests, so that every kind is sent, and {MIN_LIMIT} slots"
        raise click.UsageError(f"{text}, so that a heavy request leaves one.")
    if faults:
        if limit > MOST_WITH_FAULTS:
            raise click.UsageError(f"with faults there are at most {MOST_WITH_FAULTS} slots.")
        with_faults = fault_run.Parameters(faults, seed, limit)
        carry_out(fault_run.SCENARIO, lambda aws, run: fault_run.measure(aws, with_faults, run), watch=watch == "yes")
    scenario = slot_load.scenario(parameters)
    carry_out(scenario, lambda aws, run: slot_load.measure(aws, parameters, run), watch=watch == "yes")


def _kinds(parameters: slot_load.Parameters, faults: float) -> dict[str, bool]:
    """What only one of can be chosen."""
    return {
        "priorities": parameters.priorities,
        "the target workflow": parameters.target == "workflow",
        "no doorbell": not parameters.doorbell,
        "keys": parameters.keys > 0,
        "faults": faults > 0,
    }


@main.command("token")
@option("--messages", click.IntRange(1, 2000), 200, "Number of messages")
@option("--senders", click.IntRange(1, 100), 50, "Concurrent senders. Each uses a container of the chatbot, of 80 MB")
@option("--invalidations", click.IntRange(0, 50), 5, "Invalidations of the token; fewer than messages")
@option("--auth-latency", click.FloatRange(0.0, MAX_AUTH_SECONDS), 0.5, "Seconds of a POST /auth")
def token(messages: int, senders: int, invalidations: int, auth_latency: float) -> None:
    """Send signed messages from concurrent senders to the deployed chatbot, and invalidate its token meanwhile.

    The third-party API is simulated on 127.0.0.1, and accepts one token at a time. Writes build/run-chatbot.
    """
    if invalidations >= messages:
        raise click.UsageError(f"{invalidations} invalidations: each needs a message that meets it, of {messages}.")
    parameters = token_load.Parameters(messages, senders, invalidations, auth_latency)
    with ChatService(auth_latency=auth_latency, answer_latency=ANSWER_LATENCY) as service:
        carry_out(
            token_load.scenario(service),
            lambda aws, run: token_load.build(parameters, token_load.converse(aws, service, parameters, run)),
        )


@main.command("worker")
@option("--requests", click.IntRange(1, 1000), 100, "Number of requests, sent within ten seconds")
@option("--seed", int, 1, "Draws the mix and every failure; the same seed gives the same run")
@option("--scale", click.FloatRange(0.02, 1.0), 0.15, "Factor for the downstream's 1 to 6 seconds per call")
@option("--workers", click.IntRange(2, 10), 3, "Concurrent callers of the downstream; Lambda allows two or more")
@option("--outage", YES_NO, "no", "yes: the downstream fails for 25 seconds")
def worker(requests: int, seed: int, scale: float, workers: int, outage: str) -> None:
    """Send requests to the deployed worker, whose downstream, S3, is slow and fails at random.

    Six in ten requests are normal, three in ten too slow at first, one in ten can never succeed; two in ten of all
    other attempts fail. With an outage, the requests are sent in a minute, and from its 20th to its 45th second S3
    fails all calls. Writes build/run-worker.
    """
    if not worker_load.SHIPPED_WORK.exists():
        raise click.ClickException(worker_load.OTHER_WORK)
    timing = worker_load.Timing() if outage == "yes" else None
    parameters = worker_checks.Parameters(requests, seed, scale, workers, timing is not None)
    carry_out(
        worker_load.scenario(parameters),
        lambda aws, run: worker_checks.build(parameters, worker_load.work_off(aws, parameters, run, timing)),
    )
