"""`make run-worker`: send requests to the deployed worker, whose downstream is slow and fails at random."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.downstream import Downstream
from dev.emulator.live_view import Snapshot, counted
from dev.emulator.worker_client import drain_dead_letters, read_ledger
from dev.scenarios.runner import chart, sending
from dev.scenarios.runner.chart import Bar, Point
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
from .worker_figures import Parameters, build
from .worker_mix import Request
from .worker_records import Records, Schedule, SentRequest

ONE_CALLER = (
    "1 is below the minimum of Lambda's event source (MaximumConcurrency, 2 to 1000). For a downstream with one caller "
    "use RequestQueue with one slot: make run LIMIT=1."
)
# Seconds. SQS could delay the retry, but this run uses EventBridge Scheduler for delays above `SCHEDULER_BEYOND`.
RETRY_AFTER, SCHEDULER_BEYOND = 25, 20
SPARE_CONCURRENCY = 2  # above the event source's, so that it is not throttled
SENT_WITHIN = 10.0  # seconds
CALLS = {  # answer: colour, meaning
    "200": (chart.BLUE, "answered"),
    "gone": (chart.VERMILLION, "too slow, given up"),
    "503": (chart.AMBER, "503 SlowDown"),
    "500": (chart.ORANGE, "500 InternalError"),
    "dropped": (chart.INK, "connection dropped"),
    "404": (chart.GREY, "404, no such input"),
    "None": (chart.GREY, "not ended"),
}
ENDS = {"succeeded": (chart.GREEN, "published", "o"), "dead_lettered": (chart.VERMILLION, "dead-lettered", "x")}
EXPECTED_END = {"normal": "succeeded", "slow": "succeeded", "poison": "dead_lettered"}


def stalled_after(parameters: Parameters) -> float:
    """In a small run nothing changes until the schedule fires, up to a minute after its time."""
    return parameters.retry_after + 60 + 60


def perform(
    aws: EmbeddedAws, parameters: Parameters, run: Run, scheduler_beyond: int = SCHEDULER_BEYOND
) -> dict[str, Any]:
    """Run on a started engine with `downstream`, and return the report. Raises Stalled and SendFailed."""
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
            lambda elapsed: observer.progress(parameters.requests, parameters.workers, elapsed),
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
    """Within `SENT_WITHIN`. Raises SendFailed."""
    entries = {each.request_id: {"MessageBody": each.body} for each in requests}
    sent = sending.send(sqs, queue_url, entries, SENT_WITHIN)
    return [SentRequest(request, at) for request, (_, at) in zip(requests, sent, strict=True)]


@dataclass
class Observer:
    """Reads the state of the run. `schedules`: all that were read, since a schedule is deleted when it fires."""

    aws: EmbeddedAws
    downstream: Downstream
    schedules: dict[str, Schedule] = field(default_factory=dict)

    def progress(self, requests: int, limit: int, elapsed: float) -> Snapshot:
        """The current numbers.

        The schedules are read first, then the queue: a request that proceeds between two reads is counted twice and
        never missed, so the run does not seem to have ended. A message is in flight until the worker deletes it, also
        after its request has ended or its retry was scheduled.
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
        )

    def _waiting_schedules(self) -> list[Schedule]:
        group = self.aws.outputs["RetryScheduleGroupName"]
        waiting = worker_records.read_schedules(self.aws.client("scheduler"), group, self.schedules)
        self.schedules |= {schedule.name: schedule for schedule in waiting}
        return waiting


# ----------------------------------------------------------------------------------------------------- report, shown


def _spread(spread: Mapping[str, Any]) -> str:
    return f"{spread['p50']:.1f} / {spread['p90']:.1f} / {spread['max']:.1f} s" if spread["count"] else "none"


