"""`python -m dev.scenarios.slots`: deploy on the embedded AWS, send the requests, watch, collect, report, stop.

Exit codes: see dev/scenarios/runner/command.py.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from dev.emulator.aws import EmbeddedAws
from dev.scenarios.runner.checking import counted
from dev.scenarios.runner.command import Command, Phases, carry_out
from dev.scenarios.runner.viewing import for_console
from dev.scenarios.runner.waiting import wait_until_over

from . import picture, records, sending, summary, view, watching, work
from .report import Parameters, build

RUN_DIR = Path("build/run")
WRITTEN = ("report.json", "timeline.png")
MOST_REQUESTS, MOST_SLOTS = 2000, 500
FROM_MAKE = f"from make: REQUESTS=1..{MOST_REQUESTS} LIMIT=1..{MOST_SLOTS} FAIL=0..1"


def _share(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    """FloatRange lets "nan" through, since it is neither below nor above anything."""
    if math.isnan(value):
        raise click.BadParameter("nan is not in the range 0.0<=x<=1.0.")
    return value


def collect(aws: EmbeddedAws, prefix: str) -> records.Records:
    """Everything AWS recorded. FailedRequestQueue and the dead-letter queue are emptied by it."""
    sqs, outputs = aws.client("sqs"), aws.outputs
    slots_in_use, holders = records.read_slots(aws.client("dynamodb"), outputs["SlotTableName"], work.PROCESS)
    return records.Records(
        executions=records.read_executions(aws.client("stepfunctions"), outputs["WorkflowArn"]),
        glue_runs=records.read_glue_runs(aws.client("glue"), outputs["GlueJobName"]),
        kept=records.drain(sqs, outputs["FailedRequestQueueUrl"]),
        dead=records.drain(sqs, outputs["RequestDeadLetterQueueUrl"]),
        still_queued=records.queue_depth(sqs, outputs["RequestQueueUrl"]),
        slots_in_use=slots_in_use,
        holders=holders,
        outputs=records.read_outputs(aws.client("s3"), outputs["DataBucketName"], prefix),
    )


def perform(aws: EmbeddedAws, parameters: Parameters, console: Console, phases: Phases) -> dict[str, Any]:
    """The run on an engine that is up; returns the report. Raises Stuck and SendFailed."""
    with phases.phase("deploy", "build and deploy"):
        outputs = aws.deploy({"ProcessName": work.PROCESS, "SlotLimit": str(parameters.limit)})
    run_id = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    bucket = outputs["DataBucketName"]
    todo = work.plan(work.read_dataset(), requests=parameters.requests, fail=parameters.fail, run_id=run_id)
    with phases.phase("upload", f"upload {counted(len(todo.parts), 'input file')}"):
        sending.upload(aws.client("s3"), bucket, todo.parts)
    with phases.phase("send", f"send {counted(len(todo.requests), 'request')}"):
        sent = sending.send(aws.client("sqs"), outputs["RequestQueueUrl"], todo.requests)
    eyes = watching.Eyes(
        aws.client("stepfunctions"), aws.client("sqs"), aws.client("dynamodb"), dict(outputs), work.PROCESS
    )
    with phases.phase("run", "run"), for_console(console, view.panel, view.plain_line) as shown:
        wait_until_over(
            lambda elapsed: eyes.look(parameters.requests, parameters.limit, elapsed), shown.show, shown.interval
        )
    with phases.phase("collect", "collect the records"):
        found = collect(aws, f"output/{run_id}/")
    return build(parameters, sent, found, phases.seconds)


def write(report: dict[str, Any], console: Console) -> None:
    (RUN_DIR / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    picture.draw(report, RUN_DIR / "timeline.png")
    summary.show(console, report)
    console.print(f"{RUN_DIR}/report.json, {RUN_DIR}/timeline.png", highlight=False)


@click.command(cls=Command, epilog=FROM_MAKE, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--requests",
    type=click.IntRange(1, MOST_REQUESTS),
    default=40,
    show_default=True,
    help="How many requests to send (make: REQUESTS).",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MOST_SLOTS),
    default=3,
    show_default=True,
    help="How many may run at once (make: LIMIT).",
)
@click.option(
    "--fail",
    type=click.FloatRange(0.0, 1.0),
    default=0.0,
    callback=_share,
    show_default=True,
    help="Share of the requests whose input is damaged, so that their job fails (above 0: at least one; make: FAIL).",
)
def main(requests: int, limit: int, fail: float) -> None:
    """Send real requests through the deployed workflow on the embedded AWS, and report from AWS's own records.

    Each request sums up one month of Seattle's daily weather in a Glue job. Writes build/run/report.json and
    build/run/timeline.png. Nothing outside this machine is touched, and nothing is left running.
    """

    def run(aws: EmbeddedAws, console: Console, phases: Phases) -> dict[str, Any]:
        report = perform(aws, Parameters(requests, limit, fail), console, phases)
        write(report, console)
        return report

    carry_out(RUN_DIR, WRITTEN, run)
