"""The deployed stack in a run: its inputs, the current numbers, and what it has left at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import Snapshot, counted
from dev.scenarios.runner import audit
from dev.scenarios.runner.claims import Claim, judge
from dev.scenarios.runner.scenario import CannotContinue, Run
from slotkeeper.slots.process import Process
from slotkeeper.slots.protocol import Slots
from slotkeeper_cli.audit.work_history import GLUE_RUN, AuditBounds, Sending, WholeRun, WorkHistory

from .item_journal import Journal
from .slot_report import SlotsOfRun
from .slot_requests import PROCESS, SentRequest

# Seconds. A wake takes a fraction of a second, and some on a busy machine. Without one, a message is hidden for 225.
BOUNDS = AuditBounds(free_slot=60.0)


def upload(aws: EmbeddedAws, inputs: Mapping[str, bytes], run: Run) -> None:
    with run.phase("upload", f"upload {counted(len(inputs), 'input file')}"):
        s3 = aws.client("s3")
        for key, body in inputs.items():
            s3.put_object(Bucket=aws.outputs["DataBucketName"], Key=key, Body=body, ContentType="text/csv")


def item_of(aws: EmbeddedAws, process: str) -> Process:
    """The process's item, by a consistent read. Raises CannotContinue without an item."""
    seen = Slots(aws.client("dynamodb"), aws.outputs["SlotTableName"]).read(process)
    if seen is None:
        raise CannotContinue(f"process {process} has no item in SlotTable: was it removed during the run?")
    return seen


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
    item = item_of(aws, process)
    done = len(listed) - running + dead
    return Snapshot(
        elapsed=elapsed,
        ended=done >= requests and not (waiting or running or item.slots_in_use),
        done=done,
        total=requests,
        gauges={"slots": (item.slots_in_use, limit)},
        counts={
            "waiting": waiting,
            "running": running,
            "succeeded": succeeded,
            "failed": len(listed) - running - succeeded,
            "dead-lettered": dead,
        },
        details=f"holders: {', '.join(sorted(item.holders)) or 'none'}",
    )


def collect(aws: EmbeddedAws, sent: Sequence[Sending], process: str = PROCESS, kind: str = GLUE_RUN) -> SlotsOfRun:
    """What a process has left, with each version of its item if the engine wrote them."""
    journal = Journal(aws.state_dir / "journal.jsonl", aws.outputs["SlotTableName"])
    journal.read()
    items = [item for item in journal.changes if item.process == process]
    return SlotsOfRun(process, kind, audit.read(aws, sent, WholeRun(audit.versions(items)), BOUNDS, process), items)


def outputs_of(aws: EmbeddedAws, prefix: str) -> set[str]:
    """The keys of the results in the data bucket."""
    pages = aws.client("s3").get_paginator("list_objects_v2")
    bucket = aws.outputs["DataBucketName"]
    return {each["Key"] for page in pages.paginate(Bucket=bucket, Prefix=prefix) for each in page.get("Contents", [])}


def results_are_those(history: WorkHistory, sent: Sequence[SentRequest], outputs: set[str]) -> Claim:
    """A result exists exactly if the job succeeded."""
    succeeded = {each.request_id for each in history.attempts if each.status == "SUCCEEDED"}
    due = {each.request.output_key for each in sent if each.request.request_id in succeeded}
    problems = {
        "succeeded without a result": sorted(due - outputs),
        "result without a success": sorted(outputs - due),
    }
    return judge("each success has its result", problems, counted(len(outputs), "result"))