def tables(report: Mapping[str, Any]) -> list[Table]:
    parameters = report["parameters"]
    answers = (f"{CALLS[answer][1] if answer in CALLS else answer}: {n}" for answer, n in report["answers"].items())
    due = (f"{each['request_id']} at {each['due']:.0f} s" for each in report["schedules"])
    rows = {
        "succeeded": f"{report['succeeded']} of {parameters['requests']}",
        "dead-lettered": f"{report['dead_lettered']} ({counts_text(report['codes'])})",
        "without an end": report["nowhere"],
        "most concurrent callers": f"{report['most_callers']} of {parameters['workers']}",
        "most requests under way": f"{report['most_under_way']} between their first and last call",
        "calls by their answer": "; ".join(answers) or "none",
        "retries by Scheduler": ", ".join(due) or "none",
        "total time": f"{report['total_seconds']:.1f} s",
    }
    kinds = (
        (
            kind,
            counts_text(ends).replace("_", "-"),
            counts_text(report["attempts"][kind], "{count} in {name}"),
            *(_spread(report["waits"][kind][until]) for until in ("first_call", "end")),
        )
        for kind, ends in report["kinds"].items()
    )
    unexpected = (
        (
            each["request_id"],
            each["kind"],
            each["end"].replace("_", "-"),
            "; ".join(f"{message['code']}: {message['reason']}" for message in each["dead_letters"]),
            each["attempts"],
        )
        for each in report["fates"]
        if each["end"] != EXPECTED_END[each["kind"]]
    )
    title = "By kind; waits are p50 / p90 / max, from the sending"
    return [
        figure_table("The run, by the records of S3, the queues and the ledger", rows),
        *list_table(title, ("kind", "ended", "attempts", "to its first call", "to its end"), kinds),
        *list_table("Unexpected ends", ("request", "kind", "end", "dead letter", "attempts"), unexpected),
    ]


def draw(report: Mapping[str, Any], path: Path) -> None:
    """The concurrent callers, and each request's calls and end, by kind."""
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
        chart.limit_panel(
            f"At most {most} concurrent callers: {'within' if most <= callers else 'ABOVE'} the limit of {callers}",
            "callers",
            intervals,
            callers,
            "calls",
            end,
        ),
        chart.lanes_panel(
            f"{counted(len(requests), 'request')}: {report['succeeded']} succeeded, {report['dead_lettered']} "
            f"dead-lettered{f', {report["nowhere"]} WITHOUT an end' if report['nowhere'] else ''}",
            "normal, slow, poison",
            len(requests),
            bars,
            ends,
        ),
    ]
    chart.draw(path, "Slotkeeper: the worker", "seconds since the first request was sent", end, panels)


SCENARIO = Scenario(Path("build/run-worker"), "worker.png", draw, tables, {"downstream": True})


class Callers(click.IntRange):
    """The number of concurrent callers of the downstream."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value).strip() == "1":
            self.fail(ONE_CALLER, param, ctx)
        return super().convert(value, param, ctx)


@click.command(cls=Command)
@option("--requests", click.IntRange(1, 1000), 100, "Number of requests, sent within ten seconds")
@option("--seed", int, 1, "Draws the mix and every failure; the same seed gives the same run")
@option("--scale", FiniteRange(0.02, 1.0), 0.15, "Factor for the downstream's 1 to 6 seconds per call")
@option("--workers", Callers(2, 10), 3, "Concurrent callers of the downstream")
def main(requests: int, seed: int, scale: float, workers: int) -> None:
    """Send requests to the deployed worker, whose downstream, S3, is slow and fails at random.

    Six in ten requests are normal, three in ten too slow at first, one in ten can never succeed; two in ten of all
    other attempts fail. EventBridge Scheduler sends one retry. Writes build/run-worker/report.json and
    build/run-worker/worker.png. Uses nothing outside this machine, and leaves nothing running.
    """
    parameters = Parameters(requests, seed, scale, workers, RETRY_AFTER)
    carry_out(SCENARIO, lambda aws, run: perform(aws, parameters, run))
