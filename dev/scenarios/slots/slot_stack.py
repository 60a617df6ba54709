"""The deployed stack in a run: its inputs, the current numbers, and what it has left at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import Snapshot, counted
from dev.scenarios.runner import audit
from dev.scenarios.runner.audit import Journal
from dev.scenarios.runner.checks import check, check_none
from dev.scenarios.runner.janitor_clock import JanitorClock
from dev.scenarios.runner.scenario import CannotContinue, Run
from dev.scenarios.runner.whole_run import Sending, WholeRun
from slotkeeper.slots.process import Process
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.rows import RequestRows
from slotkeeper_cli.account import Account
from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.intervals import percentile
from slotkeeper_cli.audit.work_history import GLUE_RUN, AuditBounds, WorkHistory
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.what_if import read_recording
from slotkeeper_cli.what_if.prediction import CannotKnow, predict
from slotkeeper_cli.what_if.recording import Recording

from .slot_report import SlotsOfRun
from .slot_requests import PROCESS, SentRequest

# Seconds. A ring takes a fraction of a second, and some on a busy machine. Without one, the janitor comes in a minute.
BOUNDS = AuditBounds(intake=10.0, free_slot=60.0)
# Seconds of the p99 wait from which a replay can be compared with it: the durations of starts are a small part of it.
LEAST_WAIT = 2.0
JANITOR_PERIOD = 2.0  # seconds


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


def progress(
    aws: EmbeddedAws, requests: int, limit: int, elapsed: float, since: float, process: str = PROCESS
) -> Snapshot:
    """The current numbers of the requests of a process that were sent since a time, in seconds since the epoch.

    RequestQueue is read first: a message that becomes a row between two reads is counted twice and never missed, so the
    run does not seem to have ended.
    """
    outputs = aws.outputs
    received = queue_reading.total(aws.client("sqs"), outputs["RequestQueueUrl"])
    listed_rows = RequestRows(aws.client("dynamodb"), outputs["RequestTableName"]).rows(process, max_pages=100)
    rows = [each for each in listed_rows.rows if each.sent >= since]
    listed = aws.client("stepfunctions").list_executions(
        stateMachineArn=outputs["WorkflowArn"], statusFilter="RUNNING", maxResults=1000
    )
    running = sum(each["name"].startswith(f"{process}-") for each in listed["executions"])
    item = item_of(aws, process)
    states = Counter(each.state for each in rows if each.ended is not None and not each.is_unpublished)
    done = states.total() - states["RETURNED"] - states["REDRIVEN"]
    return Snapshot(
        elapsed=elapsed,
        ended=done >= requests and not (received or running or item.slots_in_use),
        done=done,
        total=requests,
        gauges={"slots": (item.slots_in_use, limit)},
        counts={
            "queued": received + sum(bool(each.place) for each in rows),
            "running": running,
            "succeeded": states["SUCCEEDED"],
            "failed": states["FAILED"],
            "without a start": done - states["SUCCEEDED"] - states["FAILED"],
        },
        details=f"holders: {', '.join(sorted(item.holders)) or 'none'}",
    )


def collect(aws: EmbeddedAws, sent: Sequence[Sending], process: str = PROCESS, kind: str = GLUE_RUN) -> SlotsOfRun:
    """What a process has left, with each write of its item and its rows."""
    journal = Journal(aws.state_dir / "journal.jsonl", aws.outputs)
    journal.read()
    changes = [each for each in journal.changes if each.process == process]
    items = [each for each in journal.items if each.process == process]
    history, known = audit.read(aws, WholeRun(sent, items), BOUNDS, process)
    return SlotsOfRun(process, kind, history, known, changes)


@contextmanager
def without_doorbell(aws: EmbeddedAws) -> Iterator[None]:
    """Disable the starter's event source of DispatchQueue. The janitor runs the system alone, more often than usual."""
    sqs, functions = aws.client("sqs"), aws.client("lambda")
    asked = sqs.get_queue_attributes(QueueUrl=aws.outputs["DispatchQueueUrl"], AttributeNames=["QueueArn"])
    arn = asked["Attributes"]["QueueArn"]
    (mapping,) = functions.list_event_source_mappings(EventSourceArn=arn)["EventSourceMappings"]
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    try:
        with JanitorClock(aws, JANITOR_PERIOD):
            yield
    finally:
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)


def doorbell_was_dead(aws: EmbeddedAws, starts: int, limit: int) -> CheckResult:
    """No ring was delivered, although there were more starts than the first dispatches could make."""
    rings = queue_reading.total(aws.client("sqs"), aws.outputs["DispatchQueueUrl"])
    is_shown = starts > limit
    finding = f"{counted(rings, 'ring')} left on DispatchQueue, {counted(starts, 'start')}"
    return check("the janitor ran the system alone", rings > 0 if is_shown else None, finding)


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
    return read_recording(Account(stack), history.since, history.now, PROCESS)


def replay_agrees(recording: Recording, limit: int) -> CheckResult:
    """A replay at the limit of the run has its p99 wait, within a tenth."""
    claim = "a replay at the run's limit has the recorded p99 wait, within a tenth"
    try:
        made = predict(recording, limit, least=0)
    except CannotKnow as error:
        return check(claim, False, str(error))
    recorded, replayed = (percentile(made[name].waits, 0.99) or 0.0 for name in ("recorded", "replayed"))
    agrees = None if recorded < LEAST_WAIT else abs(replayed - recorded) <= 0.1 * recorded
    return check(claim, agrees, f"p99 wait {recorded:.2f} s, replayed {replayed:.2f} s")


def results_are_those(history: WorkHistory, sent: Sequence[SentRequest], outputs: set[str]) -> CheckResult:
    """A result exists exactly if the job succeeded."""
    succeeded = {each.request_id for each in history.rows if each.state == "SUCCEEDED"}
    keys = {each.request.arguments["--output_key"]: each.request.request_id for each in sent}
    problems = {
        "succeeded without a result": sorted(k for k, name in keys.items() if name in succeeded and k not in outputs),
        "result without a success": sorted(k for k, name in keys.items() if name not in succeeded and k in outputs),
    }
    return check_none("each success has its result", problems, counted(len(outputs & keys.keys()), "result"))
