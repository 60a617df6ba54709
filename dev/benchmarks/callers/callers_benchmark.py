"""A waiting caller's overhead, on the embedded AWS with the deployed stack.

The same child is run by a parent that starts it directly, and by a parent that sends a request with its task token.
Times are the engine's; the state transitions are those of AWS, which bills each one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from dev.benchmarks.outcome import Goal, Grid, Notify, Outcome
from dev.benchmarks.slot_cycle.slot_cycle_tables import middle_half
from dev.emulator.aws import EmbeddedAws
from dev.scenarios.runner.scenario import CannotContinue
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.request import caller_of, execution_name

TITLE = "A caller that waits, next to a direct start of the same child"
MINUTES = 0.7
PROCESS = "called"
MOST_TRANSITIONS = 12  # of a waiting call, more than of a direct one
_ROLE = "arn:aws:iam::000000000000:role/any"  # the embedded AWS checks no permissions
_PARAMETERS = {
    "JanitorSchedule": "rate(1 day)",
    "MoreStateMachineArns": "arn:aws:states:us-east-1:000000000000:stateMachine:*",  # those that this creates
}
_ROUNDS, _SMALL_ROUNDS = 30, 2
_LATE = 60.0  # seconds

Call = tuple[float, int]  # seconds from the parent's start to its end, and state transitions of all executions


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Raises EngineError, DeploymentError and CannotContinue."""
    notify("start and deploy", 0.0)
    with EmbeddedAws.start(folder / "engine") as aws:
        aws.deploy(_PARAMETERS)
        return outcome(run(aws, _SMALL_ROUNDS if small else _ROUNDS, notify))


def run(aws: EmbeddedAws, rounds: int, notify: Notify) -> dict[str, list[Call]]:
    """Call in turns; the calls of each way."""
    child = _machine(aws, "benchmark-child", {"Type": "Pass", "Output": {"done": True}})
    processes = Processes(aws.client("dynamodb"), aws.outputs["SlotTableName"])
    processes.create(PROCESS, 5, child, queue_url=aws.outputs["RequestQueueUrl"])
    parents = {name: _machine(aws, f"benchmark-{name}", state) for name, state in _states(aws, child).items()}
    calls: dict[str, list[Call]] = {name: [] for name in parents}
    for number in range(rounds + 1):
        notify("call", number / (rounds + 1))
        for name, parent in parents.items():
            made = _call(aws, parent, child, number)
            if number:  # the first of each operation is slower
                calls[name].append(made)
    return calls


def _states(aws: EmbeddedAws, child: str) -> dict[str, dict[str, Any]]:
    return {
        "direct": {
            "Type": "Task",
            "Resource": "arn:aws:states:::states:startExecution.sync:2",
            "Arguments": {"StateMachineArn": child, "Input": {}},
        },
        "waiting": {
            "Type": "Task",
            "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
            "Arguments": {
                "QueueUrl": aws.outputs["RequestQueueUrl"],
                "MessageGroupId": PROCESS,
                "MessageDeduplicationId": "{% $states.context.Execution.Name %}",
                "MessageBody": {
                    "process": PROCESS,
                    "request_id": "{% $states.context.Execution.Name %}",
                    "input": {},
                    "task_token": "{% $states.context.Task.Token %}",
                },
            },
            "TimeoutSeconds": 60,
        },
    }


def _machine(aws: EmbeddedAws, name: str, state: Mapping[str, Any]) -> str:
    definition = {"QueryLanguage": "JSONata", "StartAt": "Only", "States": {"Only": {**state, "End": True}}}
    sfn = aws.client("stepfunctions")
    made = sfn.create_state_machine(name=name, definition=json.dumps(definition), roleArn=_ROLE)
    return str(made["stateMachineArn"])


def _call(aws: EmbeddedAws, parent: str, child: str, number: int) -> Call:
    """Raises CannotContinue."""
    sfn = aws.client("stepfunctions")
    name = f"call-{number}"
    arn = sfn.start_execution(stateMachineArn=parent, name=name)["executionArn"]
    until = time.monotonic() + _LATE
    ended = _end_of(sfn, arn, until)
    if ended["status"] != "SUCCEEDED":
        raise CannotContinue(f"{arn} ended as {ended['status']}: {ended.get('error')}: {ended.get('cause')}")
    events = sfn.get_execution_history(executionArn=arn)["events"]
    transitions = _entered(events)
    scheduled = [event["taskScheduledEventDetails"] for event in events if "taskScheduledEventDetails" in event]
    body = json.loads(scheduled[0]["parameters"]).get("MessageBody")
    if body:
        within = execution_name(PROCESS, body["request_id"], 1, caller_of(body["task_token"]))
        for machine in (aws.outputs["WorkflowArn"], child):
            transitions += _closed(sfn, f"{machine.replace(':stateMachine:', ':execution:')}:{within}", until)
    else:
        started = json.loads(
            next(e["taskSucceededEventDetails"]["output"] for e in events if "taskSucceededEventDetails" in e)
        )
        transitions += _closed(sfn, started["ExecutionArn"], until)
    return (ended["stopDate"] - ended["startDate"]).total_seconds(), transitions


def _end_of(sfn: Any, arn: str, until: float) -> Any:
    """Wait for the end of an execution; return its description."""
    while (described := sfn.describe_execution(executionArn=arn))["status"] == "RUNNING":
        if time.monotonic() > until:
            raise CannotContinue(f"{arn} has not ended after {_LATE:.0f} s")
        time.sleep(0.02)
    return described


def _closed(sfn: Any, arn: str, until: float) -> int:
    """The transitions of an execution after its end: the workflow still publishes its event after the answer."""
    _end_of(sfn, arn, until)
    return _entered(sfn.get_execution_history(executionArn=arn)["events"])


def _entered(events: list[Mapping[str, Any]]) -> int:
    return sum(event["type"].endswith("StateEntered") for event in events)


def outcome(calls: Mapping[str, list[Call]]) -> Outcome:
    transitions = {name: max(each for _, each in made) for name, made in calls.items()}
    more = transitions["waiting"] - transitions["direct"]
    ratios = [waiting[0] / direct[0] for waiting, direct in zip(calls["waiting"], calls["direct"], strict=True)]
    low, high = middle_half(ratios)
    rows = [
        (name, f"{median(seconds for seconds, _ in made) * 1000:.0f}", str(transitions[name]))
        for name, made in calls.items()
    ]
    return Outcome(
        grids=[Grid("A call of a child that does nothing", ("way", "median, ms", "state transitions"), rows)],
        goals=[
            Goal(
                f"a waiting call has at most {MOST_TRANSITIONS} state transitions more than a direct start",
                f"{more} more; {median(ratios):.1f} x the time ({low:.1f}-{high:.1f}) of a child that does nothing",
                more <= MOST_TRANSITIONS,
            )
        ],
        figures={name: [list(each) for each in made] for name, made in calls.items()},
        notes=["The overhead does not grow with the child's duration. The times are those of the embedded AWS."],
    )
