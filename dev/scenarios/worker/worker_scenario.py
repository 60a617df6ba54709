"""`make run-worker`: send requests to a downstream that takes three callers, is slow and fails at random; report.

Exit codes: see dev/scenarios/runner/scenario.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import batched
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.downstream import Downstream
from dev.emulator.live_view import Snapshot, counted
from dev.emulator.worker_client import drain_dead_letters, read_ledger
from dev.scenarios.runner import chart
from dev.scenarios.runner.chart import Bar, Panel, Point
from dev.scenarios.runner.intervals import steps
from dev.scenarios.runner.scenario import (
    Command,
    FiniteRange,
    Run,
    Scenario,
    carry_out,
    figure_table,
    list_table,
    option,
)
from dev.scenarios.runner.sending import BATCH, send_batch

from . import worker_mix, worker_records
from .worker_figures import Parameters, build
from .worker_mix import Request
from .worker_records import Records, Schedule, SentRequest

ONE_CALLER = (
    "1 is less than an event source of Lambda can be held to (MaximumConcurrency, 2 to 1000). What takes one caller at "
    "a time belongs on RequestQueue, with one slot: make run LIMIT=1."
)
# Seconds. SQS could delay it; but in this run, what is due later than `SCHEDULER_BEYOND` goes by EventBridge Scheduler.
RETRY_AFTER, SCHEDULER_BEYOND = 25, 20
SPARE_CONCURRENCY = 2  # above the event source's own, so that it is never throttled
SENT_WITHIN = 10.0  # seconds
CALLS = {  # how a call ended: colour, meaning
    "200": (chart.BLUE, "answered"),
    "gone": (chart.VERMILLION, "too slow, given up"),
    "503": (chart.AMBER, "503 SlowDown"),
    "500": (chart.ORANGE, "500 InternalError"),
    "dropped": (chart.INK, "connection dropped"),
    "404": (chart.GREY, "404, no such input"),
    "None": (chart.GREY, "never ended"),
}
ENDS = {"succeeded": (chart.GREEN, "published", "o"), "dead_lettered": (chart.VERMILLION, "dead-lettered", "x")}
EXPECTED_END = {"normal": "succeeded", "slow": "succeeded", "poison": "dead_lettered"}


def stalled_after(parameters: Parameters) -> float:
    """A schedule fires up to a minute after its time, and in a small run nothing else moves meanwhile."""
    return parameters.retry_after + 60 + 60


def perform(
    aws: EmbeddedAws, parameters: Parameters, run: Run, scheduler_beyond: int = SCHEDULER_BEYOND
) -> dict[str, Any]:
    """The run on an engine that is up, with `downstream`; returns the report. Raises Stalled and SendFailed."""
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
        upload(aws.client("s3"), outputs["DataBucketName"], requests)
    downstream.follow({request.key: request.steps for request in requests})
    with run.phase("send", f"send {counted(parameters.requests, 'request')}"):
        sent = send(aws.client("sqs"), outputs["WorkQueueUrl"], requests)
    observer = Observer(aws, downstream)
    with run.phase("run", "run"):
        run.watch(
            lambda elapsed: observer.look(parameters.requests, parameters.workers, elapsed),
            "Slotkeeper: the worker",
            stalled_after(parameters),
        )
    with run.phase("collect", "collect the records"):
        records = observer.collect(sent)
    return build(parameters, records, run)


def upload(s3: Any, bucket: str, requests: Sequence[Request]) -> None:
    for request in requests:
        if request.content is not None:
            s3.put_object(Bucket=bucket, Key=request.key, Body=request.content, ContentType="application/x-ndjson")


def send(sqs: Any, queue_url: str, requests: Sequence[Request]) -> list[SentRequest]:
    """Ten a call, a second apart, or closer together if it would take longer than `SENT_WITHIN`. Raises SendFailed."""
    batches = list(batched(requests, BATCH, strict=False))
    apart = min(1.0, SENT_WITHIN / len(batches))
    started = time.monotonic()
    sent: list[SentRequest] = []
    for number, batch in enumerate(batches):
        time.sleep(max(0.0, started + number * apart - time.monotonic()))
        at = time.time()
        send_batch(sqs, queue_url, {each.request_id: {"MessageBody": each.body} for each in batch}, len(sent))
        sent += [SentRequest(request, at) for request in batch]
    return sent


@dataclass
class Observer:
    """Reads the run from outside, and keeps the schedules that it has read, which are gone afterwards."""

    aws: EmbeddedAws
    downstream: Downstream
    schedules: dict[str, Schedule] = field(default_factory=dict)

    def look(self, requests: int, limit: int, elapsed: float) -> Snapshot:
        """The schedules are read first, then the queue: what moves on between the reads is counted twice, never not at
        all, and cannot make the run look ended.

        A message stays in flight until the worker has deleted it: its request may have ended by then, or its retry be
        scheduled, and counts there too.
        """
        sqs, outputs = self.aws.client("sqs"), self.aws.outputs
        scheduled = len(self._waiting_schedules())
        depth = queue_reading.depth(sqs, outputs["WorkQueueUrl"])
        rows = read_ledger(self.aws.client("dynamodb"), outputs["RequestLedgerTableName"])
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
        """Everything that was recorded. The dead-letter queue is emptied by it."""
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
        )

    def _waiting_schedules(self) -> list[Schedule]:
        group = self.aws.outputs["RetryScheduleGroupName"]
        waiting = worker_records.read_schedules(self.aws.client("scheduler"), group, self.schedules)
        self.schedules |= {schedule.name: schedule for schedule in waiting}
        return waiting


# ----------------------------------------------------------------------------------------------------- report, shown


def _spread(spread: Mapping[str, Any]) -> str:
    return f"{spread['p50']:.1f} / {spread['p90']:.1f} / {spread['max']:.1f} s" if spread["count"] else "none"


def _tally(counts: Mapping[str, int], form: str = "{count} {name}") -> str:
    return ", ".join(form.format(count=count, name=name) for name, count in counts.items()) or "none"


def tables(report: Mapping[str, Any]) -> list[Table]:
    parameters, used = report["parameters"], report["places_used"]
    answers = (f"{CALLS[answer][1] if answer in CALLS else answer}: {n}" for answer, n in report["answers"].items())
    due = (f"{each['request_id']} at {each['due']:.0f} s" for each in report["schedules"])
    rows = {
        "succeeded": f"{report['succeeded']} of {parameters['requests']}",
        "dead-lettered": f"{report['dead_lettered']} ({_tally(report['codes'])})",
        "ended nowhere": report["nowhere"],
        "most callers at once": f"{report['most_callers']} of {parameters['workers']}",
        "most requests under way": f"{report['most_under_way']} between their first call and their last",
        "calls by their answer": "; ".join(answers) or "none",
        "callers' time in calls": "no request waited" if used is None else f"{used:.0%}, while a request waited",
        "retries by Scheduler": ", ".join(due) or "none",
        "total time": f"{report['total_seconds']:.1f} s",
    }
    kinds = (
        (
            kind,
            _tally(ends).replace("_", "-"),
            _tally(report["attempts"][kind], "{count} in {name}"),
            *(_spread(report["waits"][kind][until]) for until in ("first_call", "end")),
        )
        for kind, ends in report["kinds"].items()
    )
    unexpected = (
        (
            each["request_id"],
            each["kind"],
            each["end"].replace("_", "-"),
            "; ".join(f"{letter['code']}: {letter['reason']}" for letter in each["dead_letters"]),
            each["attempts"],
        )
        for each in report["fates"]
        if each["end"] != EXPECTED_END[each["kind"]]
    )
    title = "By kind; waits are p50 / p90 / max, from when a request was sent"
    return [
        figure_table("The run, by the records of S3, the queues and the ledger", rows),
        *list_table(title, ("kind", "ended", "attempts", "to its first call", "to its end"), kinds),
        *list_table("Unexpected ends", ("request", "kind", "end", "dead letter", "attempts"), unexpected),
    ]


def draw(report: Mapping[str, Any], path: Path) -> None:
    """How many called at once, and each request's calls and end, by kind."""
    end, callers, most = report["total_seconds"], report["parameters"]["workers"], report["most_callers"]
    requests = sorted(report["fates"], key=lambda each: (list(EXPECTED_END).index(each["kind"]), each["sent"]))
    intervals, bars, ends = [], [], []
    for lane, request in enumerate(requests, 1):
        stopped = end if request["ended"] is None else request["ended"]
        bars.append(Bar(lane, request["sent"], stopped, chart.LIGHT, "waiting: queued, delayed, scheduled"))
        for call in request["calls"]:
            intervals.append((call["began"], end if call["ended"] is None else call["ended"]))
            bars.append(Bar(lane, *intervals[-1], *CALLS.get(str(call["answer"]), (chart.GREY, "other answers"))))
        if request["end"] in ENDS:
            color, label, marker = ENDS[request["end"]]
            ends.append(Point(request["ended"], lane, color, label, marker))
    panels = [
        Panel(
            f"The downstream takes {callers} callers at once, and {'had' if most <= callers else 'HAD'} at most {most}",
            "callers",
            1.5,
            [
                lambda axes: chart.draw_steps(
                    axes, [(0.0, 0), *steps(intervals)], end, chart.SKY, "calls", filled=True
                ),
                lambda axes: chart.draw_limit(axes, callers, most),
            ],
        ),
        Panel(
            f"{counted(len(requests), 'request')}: {report['succeeded']} succeeded, {report['dead_lettered']} "
            f"dead-lettered{f', {report["nowhere"]} ended NOWHERE' if report['nowhere'] else ''}",
            "normal, slow, poison",
            chart.lane_height(len(requests)),
            [lambda axes: chart.draw_lanes(axes, len(requests), bars, ends)],
        ),
    ]
    chart.draw(path, "Slotkeeper: the worker", "seconds since the first request was sent", end, panels)


