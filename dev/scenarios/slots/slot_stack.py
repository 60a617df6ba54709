"""The deployed stack in a run: its inputs, the current numbers, and its records at the end."""

from __future__ import annotations

from collections.abc import Mapping

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import Snapshot, counted
from dev.scenarios.runner.scenario import Run

from . import slot_records
from .slot_requests import PROCESS


def upload(aws: EmbeddedAws, inputs: Mapping[str, bytes], run: Run) -> None:
    with run.phase("upload", f"upload {counted(len(inputs), 'input file')}"):
        s3 = aws.client("s3")
        for key, body in inputs.items():
            s3.put_object(Bucket=aws.outputs["DataBucketName"], Key=key, Body=body, ContentType="text/csv")


def progress(aws: EmbeddedAws, requests: int, limit: int, elapsed: float, process: str = PROCESS) -> Snapshot:
    """The current numbers of a process.

    The queue is read first: a request that proceeds between two reads is counted twice and never missed, so the run
    does not seem to have ended.
    """
    sqs, outputs = aws.client("sqs"), aws.outputs
    waiting = queue_reading.total(sqs, outputs["RequestQueueUrl"])
    dead = queue_reading.total(sqs, outputs["RequestDeadLetterQueueUrl"])
    pages = aws.client("stepfunctions").get_paginator("list_executions")
    listed = [
        e["status"]
        for page in pages.paginate(stateMachineArn=outputs["WorkflowArn"])
        for e in page["executions"]
        if e["name"].startswith(f"{process}-")
    ]
    running, succeeded = listed.count("RUNNING"), listed.count("SUCCEEDED")
    slots, holders = slot_records.read_slots(aws.client("dynamodb"), outputs["SlotTableName"], process)
    done = len(listed) - running + dead
    return Snapshot(
        elapsed=elapsed,
        ended=done >= requests and not (waiting or running or slots),
        done=done,
        total=requests,
        gauges={"slots": (slots, limit)},
        counts={
            "waiting": waiting,
            "running": running,
            "succeeded": succeeded,
            "failed": len(listed) - running - succeeded,
            "dead-lettered": dead,
        },
        details=f"holders: {', '.join(holders) or 'none'}",
    )


def collect(aws: EmbeddedAws, prefix: str) -> slot_records.Records:
    """All records of AWS. This empties FailedRequestQueue and the dead-letter queue."""
    sqs, outputs = aws.client("sqs"), aws.outputs
    slots_in_use, holders = slot_records.read_slots(aws.client("dynamodb"), outputs["SlotTableName"], PROCESS)
    return slot_records.Records(
        executions=slot_records.read_executions(aws.client("stepfunctions"), outputs["WorkflowArn"]),
        glue_runs=slot_records.read_glue_runs(aws.client("glue"), outputs["GlueJobName"]),
        kept=slot_records.read_end_messages(sqs, outputs["FailedRequestQueueUrl"]),
        dead=slot_records.read_end_messages(sqs, outputs["RequestDeadLetterQueueUrl"]),
        still_queued=queue_reading.total(sqs, outputs["RequestQueueUrl"]),
        slots_in_use=slots_in_use,
        holders=holders,
        outputs=slot_records.read_outputs(aws.client("s3"), outputs["DataBucketName"], prefix),
    )
