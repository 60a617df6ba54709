"""The deployed workflow runs a state machine in a slot."""

from __future__ import annotations

import json

import pytest

from slotkeeper.slots.request import execution_name
from tests.deployed.deployed_machines import SETTLE_SECONDS, Machines
from tests.waiting import wait_until


def test_the_slot_of_an_aborted_child_is_released_after_the_time_that_its_work_may_outlive_it(
    machines: Machines,
) -> None:
    stack, process = machines.stack, machines.process()
    name = machines.send(process, "endless")
    child = machines.open_child(name)
    machines.stepfunctions.stop_execution(executionArn=child)
    stack.wait_for_status(name, "FAILED")
    events = stack.stepfunctions.get_execution_history(executionArn=stack.arn(name), maxResults=1000)["events"]
    released = next(e for e in events if e.get("stateEnteredEventDetails", {}).get("name") == "ReleaseSlot")
    waited = released["timestamp"] - machines.of(name)["stopDate"]
    assert waited.total_seconds() >= SETTLE_SECONDS
    assert "ended as ABORTED" in stack.wait_for_end(process, name, "FAILED").reason


def test_an_execution_of_the_same_name_is_neither_waited_for_nor_stopped(machines: Machines) -> None:
    process = machines.process()
    name = execution_name(process, "good", 1)
    given = json.dumps({"item": "endless"})
    machines.stepfunctions.start_execution(stateMachineArn=machines.child, name=name, input=given)
    machines.send(process, "good")
    assert machines.stack.wait_for_end(process, name, "FAILED").code == "NameTaken"
    assert machines.of(name)["status"] == "RUNNING"
    machines.stack.wait_until_free(process)
    machines.stepfunctions.stop_execution(executionArn=machines.of(name)["executionArn"])


def test_a_child_whose_output_the_workflow_cannot_read_has_succeeded(machines: Machines) -> None:
    stack, process = machines.stack, machines.process()
    ended = machines.end_of(machines.call(process, "large"))
    (name,) = (each["name"] for each in stack.executions(process))
    assert json.loads(ended["output"]) == [{"ExecutionArn": machines.of(name)["executionArn"]}]
    stack.wait_for_end(process, name, "SUCCEEDED")
    stack.wait_until_free(process)


@pytest.mark.parametrize("error", ["StepFunctions.AWSStepFunctionsException", "States.Timeout"])
def test_a_result_that_was_lost_is_read_from_the_child_and_answered(machines: Machines, error: str) -> None:
    """After the first error the start is repeated, which the closed child refuses."""
    process = machines.process()
    machines.stack.faults.add("RunStateMachine", "lose_answer", error=error)
    ended = machines.end_of(machines.call(process, "a"))
    assert json.loads(ended["output"]) == [{"item": "a", "rows": [7]}]
    (execution,) = machines.stack.executions(process)
    assert "ReadChild" in machines.stack.states_of(execution["name"])
    machines.stack.wait_for_status(execution["name"], "SUCCEEDED")


def test_f4_an_aborted_workflow_frees_its_slot_after_its_child_and_its_caller_gets_a_failure(
    machines: Machines,
) -> None:
    """Step Functions stops the child of an execution that is stopped. The janitor does so for a child that it left."""
    stack, process = machines.stack, machines.process()
    stack.faults.add("RunStateMachine", "leave_running")
    caller = machines.call(process, "endless")
    (execution,) = wait_until(lambda: stack.executions(process), "the workflow")
    child = machines.open_child(execution["name"])
    stack.stepfunctions.stop_execution(executionArn=stack.arn(execution["name"]))
    stack.run_janitor_until(lambda: not stack.holders(process), "the slot to be freed")
    assert machines.stepfunctions.describe_execution(executionArn=child)["status"] == "ABORTED"
    assert machines.end_of(caller)["error"] == "ABORTED"
    stack.wait_for_end(process, execution["name"], "FAILED")


def test_f4_a_redriven_workflow_starts_no_child_and_its_request_runs_again(machines: Machines) -> None:
    stack, process = machines.stack, machines.process()
    name = machines.send(process, "endless")
    machines.open_child(name)
    stack.stepfunctions.stop_execution(executionArn=stack.arn(name))
    stack.stepfunctions.redrive_execution(executionArn=stack.arn(name))
    stack.wait_for_status(name, "FAILED")
    assert (stack.execution(name) or {})["error"] == "SlotLost"
    assert machines.of(name)["status"] == "ABORTED"
    following = execution_name(process, "endless", 2)
    machines.stepfunctions.stop_execution(executionArn=machines.open_child(following))
    stack.wait_for_status(following, "FAILED")


def test_the_work_of_a_caller_that_was_stopped_while_its_request_waited_is_not_done(machines: Machines) -> None:
    stack, process = machines.stack, machines.process()
    first = machines.send(process, "endless")
    child = machines.open_child(first)
    caller = machines.call(process, "late")
    wait_until(lambda: stack.queued(process), "the caller's request to be queued")
    machines.stepfunctions.stop_execution(executionArn=caller)
    machines.stepfunctions.stop_execution(executionArn=child)
    wait_until(lambda: len(stack.executions(process)) == 2, "the caller's request to start")
    (late,) = (each["name"] for each in stack.executions(process) if each["name"] != first)
    assert stack.wait_for_end(process, late, "FAILED").code == "CallerGone"
    assert machines.of(late) == {}
    stack.wait_until_free(process)
