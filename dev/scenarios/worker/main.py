"""`make run-worker`: deploy, send a mix of requests to a fragile downstream's worker, watch, report, stop.

Exit codes: see dev/scenarios/runner/command.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from dev.emulator.aws import EmbeddedAws
from dev.emulator.downstream import Downstream
from dev.scenarios.runner.checking import counted
from dev.scenarios.runner.command import Command, Phases, carry_out
from dev.scenarios.runner.viewing import for_console
from dev.scenarios.runner.waiting import wait_until_over

from . import mix, picture, records, sending, summary, view
from .report import Parameters, build
from .watching import Eyes

RUN_DIR = Path("build/run-worker")
WRITTEN = ("report.json", "worker.png")
MOST_REQUESTS, FEWEST_WORKERS, MOST_WORKERS = 1000, 2, 10
LEAST_SCALE, MOST_SCALE = 0.02, 1.0
FROM_MAKE = (
    f"from make: REQUESTS=1..{MOST_REQUESTS} SEED=any whole number SCALE={LEAST_SCALE:g}..{MOST_SCALE:g} "
    f"WORKERS={FEWEST_WORKERS}..{MOST_WORKERS}"
)
ONE_CALLER = (
    "1 is less than an event source of Lambda can be held to (MaximumConcurrency, 2 to 1000). What takes one caller at "
    "a time belongs on RequestQueue, with one slot: make run LIMIT=1."
)
# Seconds. SQS could delay it; but in this run, what is due later than `SCHEDULER_BEYOND` goes by EventBridge Scheduler.
RETRY_AFTER, SCHEDULER_BEYOND = 25, 20
SPARE_CONCURRENCY = 2  # above the event source's own, so that it is never throttled


def stalled_after(parameters: Parameters) -> float:
    """A schedule fires up to a minute after its time, and in a small run nothing else moves meanwhile."""
    return parameters.retry_after + 60 + 60


def collect(aws: EmbeddedAws, downstream: Downstream, eyes: Eyes, sent: Sequence[sending.Sent]) -> records.Records:
    """Everything that was written down. The dead-letter queue is emptied by it."""
    sqs, s3, outputs = aws.client("sqs"), aws.client("s3"), aws.outputs
    waiting = records.read_bookings(eyes.scheduler, outputs["RetryScheduleGroupName"], eyes.bookings)
    parts = records.read_objects(s3, outputs["DataBucketName"], records.PARTS)
    return records.Records(
        sent=sent,
        calls=downstream.calls(),
        rows=records.read_rows(eyes.dynamodb, outputs["RequestLedgerTableName"]),
        dead=records.drain(sqs, outputs["WorkDeadLetterQueueUrl"]),
        manifests=records.read_manifests(s3, outputs["DataBucketName"]),
        parts={key: content for key, (content, _) in parts.items()},
        bookings=list(eyes.bookings.values()),
        left={
            "messages": sum(records.queue_depth(sqs, outputs["WorkQueueUrl"]).values()),
            "schedules": len(waiting),
            "undelivered schedules": sum(records.queue_depth(sqs, outputs["RetryScheduleDeadLetterQueueUrl"]).values()),
        },
    )


def perform(
    aws: EmbeddedAws,
    parameters: Parameters,
    console: Console,
    phases: Phases,
    scheduler_beyond: int = SCHEDULER_BEYOND,
) -> dict[str, Any]:
    """The run on an engine that is up, with `downstream`; returns the report. Raises Stuck and SendFailed."""
    with phases.phase("deploy", "build and deploy"):
        outputs = aws.deploy(
            {
                "DeployWorker": "true",
                "WorkSeconds": str(parameters.work_seconds),
                "SchedulerBeyondSeconds": str(scheduler_beyond),
                "WorkerConcurrency": str(parameters.workers),
                "WorkerReservedConcurrency": str(parameters.workers + SPARE_CONCURRENCY),
            }
        )
    aws.client("ssm").put_parameter(
        Name=outputs["RetryPolicyParameterName"], Value=json.dumps(mix.POLICY), Type="String", Overwrite=True
    )
    requests = mix.draw(parameters.requests, parameters.seed, parameters.scale, parameters.retry_after)
    downstream = Downstream(aws.state_dir)
    with phases.phase("upload", "upload the inputs"):
        sending.upload(aws.client("s3"), outputs["DataBucketName"], requests)
    downstream.follow({request.key: request.steps for request in requests})
    with phases.phase("send", f"send {counted(parameters.requests, 'request')}"):
        sent = sending.send(aws.client("sqs"), outputs["WorkQueueUrl"], requests)
    eyes = Eyes(aws.client("sqs"), aws.client("dynamodb"), aws.client("scheduler"), downstream, outputs)
    with phases.phase("run", "run"), for_console(console, view.panel, view.plain_line) as shown:
        wait_until_over(
            lambda elapsed: eyes.look(parameters.requests, parameters.workers, elapsed),
            shown.show,
            shown.interval,
            stalled_after=stalled_after(parameters),
        )
    with phases.phase("collect", "collect the records"):
        found = collect(aws, downstream, eyes, sent)
    return build(parameters, found, phases.seconds)


def write(report: dict[str, Any], console: Console) -> None:
    (RUN_DIR / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    picture.draw(report, RUN_DIR / "worker.png")
    summary.show(console, report)
    console.print(f"{RUN_DIR}/report.json, {RUN_DIR}/worker.png", highlight=False)


class Callers(click.IntRange):
    """How many may call the downstream at once."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value).strip() == "1":
            self.fail(ONE_CALLER, param, ctx)
        return super().convert(value, param, ctx)


def _factor(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    """FloatRange lets "nan" through, since it is neither below nor above anything."""
    if math.isnan(value):
        raise click.BadParameter(f"nan is not in the range {LEAST_SCALE}<=x<={MOST_SCALE}.")
    return value


@click.command(cls=Command, epilog=FROM_MAKE, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--requests",
    type=click.IntRange(1, MOST_REQUESTS),
    default=100,
    show_default=True,
    help="How many requests to send, within ten seconds (make: REQUESTS).",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="What the mix and every failure are drawn from: the same seed gives the same ones (make: SEED).",
)
@click.option(
    "--scale",
    type=click.FloatRange(LEAST_SCALE, MOST_SCALE),
    default=0.15,
    callback=_factor,
    show_default=True,
    help="Takes the downstream's 1 to 6 seconds a call times this (make: SCALE).",
)
@click.option(
    "--workers",
    type=Callers(FEWEST_WORKERS, MOST_WORKERS),
    default=3,
    show_default=True,
    help="How many may call the downstream at once (make: WORKERS).",
)
def main(requests: int, seed: int, scale: float, workers: int) -> None:
    """Send requests to the deployed worker, whose downstream, S3, is slow and fails at random.

    Six in ten requests are normal, three in ten too slow at first, one in ten can never succeed; two in ten of all
    other attempts fail. One retry goes through EventBridge Scheduler. Writes build/run-worker/report.json and
    build/run-worker/worker.png. Nothing outside this machine is touched, and nothing is left running.
    """
    parameters = Parameters(requests, seed, scale, workers, RETRY_AFTER)

    def run(aws: EmbeddedAws, console: Console, phases: Phases) -> dict[str, Any]:
        report = perform(aws, parameters, console, phases)
        write(report, console)
        return report

    carry_out(RUN_DIR, WRITTEN, run, downstream=True)
