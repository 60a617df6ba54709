"""`python -m local.run`: deploy on the embedded AWS, send the requests, watch, collect, report, stop.

Exit codes: 0 all checks hold; 1 a check fails, or the run cannot go on; 2 wrong options; 130 interrupted.
"""

from __future__ import annotations

import fcntl
import json
import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape

from local.aws import EmbeddedAws, EngineError
from local.deployment import DeploymentError

from . import picture, records, sending, summary, view, watching, work
from .report import Parameters, build

RUN_DIR = Path("build/run")
WRITTEN = ("report.json", "timeline.png")
MOST_REQUESTS, MOST_SLOTS = 2000, 500
FROM_MAKE = f"from make: REQUESTS=1..{MOST_REQUESTS} LIMIT=1..{MOST_SLOTS} FAIL=0..1"
NO_TERMINAL_WIDTH = 130  # characters


class AlreadyRunning(Exception):
    """Another run uses the same folder."""


@contextmanager
def _alone() -> Iterator[None]:
    """Two runs at once would share the engine's files, the report and the picture. The lock ends with the process."""
    RUN_DIR.mkdir(parents=True, exist_ok=True)
    with (RUN_DIR / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"another run uses {RUN_DIR}: wait for its end, or interrupt it") from None
        for name in WRITTEN:  # what lies there after a run that was broken off must not pass for its result
            (RUN_DIR / name).unlink(missing_ok=True)
        yield


def _share(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    """FloatRange lets "nan" through, since it is neither below nor above anything."""
    if math.isnan(value):
        raise click.BadParameter("nan is not in the range 0.0<=x<=1.0.")
    return value


class Command(click.Command):
    """Most users never type an option of this command: they set the Makefile's variables."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        try:
            return super().parse_args(context, arguments)
        except click.UsageError as error:
            error.message += f"\n{FROM_MAKE}"
            raise


class Phases:
    """Times the phases and says each as it ends. The report has the seconds by key; the texts are for eyes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, key: str, text: str) -> Iterator[None]:
        began = time.monotonic()
        self._console.print(f"[dim]{text} ...[/]", highlight=False)
        yield
        self.seconds[key] = time.monotonic() - began
        self._console.print(f"[dim]{text}: {self.seconds[key]:.1f} s[/]", highlight=False)


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
    with phases.phase("upload", f"upload {len(todo.parts)} input files"):
        sending.upload(aws.client("s3"), bucket, todo.parts)
    with phases.phase("send", f"send {len(todo.requests)} requests"):
        sent = sending.send(aws.client("sqs"), outputs["RequestQueueUrl"], todo.requests)
    eyes = watching.Eyes(
        aws.client("stepfunctions"), aws.client("sqs"), aws.client("dynamodb"), dict(outputs), work.PROCESS
    )
    with phases.phase("run", "run"), view.for_console(console) as shown:
        watching.wait_until_over(
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


@contextmanager
def _engine(phases: Phases) -> Iterator[EmbeddedAws]:
    """The run's own engine, on a port of its own, ended whatever happens.

    A second Ctrl-C during the end is ignored: it would leave behind what the first one asked to be ended.
    """
    with phases.phase("start", "start the embedded AWS"):
        aws = EmbeddedAws.start(RUN_DIR)
    try:
        yield aws
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        with phases.phase("stop", "stop the embedded AWS"):
            aws.stop()


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
    # A pipe has no width of its own, and 80 columns break the tables' lines.
    console = Console() if sys.stdout.isatty() else Console(width=NO_TERMINAL_WIDTH)
    phases = Phases(console)
    try:
        with _alone(), _engine(phases) as aws:
            report = perform(aws, Parameters(requests, limit, fail), console, phases)
            write(report, console)
    except KeyboardInterrupt:
        console.print("\n[bold]Interrupted.[/] The embedded AWS and all it started are ended; nothing is left running.")
        sys.exit(130)
    except (AlreadyRunning, EngineError, DeploymentError, sending.SendFailed, watching.Stuck, LookupError) as error:
        console.print(f"[bold red]The run cannot go on:[/] {escape(str(error))}", highlight=False)
        sys.exit(1)
    except (BotoCoreError, ClientError) as error:
        console.print(f"[bold red]The embedded AWS refused or is gone:[/] {escape(str(error))}", highlight=False)
        console.print(f"Its log: {RUN_DIR}/engine.log")
        sys.exit(1)
    failed = [check for check in report["checks"] if not check["ok"]]
    for check in failed:
        console.print(f"[bold red]FAILS[/] {escape(check['name'])}: {escape(check['found'])}", highlight=False)
    sys.exit(1 if failed else 0)
