"""State machines for rows, their executions, and tasks that wait for a token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from tests.facts.account import ENDED, Account
from tests.facts.facts import DENIED, code_of
from tests.facts.queues import Queue

PARTS = "stepfunctions/v2"  # LocalStack's folder
WAIT = {"Wait": {"Type": "Wait", "Seconds": 3600, "End": True}}
# The input states how an execution ends by itself; without `end` it waits until it is stopped or times out.
ENDS = {
    "End": {
        "Type": "Choice",
        "Choices": [
            {"Condition": "{% $states.input.end = 'SUCCEEDED' %}", "Next": "Good"},
            {"Condition": "{% $states.input.end = 'FAILED' %}", "Next": "Bad"},
        ],
        "Default": "Wait",
    },
    "Good": {"Type": "Succeed"},
    "Bad": {"Type": "Fail", "Error": "Broken", "Cause": "as asked"},
    **WAIT,
}
CAUGHT = {"Caught": {"Type": "Succeed", "Output": "{% $caught %}"}}


def task(resource: str, arguments: Any, *caught: str, **fields: Any) -> dict[str, Any]:
    """A Task that ends its execution. With `caught` errors, the state Caught of CAUGHT follows with the error."""
    made = {"Type": "Task", "Resource": f"arn:aws:states:::{resource}", "Arguments": arguments, "End": True, **fields}
    if caught:
        made["Catch"] = [
            {"ErrorEquals": [*caught], "Assign": {"caught": "{% $states.errorOutput %}"}, "Next": "Caught"}
        ]
    return made


class Machines:
    """State machines of one row. Their roles may use what the row has created.

    Args:
        stem: of their names. The role may answer only the tasks of those that are named `caller`.
    """

    def __init__(self, aws: Account, stem: str = "machine") -> None:
        self.aws, self.client, self._stem = aws, aws.client("stepfunctions"), stem

    def create(self, states: Mapping[str, Any], **fields: Any) -> str:
        """Create a JSONata state machine that starts with the first of `states`; return its ARN."""
        return self.create_defined(
            {"QueryLanguage": "JSONata", "StartAt": next(iter(states)), "States": states, **fields}, self.aws.role
        )

    def create_defined(self, definition: Mapping[str, Any], role: str) -> str:
        """Create a state machine with this definition and role; return its ARN."""
        asked = {"name": self.aws.name(self._stem), "definition": json.dumps(definition)}

        def created() -> str:
            """The ARN; "" while Step Functions may not use a new role yet."""
            try:
                return str(self.client.create_state_machine(**asked, roleArn=role)["stateMachineArn"])
            except ClientError as error:
                # The role, not the user, "is not authorized to create managed-rule" or "to assume the provided role".
                if not ("managed-rule" in str(error) or "assume the provided role" in str(error)):
                    raise
                return ""

        return self.aws.wait(created, "the state machine's role")

    def start(self, machine: str, given: Any = None, name: str = "") -> str:
        """Start an execution; return its ARN."""
        fields = {"name": name or self.aws.name("run"), "input": json.dumps({} if given is None else given)}

        def started() -> str:
            """The ARN; "" while Step Functions does not find the new state machine yet."""
            try:
                return str(self.client.start_execution(stateMachineArn=machine, **fields)["executionArn"])
            except ClientError as error:
                if error.response["Error"]["Code"] != "StateMachineDoesNotExist":
                    raise
                return ""

        return self.aws.wait(started, "the state machine to be available")

    def describe(self, execution: str) -> dict[str, Any]:
        """DescribeExecution."""
        description: dict[str, Any] = self.client.describe_execution(executionArn=execution)
        return description

    def end_of(self, execution: str) -> dict[str, Any]:
        """Wait for the end of an execution; return its description."""
        self.aws.wait(lambda: self.describe(execution)["status"] in ENDED, f"the end of {execution}")
        return self.describe(execution)

    def end(self, states: Mapping[str, Any], given: Any = None, name: str = "") -> dict[str, Any]:
        """Run an execution of these states; return its description at its end."""
        return self.end_of(self.start(self.create(states), given, name))

    def output(self, states: Mapping[str, Any], given: Any = None, name: str = "") -> Any:
        """Run an execution of these states; return its output."""
        return json.loads(self.end(states, given, name)["output"])

    def caught(self, resource: str, arguments: Any, *errors: str, given: Any = None, **fields: Any) -> Any:
        """The error that a task has and a Catch of `errors`, by default of any, receives."""
        states = {"Call": task(resource, arguments, *(errors or ["States.ALL"]), **fields), **CAUGHT}
        return self.output(states, given)

    def history(self, execution: str) -> list[dict[str, Any]]:
        """The events of an execution, oldest first."""
        answer = self.client.get_execution_history(executionArn=execution, maxResults=1000)
        return list(answer["events"])


def execution_arn(machine: str, name: str) -> str:
    """The ARN of an execution."""
    return f"{machine.replace(':stateMachine:', ':execution:')}:{name}"


class Tasks:
    """Executions of one task that waits for its token, which is sent to a queue.

    Args:
        stem: of the names of the state machines; see Machines.
    """

    def __init__(self, aws: Account, stem: str = "caller") -> None:
        self.machines, self._queue = Machines(aws, stem), Queue(aws)
        self._executions: dict[str, str] = {}

    def asking(self, **fields: Any) -> dict[str, Any]:
        """The states: one task."""
        arguments = {"QueueUrl": self._queue.url, "MessageBody": {"token": "{% $states.context.Task.Token %}"}}
        return {"Ask": task("sqs:sendMessage.waitForTaskToken", arguments, **fields)}

    def begin(self, **fields: Any) -> str:
        """Start an execution, with these fields of the task; return the token."""
        return self.begin_in(self.asking(**fields))

    def begin_in(self, states: Mapping[str, Any]) -> str:
        """Start an execution of states with one such task; return the token."""
        execution = self.machines.start(self.machines.create(states))
        token = self.next_token()
        self._executions[token] = execution
        return token

    def next_token(self) -> str:
        """The token of the next message."""
        return str(self._queue.take()["token"])

    def stop(self, token: str) -> str:
        """Stop its execution: the error's code, or "accepted"."""
        return code_of(partial(self.machines.client.stop_execution, executionArn=self._executions[token]))

    def answer(self, operation: str, token: str, **fields: str) -> str:
        """The error's code, or "accepted"."""
        return code_of(partial(getattr(self.machines.client, operation), taskToken=token, **fields))

    def end_of(self, token: str) -> dict[str, Any]:
        """The description of its execution at its end."""
        return self.machines.end_of(self._executions[token])

    def sent_by_a_workflow(self, action: str, token: str, **arguments: str) -> str:
        """The error of an SDK task that answers, or "accepted"; AccessDenied, if its role lacks the permission."""
        ended = self.machines.end({"Send": task(f"aws-sdk:sfn:{action}", {"TaskToken": token, **arguments})})
        error = str(ended.get("error", "accepted"))
        return DENIED[0] if "AccessDenied" in error + ended.get("cause", "") else error
