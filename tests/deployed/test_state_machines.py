"""The deployed workflow runs a state machine in a slot, whose result is lost, or which is aborted."""

from __future__ import annotations

import json

import pytest

from tests.deployed.deployed_machines import Machines
from tests.waiting import wait_until


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
