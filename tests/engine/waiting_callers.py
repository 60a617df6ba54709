"""Callers: executions that wait for the answer to a message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from dev.emulator.aws import EmbeddedAws
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.engine.conftest import MachineMaker

SEND = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
TOKEN = "{% $states.context.Task.Token %}"


class Callers:
    """Executions that wait for an answer to a message in one queue."""

    def __init__(self, aws: EmbeddedAws, machine: MachineMaker, url: str) -> None:
        self.machine, self.client, self._sqs, self.url = machine, machine.client, aws.client("sqs"), url

    def asks(self, body: Any = None, **fields: Any) -> dict[str, Any]:
        """The states of a caller that sends one message."""
        body = {"token": TOKEN, "item": "{% $states.input %}"} if body is None else body
        arguments = {"QueueUrl": self.url, "MessageBody": body}
        return {"Ask": {"Type": "Task", "Resource": SEND, "Arguments": arguments, "End": True, **fields}}

    def call(self, name: str = "", **fields: Any) -> tuple[str, str]:
        """Start one; return its ARN and its token."""
        execution = self.machine.start(self.machine(self.asks(**fields)), {"a": 1}, name)
        return execution, self.received()["token"]

    def received(self) -> dict[str, Any]:
        """The next message's body."""
        (message,) = wait_until(lambda: self._sqs.receive_message(QueueUrl=self.url).get("Messages"), "a message")
        self._sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        body: dict[str, Any] = json.loads(message["Body"])
        return body

    def succeed(self, token: str, output: Any = "done") -> None:
        self.client.send_task_success(taskToken=token, output=json.dumps(output))

    def end_of(self, execution: str) -> dict[str, Any]:
        return self.machine.end_of(execution)

    def refused(self, operation: str, token: str, **fields: str) -> str:
        """The code of the refusal."""
        with pytest.raises(ClientError) as caught:
            getattr(self.client, operation)(taskToken=token, **fields)
        code: str = caught.value.response["Error"]["Code"]
        return code

    def sends(self, action: str, token: str, **arguments: Any) -> dict[str, Any]:
        """The end of an execution that answers by a task of the SDK integration."""
        task = {"Type": "Task", "Resource": f"arn:aws:states:::aws-sdk:sfn:{action}", "End": True}
        states = {"Send": task | {"Arguments": {"TaskToken": token, **arguments}}}
        return self.machine.end_of(self.machine.start(self.machine(states)))
