"""`make run TARGET=workflow`: a state machine as the target, and a caller that waits for its requests' results."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import Snapshot, counted, watch
from dev.scenarios.runner.checks import check_none
from dev.scenarios.runner.scenario import CannotContinue, Outcome, Run
from dev.scenarios.runner.whole_run import Sending
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.request import caller_of, execution_name
from slotkeeper_cli.audit.check_result import CheckResult
from slotkeeper_cli.audit.work_history import CHILD, WorkHistory

from . import slot_requests, slot_stack
from .slot_report import Parameters, build
from .slot_requests import MACHINE_PROCESS, Request, SentRequest

MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:month-summary"
MOST_CALLED = 40  # iterations of an inline Map run at the same time ("Map workflow state": up to 40)
_ROLE = "arn:aws:iam::000000000000:role/any"  # the embedded AWS checks no permissions


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


def measure(aws: EmbeddedAws, parameters: Parameters, run: Run) -> Outcome:
    """Run on a stack that may start MACHINE. Raises Stalled, SendFailed, CannotContinue."""
    caller = create(aws, parameters.limit)
    requests = slot_requests.for_the_machine(parameters.requests, parameters.fail)
    since, count = time.time(), len(requests) - min(len(requests) // 2, MOST_CALLED)
    produced, called = requests[:count], requests[count:]
    with run.phase("send", f"send {counted(len(produced), 'request')}"):
        sent = slot_requests.send(aws.client("sqs"), aws.outputs["RequestQueueUrl"], produced)
    with run.phase("run", f"run, with a caller that waits for {counted(len(called), 'result')}"):
        execution = call(aws, caller, called)
        watch(run.console, lambda elapsed: progress(aws, parameters, execution, elapsed, since))
    with run.phase("collect", "collect the records"):
        answered = called_of(aws, execution, called)
        sendings = [*(each.sending() for each in sent), *answered.sendings]
        slots = slot_stack.collect(aws, sendings, MACHINE_PROCESS, CHILD)
        outputs = child_outputs(aws, slots.history)
    checks = [caller_has_all(answered, slots.history, outputs)]
    more = {"of a caller that waits": len(answered.asked), "answers in the caller's Map": len(answered.answers)}
    return build(parameters, slots, checks, more, run)


def create(aws: EmbeddedAws, limit: int) -> str:
    """Create both state machines as their owner would, and the process as `slotkeeper process add`. The caller's ARN.

    Raises CannotContinue.
    """
    sfn = aws.client("stepfunctions")
    arns = [
        sfn.create_state_machine(
            name=name, definition=Path(__file__).with_name(f"{name}.asl.json").read_text(), roleArn=_ROLE
        )["stateMachineArn"]
        for name in ("month-summary", "caller")
    ]
    processes = Processes(aws.client("dynamodb"), aws.outputs["SlotTableName"])
    if not processes.create(MACHINE_PROCESS, limit, MACHINE):
        raise CannotContinue(f"process {MACHINE_PROCESS} exists already: remove it, so that this run can add it")
    return str(arns[1])


def call(aws: EmbeddedAws, caller: str, called: Sequence[Request]) -> str:
    """Start the caller; return the ARN of its execution."""
    asked = [{"request_id": each.request_id, "input": each.input} for each in called]
    given = {"queue_url": aws.outputs["RequestQueueUrl"], "process": MACHINE_PROCESS, "requests": asked}
    started = aws.client("stepfunctions").start_execution(stateMachineArn=caller, input=json.dumps(given))
    return str(started["executionArn"])


def progress(aws: EmbeddedAws, parameters: Parameters, execution: str, elapsed: float, since: float) -> Snapshot:
    """The current numbers. The run ends when the requests and the caller have ended."""
    seen = slot_stack.progress(aws, parameters.requests, parameters.limit, elapsed, since, MACHINE_PROCESS)
    status = aws.client("stepfunctions").describe_execution(executionArn=execution)["status"]
    return replace(seen, ended=seen.ended and status != "RUNNING", counts={**seen.counts, "caller": status.lower()})


def called_of(aws: EmbeddedAws, execution: str, called: Sequence[Request]) -> Called:
    """What the caller's execution has sent and received, by its own history."""
    sfn = aws.client("stepfunctions")
    by_id = {each.request_id: each for each in called}
    pages = sfn.get_paginator("get_execution_history").paginate(executionArn=execution)
    sendings = [
        SentRequest(by_id[body["request_id"]], at).sending(
            execution_name(MACHINE_PROCESS, body["request_id"], 1, caller_of(body["task_token"]))
        )
        for body, at in messages_of([event for page in pages for event in page["events"]])
    ]
    described = sfn.describe_execution(executionArn=execution)
    answers = json.loads(described.get("output") or "[]")
    return Called(described["status"], list(by_id), answers, sendings)


def messages_of(events: Sequence[Mapping[str, Any]]) -> list[tuple[dict[str, Any], float]]:
    """The requests that an execution has sent, by its history: the body, and the time.

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
        found.append((body, event["timestamp"].timestamp()))
    return found


def child_outputs(aws: EmbeddedAws, history: WorkHistory) -> dict[str, Any]:
    """What each child execution returned, by its name."""
    describe = aws.client("stepfunctions").describe_execution
    prefix = MACHINE.replace(":stateMachine:", ":execution:")
    names = [each.execution for each in history.work if each.succeeded]
    return {name: json.loads(describe(executionArn=f"{prefix}:{name}")["output"]) for name in names}


def caller_has_all(called: Called, history: WorkHistory, outputs: Mapping[str, Any]) -> CheckResult:
    """The caller's Map has one answer for each request, in the order of its items: the child's output, or an error."""
    rows = {each.request_id: each for each in history.rows}
    wrong = []
    for answer in called.answers:
        row = rows[answer["request_id"]]
        is_right = "error" in answer
        if row.state == "SUCCEEDED":
            is_right = answer.get("result") == outputs.get(row.execution)
        wrong += [] if is_right else [row.request_id]
    answered = [each["request_id"] for each in called.answers]
    problems: dict[str, list[str]] = {
        "it ended as": [] if called.status == "SUCCEEDED" else [called.status],
        "without an answer": [name for name in called.asked if name not in answered],
        "not in the order of the items": [] if answered == list(called.asked) else ["the answers"],
        "another answer than the child's output": wrong,
    }
    errors = sum("error" in each for each in called.answers)
    results = counted(len(called.answers) - errors, "result")
    finding = f"{results} and {counted(errors, 'error')} for {len(called.asked)} items"
    return check_none("the caller's Map has every answer, in order", problems, finding, shown=bool(called.asked))
