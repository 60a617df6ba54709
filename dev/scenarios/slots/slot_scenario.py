"""`make run`: send requests through the deployed workflow, and report from AWS's own records."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import counted
from dev.emulator.sample_data import read_dataset
from dev.scenarios.runner.scenario import Command, FiniteRange, Run, Scenario, carry_out, option
from slotkeeper_cli import chart

from . import priority_scenario, slot_requests, target_scenario
from .priority_requests import MIN_LIMIT, MIN_REQUESTS
from .slot_figures import Parameters, build
from .slot_report import Work, draw_run, run_tables
from .slot_requests import PROCESS
from .slot_stack import collect, progress, upload


def perform(aws: EmbeddedAws, parameters: Parameters, run: Run) -> dict[str, Any]:
    """Run on a started engine, and return the report. Raises Stalled and SendFailed."""
    with run.phase("deploy", "build and deploy"):
        outputs = aws.deploy({"ProcessName": PROCESS, "SlotLimit": str(parameters.limit)})
    run_id = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    work = slot_requests.plan(read_dataset(), requests=parameters.requests, fail=parameters.fail, run_id=run_id)
    upload(aws, work.inputs, run)
    with run.phase("send", f"send {counted(len(work.requests), 'request')}"):
        sent = slot_requests.send(aws.client("sqs"), outputs["RequestQueueUrl"], work.requests)
    with run.phase("run", "run"):
        run.watch(lambda elapsed: progress(aws, parameters.requests, parameters.limit, elapsed))
    with run.phase("collect", "collect the records"):
        records = collect(aws, f"output/{run_id}/")
    return build(parameters, sent, records, run)


GLUE = Work("glue", "Glue", "Step Functions' and Glue's")


def tables(report: Mapping[str, Any]) -> list[Table]:
    alive = f"{report['max_glue_runs_alive']} (limit {report['parameters']['limit']})"
    return run_tables(report, GLUE, {"results in the bucket": report["results"], "most Glue runs alive": alive}, {})


def draw(report: Mapping[str, Any], path: Path) -> None:
    def summary(order: str) -> str:
        return (
            f"{len(report['workflows'])} workflows through {report['parameters']['limit']} slots, started {order}: "
            f"{report['succeeded']} succeeded, {report['failed']} failed"
        )

    draw_run(report, path, "Slotkeeper run", GLUE, summary, lambda _: (chart.BLUE, "Glue job"))


SCENARIO = Scenario(Path("build/run"), "timeline.png", draw, tables)


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
def main(requests: int, limit: int, fail: float, priorities: str, target: str) -> None:
    """Send requests through the deployed workflow on the embedded AWS, and report from AWS's own records.

    A Glue job aggregates one month of Seattle's daily weather for each request. With priorities, urgent and heavy
    requests come in between, one is cancelled, and one waits until the limit is raised. With the target `workflow`, a
    state machine does this work; a caller sends half of the requests from a Map, and collects the results. Writes
    build/run/report.json and build/run/timeline.png. Uses nothing outside this machine, and leaves nothing running.
    """
    parameters = Parameters(requests, limit, fail, priorities == "yes", target)
    if target == "workflow":
        if parameters.priorities:
            raise click.BadParameter(
                f"workflow cannot be combined with --priorities yes: choose one of them.\n{main.epilog}",
                param_hint="'--target'",
            )
        carry_out(target_scenario.SCENARIO, lambda aws, run: target_scenario.perform(aws, parameters, run))
    if not parameters.priorities:
        carry_out(SCENARIO, lambda aws, run: perform(aws, parameters, run))
    for name, given, least in (("requests", requests, MIN_REQUESTS), ("limit", limit, MIN_LIMIT)):
        if given < least:
            raise click.BadParameter(
                f"{given} is below {least}, the minimum with --priorities yes: every kind of request must be sent, and "
                f"a heavy one must leave a slot.\n{main.epilog}",
                param_hint=f"'--{name}'",
            )
    carry_out(priority_scenario.SCENARIO, lambda aws, run: priority_scenario.perform(aws, parameters, run))
