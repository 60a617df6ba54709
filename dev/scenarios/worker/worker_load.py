"""The load of `make run-worker`: requests to the deployed worker, whose downstream is slow and fails at random."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.downstream import Downstream, Outage
from dev.emulator.environment import ROOT
from dev.emulator.live_view import Snapshot, counted, watch
from dev.emulator.worker_client import drain_dead_letters, read_ledger
from dev.scenarios.runner.scenario import Run, Scenario, send_all

from . import worker_mix, worker_records
from .worker_checks import Parameters
from .worker_records import Records, SentRequest

SHIPPED_WORK = ROOT / "functions" / "worker" / "src" / "work"
OTHER_WORK = (
    "this run needs the shipped work, and functions/worker has another: send yours with make local-up, then make work "
    "BODY='...'. Nothing was started."
)
SPARE_CONCURRENCY = 2  # above the event source's, so that it is not throttled
SENT_WITHIN = 10.0  # seconds


@dataclass(frozen=True)
class Timing:
    """Of a run with an outage, in seconds."""

    sending: float = 60.0  # of all requests
    before: float = 20.0  # from the first request to the outage
    outage: float = 25.0
    answer: float = 0.5  # from a call in the outage to its failure


def scenario(parameters: Parameters) -> Scenario:
    """What `make run-worker` starts."""
    stack = {
        "DeployWorker": "true",
        "WorkSeconds": str(parameters.work_seconds),
        "WorkerConcurrency": str(parameters.workers),
        "WorkerReservedConcurrency": str(parameters.workers + SPARE_CONCURRENCY),
    }
    return Scenario(Path("build/run-worker"), stack, {"downstream": True})


def work_off(aws: EmbeddedAws, parameters: Parameters, run: Run, timing: Timing | None = None) -> Records:
    """Send the requests, and wait until each has ended; return the records. Raises Stalled and CannotContinue.

    `timing`: of an outage, if there is one.
    """
    outputs = aws.outputs
    aws.client("ssm").put_parameter(
        Name=outputs["RetryPolicyParameterName"], Value=json.dumps(worker_mix.POLICY), Type="String", Overwrite=True
    )
    requests = worker_mix.draw(parameters.requests, parameters.seed, parameters.scale)
    downstream = Downstream(aws.state_dir)
    with run.phase("upload", "upload the inputs"):
        for each in requests:
            if each.content is not None:
                aws.client("s3").put_object(Bucket=outputs["DataBucketName"], Key=each.key, Body=each.content)
    begins = time.time() + (timing.before if timing else 0.0)
    outage = Outage(begins, begins + timing.outage, timing.answer) if timing else None
    downstream.follow({request.key: request.steps for request in requests}, outage)
    sent: list[SentRequest] = []

    def progress(elapsed: float) -> Snapshot:
        """Send the requests that are due, in their order and evenly; the current numbers."""
        share = min(1.0, elapsed / (timing.sending if timing else SENT_WITHIN))
        due = requests[len(sent) : max(1, math.ceil(share * len(requests)))]
        entries = {each.request_id: {"MessageBody": each.body} for each in due}
        answers = send_all(aws.client("sqs"), outputs["WorkQueueUrl"], entries)
        sent.extend(SentRequest(request, at) for request, (_, at) in zip(due, answers, strict=True))
        return current(aws, downstream, parameters, elapsed)

    with run.phase("run", f"run, with an outage of {timing.outage:g} s after {timing.before:g} s" if timing else "run"):
        watch(run.console, progress, "Slotkeeper: the worker")
    with run.phase("collect", "collect the records"):
        return replace(collect(aws, downstream, sent), outage=outage)


def current(aws: EmbeddedAws, downstream: Downstream, parameters: Parameters, elapsed: float) -> Snapshot:
    """The current numbers.

    The queue is read first: a request that proceeds between two reads is counted twice and never missed, so the run
    does not seem to have ended. A message is in flight until the worker deletes it, also after its request has ended.
    """
    sqs, outputs = aws.client("sqs"), aws.outputs
    depth = queue_reading.depth(sqs, outputs["WorkQueueUrl"])
    rows = read_ledger(aws.client("dynamodb"), outputs["RequestLedgerTableName"])
    calls = downstream.calls()
    callers = sum(call.ended is None for call in calls)
    succeeded = sum(row.status == "SUCCEEDED" for row in rows)
    dead = queue_reading.total(sqs, outputs["WorkDeadLetterQueueUrl"])
    done, total = succeeded + dead, parameters.requests
    return Snapshot(
        elapsed=elapsed,
        ended=done >= total and not any((*depth.values(), callers)),
        done=done,
        total=total,
        gauges={"callers": (callers, parameters.workers)},
        counts={**depth, "succeeded": succeeded, "dead-lettered": dead},
        details=counted(len(calls), "call"),
    )


def collect(aws: EmbeddedAws, downstream: Downstream, sent: Sequence[SentRequest]) -> Records:
    """All records. This empties the dead-letter queue."""
    sqs, outputs = aws.client("sqs"), aws.outputs
    schedules = aws.client("scheduler").list_schedules(GroupName=outputs["RetryScheduleGroupName"])["Schedules"]
    return Records(
        sent=sent,
        calls=downstream.calls(),
        rows=read_ledger(aws.client("dynamodb"), outputs["RequestLedgerTableName"]),
        dead=drain_dead_letters(sqs, outputs["WorkDeadLetterQueueUrl"]),
        manifests=worker_records.read_manifests(aws.client("s3"), outputs["DataBucketName"]),
        left={
            "messages": queue_reading.total(sqs, outputs["WorkQueueUrl"]),
            "schedules": len(schedules),
            "undelivered schedules": queue_reading.total(sqs, outputs["RetryScheduleDeadLetterQueueUrl"]),
        },
    )
