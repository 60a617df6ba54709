"""The stack of `make run TARGET=workflow`: two state machines, a process for the first, and the records at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import Snapshot
from dev.scenarios.runner.scenario import CannotContinue
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.request import caller_of, execution_name
from slotkeeper_cli.audit.work_history import Sending, WorkHistory

from . import slot_stack
from .slot_requests import Request, SentRequest
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


@dataclass(frozen=True)
class Called:
    """The caller's execution: its requests and their answers.

    Args:
        asked: request ids, in the order of the Map's items.
        answers: the Map's results: each has `request_id`, and `result` or `error`. Empty unless it succeeded.
    """

    status: str
    asked: Sequence[str]
    answers: Sequence[Mapping[str, Any]]
    sendings: Sequence[Sending] = ()


def called_of(aws: EmbeddedAws, caller: str, called: Sequence[Request]) -> Called:
    """What the caller's execution has sent and received, by its own history."""
    sfn = aws.client("stepfunctions")
    by_id = {each.request_id: each for each in called}
    pages = sfn.get_paginator("get_execution_history").paginate(executionArn=caller)
    sendings = [
        SentRequest(by_id[body["request_id"]], sequence, at).sending(
            execution_name(PROCESS, body["request_id"], 1, caller_of(body["task_token"]))
        )
        for body, sequence, at in messages_of([event for page in pages for event in page["events"]])
    ]
    described = sfn.describe_execution(executionArn=caller)
    answers = json.loads(described.get("output") or "[]")
    return Called(described["status"], list(by_id), answers, sendings)


def child_outputs(aws: EmbeddedAws, history: WorkHistory, machine: str) -> dict[str, Any]:
    """What each child execution returned, by its name."""
    describe = aws.client("stepfunctions").describe_execution
    prefix = machine.replace(":stateMachine:", ":execution:")
    names = [each.execution for each in history.work if each.succeeded]
    return {name: json.loads(describe(executionArn=f"{prefix}:{name}")["output"]) for name in names}


def messages_of(events: Sequence[Mapping[str, Any]]) -> list[tuple[dict[str, Any], int, float]]:
    """The requests that an execution has sent, by its history: the body, SQS's sequence number, time.

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
        found.append((body, int(answer["SequenceNumber"]), event["timestamp"].timestamp()))
    return found
