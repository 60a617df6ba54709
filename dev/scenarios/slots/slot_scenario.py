"""`make run`: send requests through the deployed workflow, and report from AWS's own records."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path

import click

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import Snapshot, counted, watch
from dev.scenarios.runner.scenario import Command, FiniteRange, Outcome, Run, Scenario, carry_out, option

from . import machine_run, priority_run, slot_requests, slot_stack
from .priority_run import MIN_LIMIT, MIN_REQUESTS
from .slot_report import Parameters, build
from .slot_requests import PROCESS

SCENARIO = Scenario(Path("build/run"), {"lasting": True})


def stack(parameters: Parameters) -> dict[str, str]:
    """The stack's parameters."""
    limit = str(parameters.limit)
    return {"ProcessName": PROCESS, "SlotLimit": limit, "MoreStateMachineArns": machine_run.MACHINE}


def measure(aws: EmbeddedAws, parameters: Parameters, run: Run) -> Outcome:
    """Run on a deployed stack. Raises Stalled and SendFailed."""
    requests, inputs = slot_requests.for_the_job(parameters.requests, parameters.fail)
    slot_stack.upload(aws, inputs, run)
    since = time.time()

    def progress(elapsed: float) -> Snapshot:
        return slot_stack.progress(aws, parameters.requests, parameters.limit, elapsed, since)

    with nullcontext() if parameters.doorbell else slot_stack.without_doorbell(aws):
        with run.phase("send", f"send {counted(len(requests), 'request')}"):
            sent = slot_requests.send(aws.client("sqs"), aws.outputs["RequestQueueUrl"], requests)
        with run.phase("run", "run"):
            watch(run.console, progress)
        with run.phase("collect", "collect the records"):
            slots = slot_stack.collect(aws, [each.sending() for each in sent])
            results = slot_stack.outputs_of(aws)
        checks = [slot_stack.results_are_those(slots.history, sent, results)]
        if parameters.doorbell:
            recording = slot_stack.recording_of(aws, slots.history)
            checks.append(slot_stack.replay_agrees(recording, parameters.limit))
        else:
            checks.append(slot_stack.doorbell_was_dead(aws, len(slots.history.attempts), parameters.limit))
    return build(parameters, slots, checks, {}, run)


@click.command(cls=Command)
@option("--requests", click.IntRange(1, 2000), 40, "Number of requests")
@option("--limit", click.IntRange(1, 500), 3, "Number of slots")
@option(
    "--fail",
    FiniteRange(0.0, 1.0),
    0.0,
    "Share of requests whose input is damaged, so that their job fails; above 0: at least one",
)
@option("--priorities", click.Choice(["no", "yes"]), "no", "yes: urgent and heavy requests come between the others")
@option(
    "--target",
    click.Choice(["glue", "workflow"]),
    "glue",
    "workflow: the requests run a state machine, and a caller waits for the results of half of them",
)
@option(
    "--doorbell",
    click.Choice(["yes", "no"]),
    "yes",
    "no: no message of DispatchQueue is delivered, so that the janitor alone starts what waits",
)
@option("--watch", click.Choice(["no", "yes"]), "no", "yes: open the console in the browser, until Ctrl-C")
def main(requests: int, limit: int, fail: float, priorities: str, target: str, doorbell: str, watch: str) -> None:
    """Send requests through the deployed workflow on the embedded AWS, and report from AWS's own records.

    A Glue job aggregates one month of Seattle's daily weather for each request. With priorities, urgent and heavy
    requests come in between, one is cancelled, and one waits until the limit is raised. With the target `workflow`, a
    state machine does this work; a caller sends half of the requests from a Map, and collects the results. Writes
    timeline.svg, audit.html and report.json in build/run. Uses nothing outside this machine, leaves nothing running.
    """
    parameters = Parameters(requests, limit, fail, priorities == "yes", target, doorbell == "yes")
    if not parameters.doorbell and (parameters.priorities or target == "workflow"):
        text = f"no doorbell goes with the target glue, and without priorities.\n{main.epilog}"
        raise click.BadParameter(text, param_hint="'--doorbell'")
    measured = machine_run.measure if target == "workflow" else measure
    if parameters.priorities:
        if target == "workflow" or requests < MIN_REQUESTS or limit < MIN_LIMIT:
            raise click.BadParameter(
                f"it needs at least {MIN_REQUESTS} requests, so that every kind is sent, at least {MIN_LIMIT} slots, "
                f"so that a heavy request leaves one, and the target glue.\n{main.epilog}",
                param_hint="'--priorities'",
            )
        measured = priority_run.measure
    carry_out(SCENARIO, stack(parameters), lambda aws, run: measured(aws, parameters, run), watch=watch == "yes")
