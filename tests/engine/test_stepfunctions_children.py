"""stepfunctions_children: an execution starts another one, waits for its end, and stops it if it is stopped itself."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from dev.emulator.aws import EmbeddedAws
from dev.emulator.faults import Faults
from tests.engine.conftest import MachineMaker, queue_arn
from tests.support.waiting import wait_until

START = "arn:aws:states:::states:startExecution"
ECHO = {"Echo": {"Type": "Pass", "Output": {"n": "{% $states.input.a + 1 %}"}, "End": True}}
WAIT = {"Wait": {"Type": "Wait", "Seconds": 3600, "End": True}}
BROKEN = {"Break": {"Type": "Fail", "Error": "Broken", "Cause": "bad part"}}


def run(child: str, name: str = "{% $states.context.Execution.Name %}", **fields: Any) -> dict[str, Any]:
    given = {"a": "{% $states.input.a %}", "by": "{% $states.context.Execution.Id %}"}
    arguments = {"StateMachineArn": child, "Name": name, "Input": given}
    return {"Run": {"Type": "Task", "Resource": f"{START}.sync:2", "Arguments": arguments, "End": True, **fields}}


def child_of(child: str, name: str) -> str:
    return f"{child.replace(':stateMachine:', ':execution:')}:{name}"


def started(machine: MachineMaker, execution: str) -> str:
    """Wait until the execution runs; return its ARN."""

    def listed() -> bool:
        arn = execution.replace(":execution:", ":stateMachine:").rpartition(":")[0]
        entries = machine.client.list_executions(stateMachineArn=arn)["executions"]
        return execution in [entry["executionArn"] for entry in entries]

    wait_until(listed, f"the start of {execution}")
    return execution


def test_the_parent_gets_the_childs_input_and_output_as_json(
    machine: MachineMaker, unique: Callable[[str], str]
) -> None:
    child, name, before = machine(ECHO), unique("parent"), time.time()
    execution = machine.start(machine(run(child)), {"a": 1}, name)
    result = json.loads(machine.end_of(execution)["output"])
    assert before * 1000 - 1 <= result.pop("StartDate") <= result.pop("StopDate") <= time.time() * 1000
    assert result == {
        "ExecutionArn": child_of(child, name),
        "Input": {"a": 1, "by": execution},
        "InputDetails": {"Included": True},
        "Name": name,
        "Output": {"n": 2},
        "OutputDetails": {"Included": True},
        "RedriveCount": 0,
        "RedriveStatus": "NOT_REDRIVABLE",
        "RedriveStatusReason": "Execution is SUCCEEDED and cannot be redriven",
        "StateMachineArn": child,
        "Status": "SUCCEEDED",
    }
    assert machine.describe(child_of(child, name))["input"] == json.dumps(result["Input"], separators=(",", ":"))


def test_sync_gives_the_texts_and_a_bare_start_does_not_wait(machine: MachineMaker) -> None:
    child = machine(ECHO)
    states = run(child, Resource=f"{START}.sync")
    assert json.loads(machine.end_of(machine.start(machine(states), {"a": 1}))["output"])["Output"] == '{"n": 2}'
    states = run(machine(WAIT), Resource=START)
    assert machine.end_of(machine.start(machine(states), {"a": 1}))["status"] == "SUCCEEDED"


@pytest.mark.parametrize(("states", "status"), [(BROKEN, "FAILED"), (WAIT, "TIMED_OUT"), (WAIT, "ABORTED")])
def test_an_unsuccessful_child_is_a_failed_task_with_its_description_as_cause(
    machine: MachineMaker, unique: Callable[[str], str], states: dict[str, Any], status: str
) -> None:
    child, name = machine(states, **({"TimeoutSeconds": 1} if status == "TIMED_OUT" else {})), unique("parent")
    execution = machine.start(machine(run(child)), {"a": 1}, name)
    if status == "ABORTED":
        arn = started(machine, child_of(child, name))
        machine.client.stop_execution(executionArn=arn, error="Stopped", cause="manually")
    closed = machine.end_of(execution)
    cause = json.loads(closed["cause"])
    assert closed["error"] == "States.TaskFailed"
    assert (cause["Status"], cause["Name"], "Output" in cause) == (status, name, False)
    assert json.loads(cause["Input"])["by"] == execution
    expected = {"FAILED": ("Broken", "bad part"), "ABORTED": ("Stopped", "manually")}
    assert (cause.get("Error"), cause.get("Cause")) == expected.get(status, (None, None))
    assert closed["cause"] == json.dumps(cause, sort_keys=True, separators=(",", ":"))  # as of AWS


def test_another_input_for_the_name_of_a_child_is_refused(machine: MachineMaker, unique: Callable[[str], str]) -> None:
    child, name = machine(WAIT), unique("child")
    arn = machine(run(child, "{% $states.input.name %}"))
    given = {"a": 1, "name": name}  # the children's inputs differ in `by`
    first = machine.start(arn, given)
    started(machine, child_of(child, name))
    other = machine.end_of(machine.start(arn, given))
    assert other["error"] == "StepFunctions.ExecutionAlreadyExistsException"
    assert child_of(child, name) in other["cause"]
    assert machine.describe(first)["status"] == "RUNNING"
    machine.client.stop_execution(executionArn=first)


def test_a_parent_that_starts_its_open_child_again_waits_for_the_same_child(
    machine: MachineMaker, faults: Faults, unique: Callable[[str], str]
) -> None:
    name = unique("parent")
    child = machine({"Wait": {"Type": "Wait", "Seconds": 1, "Next": "Echo"}, **ECHO})
    retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 0, "MaxAttempts": 1}]
    faults.add("Run", "lose_answer", execution=name, error="StepFunctions.SdkClientException")
    closed = machine.end_of(machine.start(machine(run(child, Retry=retry)), {"a": 1}, name))
    assert json.loads(closed["output"])["Output"] == {"n": 2}
    assert len(machine.client.list_executions(stateMachineArn=child)["executions"]) == 1


def test_a_stopped_parent_stops_its_child(machine: MachineMaker, unique: Callable[[str], str]) -> None:
    child, name = machine(WAIT), unique("parent")
    execution = machine.start(machine(run(child)), {"a": 1}, name)
    arn = started(machine, child_of(child, name))
    machine.client.stop_execution(executionArn=execution)
    assert machine.end_of(arn)["status"] == "ABORTED"


def test_a_child_continues_after_its_parents_time_limits(machine: MachineMaker, unique: Callable[[str], str]) -> None:
    child = machine({"Wait": {"Type": "Wait", "Seconds": 2, "Next": "Echo"}, **ECHO})
    parents = [machine(run(child, TimeoutSeconds=1)), machine(run(child), TimeoutSeconds=1)]
    names = [unique("parent") for _ in parents]
    for arn, name in zip(parents, names, strict=True):
        machine.start(arn, {"a": 1}, name)
    children = [started(machine, child_of(child, name)) for name in names]
    assert [machine.end_of(arn)["status"] for arn in children] == ["SUCCEEDED", "SUCCEEDED"]


def test_a_child_that_is_redriven_outlives_its_parent(machine: MachineMaker, unique: Callable[[str], str]) -> None:
    child, name = machine(WAIT), unique("parent")
    execution = machine.start(machine(run(child)), {"a": 1}, name)
    arn = started(machine, child_of(child, name))
    machine.client.stop_execution(executionArn=arn)
    assert machine.end_of(execution)["status"] == "FAILED"
    machine.client.redrive_execution(executionArn=arn)
    described = machine.describe(arn)
    assert (described["status"], described["redriveCount"]) == ("RUNNING", 1)
    machine.client.stop_execution(executionArn=arn)


def test_the_status_of_a_child_is_an_event(
    aws: EmbeddedAws, machine: MachineMaker, unique: Callable[[str], str]
) -> None:
    sqs, events, rule = aws.client("sqs"), aws.client("events"), unique("rule")
    child, name = machine(BROKEN), unique("parent")
    pattern = {"source": ["aws.states"], "detail": {"stateMachineArn": [child], "status": ["FAILED"]}}
    url = sqs.create_queue(QueueName=unique("queue"))["QueueUrl"]
    events.put_rule(Name=rule, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=rule, Targets=[{"Id": "queue", "Arn": queue_arn(aws, url)}])
    machine.start(machine(run(child)), {"a": 1}, name)
    (message,) = wait_until(lambda: sqs.receive_message(QueueUrl=url).get("Messages"), "the event")
    detail = json.loads(message["Body"])["detail"]
    assert (detail["executionArn"], detail["error"]) == (child_of(child, name), "Broken")