SCENARIO = Scenario(Path("build/run-worker"), "worker.png", draw, tables, {"downstream": True})


class Callers(click.IntRange):
    """How many may call the downstream at once."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value).strip() == "1":
            self.fail(ONE_CALLER, param, ctx)
        return super().convert(value, param, ctx)


@click.command(cls=Command)
@option("--requests", click.IntRange(1, 1000), 100, "How many requests to send, within ten seconds")
@option("--seed", int, 1, "What the mix and every failure are drawn from: the same seed gives the same ones")
@option("--scale", FiniteRange(0.02, 1.0), 0.15, "Takes the downstream's 1 to 6 seconds a call times this")
@option("--workers", Callers(2, 10), 3, "How many may call the downstream at once")
def main(requests: int, seed: int, scale: float, workers: int) -> None:
    """Send requests to the deployed worker, whose downstream, S3, is slow and fails at random.

    Six in ten requests are normal, three in ten too slow at first, one in ten can never succeed; two in ten of all
    other attempts fail. One retry goes through EventBridge Scheduler. Writes build/run-worker/report.json and
    build/run-worker/worker.png. Nothing outside this machine is touched, and nothing is left running.
    """
    parameters = Parameters(requests, seed, scale, workers, RETRY_AFTER)
    carry_out(SCENARIO, lambda aws, run: perform(aws, parameters, run))
