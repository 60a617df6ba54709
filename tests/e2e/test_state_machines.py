"""The deployed workflow runs a state machine in a slot, and answers the tasks that wait for it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from slotkeeper.slots.request import execution_name
from tests.e2e.deployed_stack import ENDED, DeployedStack
from tests.support.waiting import wait_until

SETTLE_SECONDS = 2
# Ends as its input demands: with its item, with an error, with a large output, or not before it is stopped.
CHILD = {
    "QueryLanguage": "JSONata",
    "StartAt": "End",
    "States": {
        "End": {
            "Type": "Choice",
            "Choices": [
                {"Condition": "{% $states.input.item = 'wrong' %}", "Next": "Failed"},
                {"Condition": "{% $states.input.item = 'endless' %}", "Next": "Endless"},
                {"Condition": "{% $states.input.item = 'large' %}", "Next": "Large"},
            ],
            "Default": "Done",
        },
        "Failed": {"Type": "Fail", "Error": "NoRows", "Cause": "the month is empty"},
        "Endless": {"Type": "Wait", "Seconds": 3600, "Next": "Done"},
        # Less than an execution's output may have, and more than a task's result with the child's other data.
        "Large": {"Type": "Succeed", "Output": "{% $pad('', 262000, 'x') %}"},
        "Done": {"Type": "Succeed", "Output": {"item": "{% $states.input.item %}", "rows": [7]}},
    },
}


class Machines:
    """A process that runs a state machine, and the executions of both."""

    def __init__(self, stack: DeployedStack) -> None:
        self.stack = stack
        self.stepfunctions = stack.stepfunctions
        self.child = self.make("child", CHILD)

    def make(self, name: str, definition: dict[str, Any]) -> str:
        """Create a state machine; return its ARN."""
        role = "arn:aws:iam::000000000000:role/child"
        name = f"{name}-{time.monotonic_ns()}"
        given = {"name": name, "definition": json.dumps(definition), "roleArn": role}
        return str(self.stepfunctions.create_state_machine(**given)["stateMachineArn"])

    def process(self) -> str:
        """Create a process with one slot."""
        name = f"machine-{time.monotonic_ns()}"
        self.stack.processes.create(name, 1, self.child, settle_seconds=SETTLE_SECONDS)
        return name

    def send(self, process: str, item: str) -> str:
        """Send a request; return its execution name."""
        body = {"process": process, "request_id": item, "input": {"item": item}}
        self.stack.send_raw(json.dumps(body), process)
        return execution_name(process, item, 1)

    def of(self, name: str) -> dict[str, Any]:
        """The child of an execution of the workflow, or an empty map."""
        arn = f"{self.child.replace(':stateMachine:', ':execution:')}:{name}"
        try:
            description: dict[str, Any] = self.stepfunctions.describe_execution(executionArn=arn)
        except self.stepfunctions.exceptions.ExecutionDoesNotExist:
            return {}
        return description

    def open_child(self, name: str) -> str:
        """Wait until the child of an execution runs; return its ARN."""
        child = wait_until(lambda: (found := self.of(name)).get("status") == "RUNNING" and found, f"a child of {name}")
        return str(child["executionArn"])

    def call(self, process: str, *items: str) -> str:
        """Start an execution that waits for a request of each item; return its ARN."""
        request = {
            "process": process,
            "request_id": "{% $states.context.Execution.Name & '/' & $string($states.context.Map.Item.Index) %}",
            "input": {"item": "{% $states.input %}"},
            "task_token": "{% $states.context.Task.Token %}",
        }
        waits = {
            "Type": "Task",
            "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
            "Arguments": {
                "QueueUrl": self.stack.queue_url,
                "MessageGroupId": process,
                "MessageDeduplicationId": "{% $hash($states.context.Task.Token, 'SHA-256') %}",
                "MessageBody": request,
            },
            "TimeoutSeconds": 600,
            "End": True,
        }
        each = {"Type": "Map", "Items": "{% $states.input %}", "End": True}
        each["ItemProcessor"] = {"StartAt": "RunInSlot", "States": {"RunInSlot": waits}}
        caller = self.make("caller", {"QueryLanguage": "JSONata", "StartAt": "Each", "States": {"Each": each}})
        started = self.stepfunctions.start_execution(stateMachineArn=caller, input=json.dumps(items))
        return str(started["executionArn"])

    def end_of(self, caller: str) -> dict[str, Any]:
        """Wait for the end of an execution."""

        def ended() -> Any:
            described = self.stepfunctions.describe_execution(executionArn=caller)
            return described["status"] in ENDED and described

        return wait_until(ended, f"{caller} to end")  # type: ignore[no-any-return]

    def kept(self, process: str) -> dict[str, Any]:
        """Wait for the only kept request of a process."""
        (kept,) = wait_until(lambda: self.stack.kept(process), "the request to be kept")
        return kept


@pytest.fixture
def machines(stack: DeployedStack) -> Machines:
    return Machines(stack)


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
    assert "ended as ABORTED" in machines.kept(process)["cause"]


def test_an_execution_of_the_same_name_is_neither_waited_for_nor_stopped(machines: Machines) -> None:
    process = machines.process()
    name = execution_name(process, "good", 1)
    given = json.dumps({"item": "endless"})
    machines.stepfunctions.start_execution(stateMachineArn=machines.child, name=name, input=given)
    machines.send(process, "good")
    machines.stack.wait_for_status(name, "FAILED")
    assert machines.kept(process)["error"] == "NameTaken"
    assert machines.of(name)["status"] == "RUNNING"
    machines.stack.wait_until_free(process)
    machines.stepfunctions.stop_execution(executionArn=machines.of(name)["executionArn"])


def test_a_child_whose_output_the_workflow_cannot_read_has_succeeded(machines: Machines) -> None:
    stack, process = machines.stack, machines.process()
    ended = machines.end_of(machines.call(process, "large"))
    (execution,) = stack.executions(process)
    assert (stack.execution(execution["name"]) or {})["error"] == "ChildTooLarge"
    assert json.loads(ended["output"]) == [{"ExecutionArn": machines.of(execution["name"])["executionArn"]}]
    stack.wait_until_free(process)
    assert stack.kept(process) == []


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


def test_the_request_of_a_child_that_failed_is_kept_and_its_waiting_caller_fails_with_the_childs_error(
    machines: Machines,
) -> None:
    process = machines.process()
    ended = machines.end_of(machines.call(process, "wrong"))
    assert (ended["status"], ended["error"]) == ("FAILED", "StateMachine.ExecutionNotSucceeded")
    assert "NoRows: the month is empty" in ended["cause"]
    kept = machines.kept(process)
    child = machines.of(kept["execution_name"])["executionArn"]
    assert (kept["error"], kept["cause"]) == (ended["error"], f"{child} ended as FAILED: NoRows: the month is empty")
    assert "task_token" not in json.loads(kept["body"])


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
    assert machines.end_of(caller)["status"] == "FAILED"
    assert "task_token" not in json.loads(machines.kept(process)["body"])


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
    wait_until(lambda: len(stack.kept(process)) == 2, "both requests to be kept")
    assert {kept["error"] for kept in stack.kept(process)} == {"StateMachine.ExecutionNotSucceeded", "CallerGone"}
    (late,) = (each["name"] for each in stack.executions(process) if each["name"] != first)
    assert machines.of(late) == {}
    stack.wait_until_free(process)
