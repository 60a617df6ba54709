"""State machines of the embedded AWS, for the rows of Step Functions."""

from __future__ import annotations

import itertools
import json
from typing import Any

from dev.emulator.aws import EmbeddedAws
from tests.waiting import wait_until

PARTS = "stepfunctions/v2"  # LocalStack's folder
ROLE = "arn:aws:iam::000000000000:role/any"
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
    "Wait": {"Type": "Wait", "Seconds": 3600, "End": True},
}
_numbers = itertools.count(1)


def unique(stem: str) -> str:
    """A name that no other row uses."""
    return f"{stem}-{next(_numbers)}"


class Workflows:
    """State machines, their executions, and what their tasks use."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.client, self.endpoint = aws.client, aws.endpoint
        self.stepfunctions = aws.client("stepfunctions")

    def create(self, states: dict[str, Any], **fields: Any) -> str:
        """Create a JSONata state machine that starts with the first of `states`; return its ARN."""
        definition = {"QueryLanguage": "JSONata", "StartAt": next(iter(states)), "States": states, **fields}
        made = self.stepfunctions.create_state_machine(
            name=unique("machine"), definition=json.dumps(definition), roleArn=ROLE
        )
        return str(made["stateMachineArn"])

    def start(self, machine: str, given: Any = None, name: str = "") -> str:
        """Start an execution; return its ARN."""
        fields = {"name": name or unique("run"), "input": json.dumps({} if given is None else given)}
        return str(self.stepfunctions.start_execution(stateMachineArn=machine, **fields)["executionArn"])

    def describe(self, execution: str) -> dict[str, Any]:
        """DescribeExecution."""
        description: dict[str, Any] = self.stepfunctions.describe_execution(executionArn=execution)
        return description

    def end_of(self, execution: str) -> dict[str, Any]:
        """Wait for the end of an execution; return its description."""

        def closed() -> dict[str, Any] | None:
            description = self.describe(execution)
            return description if description["status"] != "RUNNING" else None

        return wait_until(closed, f"the end of {execution}")

    def end(self, states: dict[str, Any], given: Any = None) -> dict[str, Any]:
        """Run an execution of these states; return its description at its end."""
        return self.end_of(self.start(self.create(states), given))

    def output(self, states: dict[str, Any], given: Any = None) -> Any:
        """Run an execution of these states; return its output."""
        return json.loads(self.end(states, given)["output"])

    def history(self, execution: str) -> list[dict[str, Any]]:
        """The events of an execution, oldest first."""
        answer = self.stepfunctions.get_execution_history(executionArn=execution, maxResults=1000)
        return list(answer["events"])

    def queue(self) -> tuple[str, str]:
        """The URL and the ARN of a new standard queue."""
        sqs = self.client("sqs")
        url = sqs.create_queue(QueueName=unique("queue"))["QueueUrl"]
        return url, sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]

    def receive(self, url: str) -> Any:
        """Wait for the next message of a queue, delete it, and return its body, which is JSON."""
        sqs = self.client("sqs")
        (message,) = wait_until(lambda: sqs.receive_message(QueueUrl=url).get("Messages"), "a message")
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return json.loads(message["Body"])
