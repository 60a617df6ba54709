"""`make run-worker`: send requests to the deployed worker, whose downstream is slow and fails at random."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.downstream import Downstream, Outage
from dev.emulator.environment import ROOT
from dev.emulator.live_view import STALLED_AFTER, Snapshot, counted
from dev.emulator.worker_client import drain_dead_letters, read_ledger
from dev.scenarios.runner import sending
from dev.scenarios.runner.scenario import (
    Command,
    FiniteRange,
    Run,
    Scenario,
    carry_out,
    counts_text,
    figure_table,
    list_table,
    option,
)

from . import worker_mix, worker_records
from .worker_chart import CALLS, draw
from .worker_figures import Parameters, build
from .worker_mix import Request
from .worker_outage import OutageRecord, Settings
from .worker_records import Records, Sample, Schedule, SentRequest

AFTER = {"first call after": "first_call", "first success after": "first_success", "last request after": "empty"}
SHIPPED_WORK = ROOT / "functions" / "worker" / "src" / "work"
OTHER_WORK = (
    "this run needs the shipped work, and functions/worker has another: send yours with make local-up, then make work "
    "BODY='...'. Nothing was started."
)
# Seconds. SQS could delay the retry, but this run uses EventBridge Scheduler for delays above `SCHEDULER_BEYOND`.
RETRY_AFTER, SCHEDULER_BEYOND = 25, 20
FIRES_WITHIN = 60  # after a schedule's time; in a small run nothing changes until then
SPARE_CONCURRENCY = 2  # above the event source's, so that it is not throttled
SENT_WITHIN = 10.0  # seconds


@dataclass(frozen=True)
class Timing:
    """Of a run with an outage, in seconds."""

    sending: float = 60.0  # of all requests
    before: float = 20.0  # from the first request to the outage
    outage: float = 25.0
    answer: float = 0.5  # from a call in the outage to its failure


def perform(
    aws: EmbeddedAws,
    parameters: Parameters,
    run: Run,
    scheduler_beyond: int = SCHEDULER_BEYOND,
    timing: Timing | None = None,
) -> dict[str, Any]:
    """Run on a started engine with `downstream`, and return the report. Raises Stalled and SendFailed.

    `timing`: of an outage, if there is one.
    """
    with run.phase("deploy", "build and deploy"):
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
        Name=outputs["RetryPolicyParameterName"], Value=json.dumps(worker_mix.POLICY), Type="String", Overwrite=True
    )
    requests = worker_mix.draw(parameters.requests, parameters.seed, parameters.scale, parameters.retry_after)
    downstream = Downstream(aws.state_dir)
    with run.phase("upload", "upload the inputs"):
        for each in requests:
            if each.content is not None:
                aws.client("s3").put_object(Bucket=outputs["DataBucketName"], Key=each.key, Body=each.content)
    begins = time.time() + (timing.before if timing else 0.0)
    outage = Outage(begins, begins + timing.outage, timing.answer) if timing else None
    downstream.follow({request.key: request.steps for request in requests}, outage)
    sender = Sender(aws.client("sqs"), outputs["WorkQueueUrl"], requests, timing.sending if timing else SENT_WITHIN)
    observer = Observer(aws, downstream)

    def progress(elapsed: float) -> Snapshot:
        sender.send(elapsed)
        return observer.progress(parameters.requests, parameters.workers, elapsed)

    with run.phase("run", f"run, with an outage of {timing.outage:g} s after {timing.before:g} s" if timing else "run"):
        run.watch(progress, "Slotkeeper: the worker", parameters.retry_after + FIRES_WITHIN + STALLED_AFTER)
    with run.phase("collect", "collect the records"):
        records = observer.collect(sender.sent)
    if outage:
        record = OutageRecord(
            outage,
            Settings.of(worker_mix.POLICY, parameters.workers),
            records.calls,
            worker_records.read_retried(aws.state_dir / "engine.log"),
            {request.key: request.request_id for request in requests},
            [sample.at for sample in records.samples if sample.breaker == "OPEN"],
        )
        records = replace(records, outage=record)
    return build(parameters, records, run)


@dataclass
class Sender:
    """Sends the requests in their order, evenly in so many seconds."""

    sqs: Any
    queue_url: str
    requests: Sequence[Request]
    seconds: float
    sent: list[SentRequest] = field(default_factory=list)

    def send(self, elapsed: float) -> None:
        """Send those that are due so many seconds after the start. Raises SendFailed."""
        count = max(1, math.ceil(min(1.0, elapsed / self.seconds) * len(self.requests)))
        due = self.requests[len(self.sent) : count]
        answers = sending.send(self.sqs, self.queue_url, {each.request_id: {"MessageBody": each.body} for each in due})
        self.sent += [SentRequest(request, at) for request, (_, at) in zip(due, answers, strict=True)]


@dataclass
class Observer:
    """Reads the state of the run.

    Args:
        schedules: all that were read, since a schedule is deleted when it fires.
        samples: one for each call of `progress`.
    """

    aws: EmbeddedAws
    downstream: Downstream
    schedules: dict[str, Schedule] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)

    def progress(self, requests: int, limit: int, elapsed: float) -> Snapshot:
        """The current numbers.

        The schedules are read first, then the queue: a request that proceeds between two reads is counted twice and
        never missed, so the run does not seem to have ended. A message is in flight until the worker deletes it, also
        after its request has ended or its retry was scheduled.
        """
        sqs, outputs = self.aws.client("sqs"), self.aws.outputs
        scheduled = len(self._waiting_schedules())
        depth = queue_reading.depth(sqs, outputs["WorkQueueUrl"])
        dynamodb = self.aws.client("dynamodb")
        state, permitted = worker_records.read_breaker(dynamodb, outputs["DownstreamTableName"], limit)
        self.samples.append(Sample(time.time(), state, permitted, sum(depth.values())))
        rows = read_ledger(dynamodb, outputs["RequestLedgerTableName"])
        calls = self.downstream.calls()
        callers = sum(call.ended is None for call in calls)
        succeeded = sum(row.status == "SUCCEEDED" for row in rows)
        dead = queue_reading.total(sqs, outputs["WorkDeadLetterQueueUrl"])
        left = (*depth.values(), scheduled, callers)
        return Snapshot(
            elapsed=elapsed,
            ended=succeeded + dead >= requests and not any(left),
            done=succeeded + dead,
            total=requests,
            gauges={"callers": (callers, limit)},
            counts={
                "permitted": permitted,
                "breaker": state,
                "waiting": depth["visible"],
                "in flight": depth["in flight"],
                "delayed": depth["delayed"],
                "scheduled": scheduled,
                "succeeded": succeeded,
                "dead-lettered": dead,
            },
            details=counted(len(calls), "call"),
        )

    def collect(self, sent: Sequence[SentRequest]) -> Records:
        """All records. This empties the dead-letter queue."""
        sqs, s3, outputs = self.aws.client("sqs"), self.aws.client("s3"), self.aws.outputs
        waiting = self._waiting_schedules()
        parts = worker_records.read_objects(s3, outputs["DataBucketName"], worker_records.PARTS)
        return Records(
            sent=sent,
            calls=self.downstream.calls(),
            rows=read_ledger(self.aws.client("dynamodb"), outputs["RequestLedgerTableName"]),
            dead=drain_dead_letters(sqs, outputs["WorkDeadLetterQueueUrl"]),
            manifests=worker_records.read_manifests(s3, outputs["DataBucketName"]),
            parts={key: content for key, (content, _) in parts.items()},
            schedules=list(self.schedules.values()),
            left={
                "messages": queue_reading.total(sqs, outputs["WorkQueueUrl"]),
                "schedules": len(waiting),
                "undelivered schedules": queue_reading.total(sqs, outputs["RetryScheduleDeadLetterQueueUrl"]),
            },
            samples=self.samples,
        )

    def _waiting_schedules(self) -> list[Schedule]:
        group = self.aws.outputs["RetryScheduleGroupName"]
        waiting = worker_records.read_schedules(self.aws.client("scheduler"), group, self.schedules)
        self.schedules |= {schedule.name: schedule for schedule in waiting}
        return waiting


# ----------------------------------------------------------------------------------------------------- report, shown


def _outage_rows(outage: Mapping[str, Any]) -> dict[str, str]:
    after = [f"{name} {outage[key]:.1f} s" for name, key in AFTER.items() if outage[key] is not None]
    return {
        "outage": f"from {outage['began']:.1f} to {outage['ended']:.1f} s: {counted(outage['calls'], 'call')}, "
        f"{counted(outage['counted'], 'attempt')} used up",
        "after the outage": ", ".join(after),
    }


def tables(report: Mapping[str, Any]) -> list[Table]:
    parameters = report["parameters"]
    answers = (f"{CALLS[answer][1] if answer in CALLS else answer}: {n}" for answer, n in report["answers"].items())
    rows = {
        "succeeded": f"{report['succeeded']} of {parameters['requests']}",
        "dead-lettered": report["dead_lettered"],
        "without an end": report["nowhere"],
        "most concurrent callers": f"{report['most_callers']} of {parameters['workers']}",
        "calls by their answer": "; ".join(answers) or "none",
        "total time": f"{report['total_seconds']:.1f} s",
        **(_outage_rows(report["outage"]) if report["outage"] else {}),
    }
    attempts = report["attempts"]
    kinds = (
        (kind, counts_text(ends).replace("_", "-"), counts_text(attempts[kind], "{count} in {name}"))
        for kind, ends in report["kinds"].items()
    )
    return [
        figure_table("The run, by the records of S3, the queues and the ledger", rows),
        *list_table("By kind", ("kind", "ended", "attempts"), kinds),
    ]


SCENARIO = Scenario(Path("build/run-worker"), "worker.png", draw, tables, {"downstream": True})


@click.command(cls=Command)
@option("--requests", click.IntRange(1, 1000), 100, "Number of requests, sent within ten seconds")
@option("--seed", int, 1, "Draws the mix and every failure; the same seed gives the same run")
@option("--scale", FiniteRange(0.02, 1.0), 0.15, "Factor for the downstream's 1 to 6 seconds per call")
@option(
    "--workers",
    click.IntRange(2, 10),
    3,
    "Concurrent callers of the downstream. Lambda's event source has two or more; for one caller: make run LIMIT=1",
)
@option("--outage", click.Choice(["no", "yes"]), "no", "yes: the downstream fails for 25 seconds")
def main(requests: int, seed: int, scale: float, workers: int, outage: str) -> None:
    """Send requests to the deployed worker, whose downstream, S3, is slow and fails at random.

    Six in ten requests are normal, three in ten too slow at first, one in ten can never succeed; two in ten of all
    other attempts fail. EventBridge Scheduler sends one retry. With an outage, the requests are sent in a minute, and
    from its 20th to its 45th second S3 fails all calls. Writes build/run-worker/report.json and
    build/run-worker/worker.png. Uses nothing outside this machine, and leaves nothing running.
    """
    if not SHIPPED_WORK.exists():
        raise click.ClickException(OTHER_WORK)
    timing = Timing() if outage == "yes" else None
    parameters = Parameters(requests, seed, scale, workers, RETRY_AFTER, timing is not None)
    carry_out(SCENARIO, lambda aws, run: perform(aws, parameters, run, timing=timing))
