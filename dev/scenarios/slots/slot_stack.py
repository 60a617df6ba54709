"""The deployed stack in a run: its inputs, the current numbers, and what it has left at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import Snapshot, counted
from dev.judge.slot_item import Item
from dev.scenarios.runner import audit
from dev.scenarios.runner.checks import check, check_none
from dev.scenarios.runner.scenario import CannotContinue, Run
from slotkeeper.slots.process import Process
from slotkeeper.slots.protocol import Slots
from slotkeeper_cli.audit.history_checks import CheckResult
from slotkeeper_cli.audit.history_reader import Window
from slotkeeper_cli.audit.intervals import percentile
from slotkeeper_cli.audit.work_history import GLUE_RUN, AuditBounds, Sending, WholeRun, WorkHistory
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.what_if import Recording, read_recording, replay

from .slot_report import SlotsOfRun
from .slot_requests import PROCESS, SentRequest

# Seconds. A wake takes a fraction of a second, and some on a busy machine. Without one, a message is hidden for 225.
BOUNDS = AuditBounds(free_slot=60.0)
# Seconds of the p99 wait from which a replay can be compared with it: the durations of starts are a small part of it.
LEAST_WAIT = 2.0


class Journal:
    """Reads the versions of the items in the slot table from the engine's journal.

    The journal has the order of the writes, which no other record has: one write reserves a slot, and Step Functions
    lists the start of the workflow some milliseconds later.
    """

    def __init__(self, file: Path, table: str) -> None:
        self._file = file
        self._table = table
        self._offset = 0
        self._newest: dict[str, Item] = {}
        self.changes: list[Item] = []

    def read(self) -> dict[str, Item]:
        """Read the new entries, as far as their lines are whole; the newest state of every process."""
        if self._file.exists():
            with self._file.open("rb") as lines:
                lines.seek(self._offset)
                while (line := lines.readline()).endswith(b"\n"):
                    self._offset += len(line)
                    entry = json.loads(line)
                    if entry["table"] == self._table:
                        change = Item.read(entry["item"], entry["at"])
                        self.changes.append(change)
                        self._newest[change.process] = change
        return self._newest


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
    """What a process has left, with each version of its item."""
    journal = Journal(aws.state_dir / "journal.jsonl", aws.outputs["SlotTableName"])
    journal.read()
    items = [item for item in journal.changes if item.process == process]
    return SlotsOfRun(process, kind, audit.read(aws, sent, WholeRun(audit.versions(items)), BOUNDS, process), items)


def outputs_of(aws: EmbeddedAws) -> set[str]:
    """The keys of the results in the data bucket."""
    pages = aws.client("s3").get_paginator("list_objects_v2")
    bucket = aws.outputs["DataBucketName"]
    return {
        each["Key"] for page in pages.paginate(Bucket=bucket, Prefix="output/") for each in page.get("Contents", [])
    }


def recording_of(aws: EmbeddedAws, history: WorkHistory) -> Recording:
    """The records of the run, as `slotkeeper what-if` reads them."""
    stack = StackConnection("slotkeeper", local=aws.state_dir / "outputs.json")
    return read_recording(stack, Window(history.since, history.now), PROCESS)


def replay_agrees(recording: Recording, limit: int) -> CheckResult:
    """A replay at the limit of the run has its p99 wait, within a tenth."""
    claim = "a replay at the run's limit has the recorded p99 wait, within a tenth"
    result, unknown = replay(recording, limit, least=0), recording.counts["arrival_unknown"]
    recorded, replayed = (percentile(each.waits, 0.99) or 0.0 for each in (result.recorded, result.replayed))
    finding = f"p99 wait {recorded:.2f} s, replayed {replayed:.2f} s; {unknown} without a known arrival"
    agrees = None if recorded < LEAST_WAIT else abs(replayed - recorded) <= 0.1 * recorded
    return check(claim, False if unknown else agrees, finding)


def results_are_those(history: WorkHistory, sent: Sequence[SentRequest], outputs: set[str]) -> CheckResult:
    """A result exists exactly if the job succeeded."""
    succeeded = {each.request_id for each in history.attempts if each.status == "SUCCEEDED"}
    keys = {each.request.arguments["--output_key"]: each.request.request_id for each in sent}
    problems = {
        "succeeded without a result": sorted(k for k, name in keys.items() if name in succeeded and k not in outputs),
        "result without a success": sorted(k for k, name in keys.items() if name not in succeeded and k in outputs),
    }
    return check_none("each success has its result", problems, counted(len(outputs & keys.keys()), "result"))
