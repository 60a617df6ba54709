"""The stack of `make run TARGET=workflow`: two state machines, a process for the first, and the records at the end."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import Snapshot
from dev.scenarios.runner.scenario import CannotContinue
from slotkeeper.slots.processes import Processes

from . import slot_records, slot_stack
from .slot_records import EndMessage
from .slot_requests import Request, SentRequest
from .target_records import Called, Child, TargetRecords
from .target_requests import PROCESS, callers_input

_ROLE = "arn:aws:iam::000000000000:role/any"  # the embedded AWS checks no permissions
_HERE = Path(__file__).parent


class Machines(NamedTuple):
    """ARNs. `child`: the target of the process."""

    child: str
    caller: str


def create_machines(aws: EmbeddedAws) -> Machines:
    """Create the target and the caller, as their owner would."""
    sfn = aws.client("stepfunctions")
    arns = []
    for name in ("month_summary", "caller"):
        definition = (_HERE / f"{name}.asl.json").read_text()
        made = sfn.create_state_machine(name=name.replace("_", "-"), definition=definition, roleArn=_ROLE)
        arns.append(made["stateMachineArn"])
    return Machines(*arns)


def add_process(aws: EmbeddedAws, limit: int, target: str) -> None:
    """As `slotkeeper process add`. Raises CannotContinue."""
    processes = Processes(aws.client("dynamodb"), aws.outputs["SlotTableName"])
    if not processes.create(PROCESS, limit, target, queue_url=aws.outputs["RequestQueueUrl"]):
        raise CannotContinue(f"process {PROCESS} exists already: remove it, so that this run can add it")


def call(aws: EmbeddedAws, machines: Machines, called: Sequence[Request]) -> str:
    """Start the caller; return the ARN of its execution."""
    given = json.dumps(callers_input(aws.outputs["RequestQueueUrl"], called))
    started: str = aws.client("stepfunctions").start_execution(stateMachineArn=machines.caller, input=given)[
        "executionArn"
    ]
    return started


def progress(aws: EmbeddedAws, requests: int, limit: int, caller: str, elapsed: float) -> Snapshot:
    """The current numbers. The run ends when the requests and the caller have ended."""
    seen = slot_stack.progress(aws, requests, limit, elapsed, PROCESS)
    status = aws.client("stepfunctions").describe_execution(executionArn=caller)["status"]
    counts = {**seen.counts, "caller": status.lower()}
    return replace(seen, ended=seen.ended and status != "RUNNING", counts=counts)


def collect(
    aws: EmbeddedAws, machines: Machines, caller: str, produced: Sequence[SentRequest], called: Sequence[Request]
) -> TargetRecords:
    """All records of AWS. This empties FailedRequestQueue and the dead-letter queue."""
    sfn, sqs, outputs = aws.client("stepfunctions"), aws.client("sqs"), aws.outputs
    slots_in_use, holders = slot_records.read_slots(aws.client("dynamodb"), outputs["SlotTableName"], PROCESS)
    executions = slot_records.read_executions(sfn, outputs["WorkflowArn"])
    ids = {each.request.request_id for each in produced} | {each.request_id for each in called}
    records = slot_records.Records(
        executions=[each for each in executions if each.process == PROCESS],
        glue_runs=[],
        kept=_ended(sqs, outputs["FailedRequestQueueUrl"], ids),
        dead=_ended(sqs, outputs["RequestDeadLetterQueueUrl"], ids),
        still_queued=queue_reading.total(sqs, outputs["RequestQueueUrl"]),
        slots_in_use=slots_in_use,
        holders=holders,
    )
    by_id = {each.request_id: each for each in called}
    pages = sfn.get_paginator("get_execution_history").paginate(executionArn=caller)
    events = [event for page in pages for event in page["events"]]
    sent = [SentRequest(by_id[request_id], sequence, at) for request_id, sequence, at in messages_of(events)]
    return TargetRecords(
        sent=[*produced, *sent],
        records=records,
        children=[_child(sfn, each) for each in _listed(sfn, machines.child)],
        called=Called.of(sfn.describe_execution(executionArn=caller), [each.request_id for each in called]),
    )


def _ended(sqs: Any, queue_url: str, ids: Container[str | None]) -> list[EndMessage]:
    """The messages of this run's requests; the stack of a test has others."""
    return [each for each in slot_records.read_end_messages(sqs, queue_url) if each.request_id in ids]


def messages_of(events: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, float]]:
    """The requests that an execution has sent, by its history: request id, SQS's sequence number, time.

    The TaskSubmitted event has SQS's answer; the TaskScheduled event before it in the same iteration has the message.
    """
    by_id = {event["id"]: event for event in events}
    found = []
    for event in events:
        if event["type"] != "TaskSubmitted":
            continue
        before = event
        while before["type"] != "TaskScheduled":
            before = by_id[before["previousEventId"]]
        body = json.loads(before["taskScheduledEventDetails"]["parameters"])["MessageBody"]
        answer = json.loads(event["taskSubmittedEventDetails"]["output"])
        found.append((body["request_id"], int(answer["SequenceNumber"]), event["timestamp"].timestamp()))
    return found


def _listed(sfn: Any, machine: str) -> list[Mapping[str, Any]]:
    pages = sfn.get_paginator("list_executions").paginate(stateMachineArn=machine)
    return [entry for page in pages for entry in page["executions"]]


def _child(sfn: Any, listed: Mapping[str, Any]) -> Child:
    described = sfn.describe_execution(executionArn=listed["executionArn"])
    stopped = described.get("stopDate")
    return Child(
        name=described["name"],
        status=described["status"],
        started=described["startDate"].timestamp(),
        stopped=stopped and stopped.timestamp(),
        output=json.loads(described.get("output") or "null"),
    )
