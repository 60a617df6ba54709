"""`make run TARGET=workflow`: a state machine as the target, and a caller that waits for its requests' results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import counted
from dev.emulator.sample_data import read_dataset
from dev.scenarios.runner.claims import Claim, judge
from dev.scenarios.runner.scenario import Run, Scenario
from slotkeeper_cli.audit.work_history import CHILD, WorkHistory

from . import slot_requests, slot_stack, target_requests, target_stack
from .slot_report import Parameters, SlotReport, build, draw, tables
from .slot_requests import Request
from .target_requests import PROCESS, expected
from .target_stack import Called, Machines


def perform(aws: EmbeddedAws, parameters: Parameters, run: Run) -> SlotReport:
    """Run on a started engine, and return the report. Raises Stalled, SendFailed, CannotContinue."""
    with run.phase("deploy", "build and deploy, with two state machines"):
        machines = target_stack.create_machines(aws)
        aws.deploy({"MoreStateMachineArns": machines.child})
    return measure(aws, machines, parameters, run)


def measure(aws: EmbeddedAws, machines: Machines, parameters: Parameters, run: Run) -> SlotReport:
    """Run on a stack that may start the machines."""
    target_stack.add_process(aws, parameters.limit, machines.child)
    run_id = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    work = target_requests.plan(read_dataset(), requests=parameters.requests, fail=parameters.fail, run_id=run_id)
    with run.phase("send", f"send {counted(len(work.produced), 'request')}"):
        produced = slot_requests.send(aws.client("sqs"), aws.outputs["RequestQueueUrl"], work.produced)
    with run.phase("run", f"run, with a caller that waits for {counted(len(work.called), 'result')}"):
        caller = target_stack.call(aws, machines, work.called)
        run.watch(lambda elapsed: target_stack.progress(aws, parameters.requests, parameters.limit, caller, elapsed))
    with run.phase("collect", "collect the records"):
        called = target_stack.called_of(aws, caller, work.called)
        slots = slot_stack.collect(aws, [*(each.sending() for each in produced), *called.sendings], PROCESS, CHILD)
        outputs = target_stack.child_outputs(aws, slots.history, machines.child)
    claims = [
        results_are_those(work.requests, slots.history, outputs),
        caller_has_all(called, slots.history, outputs),
    ]
    more = {"of a caller that waits": len(called.asked), "answers in the caller's Map": len(called.answers)}
    return build(parameters, slots, claims, more, run)


def results_are_those(requests: Sequence[Request], history: WorkHistory, outputs: Mapping[str, Any]) -> Claim:
    """The children that succeeded return what is computed here from their input."""
    due = {each.request_id: expected(each.input or {}) for each in requests if not each.damaged}
    succeeded = [each for each in history.attempts if each.status == "SUCCEEDED" and each.request_id in due]
    wrong = [each.request_id for each in succeeded if outputs.get(each.execution) != due[each.request_id]]
    finding = f"{len(succeeded)} results as computed from the inputs"
    return judge("the results are those of the inputs", {"another result": wrong}, finding, shown=bool(succeeded))


def caller_has_all(called: Called, history: WorkHistory, outputs: Mapping[str, Any]) -> Claim:
    """The caller's Map has one answer for each request, in the order of its items: the child's output, or an error."""
    attempts = {each.request_id: each for each in history.attempts}
    wrong = []
    for answer in called.answers:
        attempt = attempts[answer["request_id"]]
        is_right = "error" in answer
        if attempt.status == "SUCCEEDED":
            is_right = answer.get("result") == outputs.get(attempt.execution)
        wrong += [] if is_right else [attempt.request_id]
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
    return judge("the caller's Map has every answer, in order", problems, finding, shown=bool(called.asked))


SCENARIO = Scenario(Path("build/run"), "timeline.png", draw, tables, {"lasting": True})
