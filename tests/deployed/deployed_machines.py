"""State machines in the slots of the deployed stack, and callers that wait for them."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.deployed.deployed_stack import ENDED, DeployedStack
from tests.waiting import wait_until

# Ends as its input demands: with its item, with an error, or not before it is stopped.
CHILD = {
    "QueryLanguage": "JSONata",
    "StartAt": "End",
    "States": {
        "End": {
            "Type": "Choice",
            "Choices": [
                {"Condition": "{% $states.input.item = 'wrong' %}", "Next": "Failed"},
                {"Condition": "{% $states.input.item = 'endless' %}", "Next": "Endless"},
            ],
            "Default": "Done",
        },
        "Failed": {"Type": "Fail", "Error": "NoRows", "Cause": "the month is empty"},
        "Endless": {"Type": "Wait", "Seconds": 3600, "Next": "Done"},
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

    def process(self, limit: int = 1) -> str:
        """Create a process."""
        name = f"machine-{time.monotonic_ns()}"
        self.stack.processes.create(name, limit, self.child)
        return name

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

    def call(self, process: str, *items: str, **fields: Any) -> str:
        """Start an execution that waits for a request of each item; return its ARN. `fields`: of each request."""
        request = {
            **fields,
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

    def status(self, caller: str) -> str:
        return str(self.stepfunctions.describe_execution(executionArn=caller)["status"])

    def end_of(self, caller: str) -> dict[str, Any]:
        """Wait for the end of an execution."""

        def ended() -> Any:
            described = self.stepfunctions.describe_execution(executionArn=caller)
            return described["status"] in ENDED and described

        return wait_until(ended, f"{caller} to end")  # type: ignore[no-any-return]
