"""The deployed stack for a benchmark: processes whose work is a state machine that waits, and their requests."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import batched
from pathlib import Path
from typing import Any, Self

from dev.emulator.aws import EmbeddedAws
from dev.scenarios.runner.scenario import CannotContinue
from slotkeeper.slots.doorbell import Doorbell
from slotkeeper.slots.processes import Operations, Processes

from .hand_off_figures import read_invocations

# The janitor does not run during a measurement: each start is a dispatch of the starter. On a few cores, 50 invocations
# at the same time would wait for each other, and calls time out.
PARAMETERS = {
    "JanitorSchedule": "rate(1 day)",
    "StarterConcurrency": "4",
    "MoreStateMachineArns": "arn:aws:states:us-east-1:000000000000:stateMachine:child",
}
# It lasts as many milliseconds as its input states, or until a time.
CHILD = {
    "QueryLanguage": "JSONata",
    "StartAt": "Wait",
    "States": {
        "Wait": {
            "Type": "Wait",
            "Timestamp": "{% $states.input.until ? $states.input.until : $fromMillis($millis() + $states.input.ms) %}",
            "End": True,
        }
    },
}
WARM = 12  # requests that each process runs first
PATIENCE = 180.0  # seconds for the end of what was sent


class BenchmarkStack:
    """The deployed stack. A context manager that starts the engine, and ends it."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.aws = aws
        self.sqs, self.stepfunctions, self.dynamodb, self.logs = (
            aws.client(service) for service in ("sqs", "stepfunctions", "dynamodb", "logs")
        )
        self.outputs = aws.outputs
        self.processes = Processes(self.dynamodb, self.outputs["SlotTableName"])
        role = self.stepfunctions.describe_state_machine(stateMachineArn=self.outputs["WorkflowArn"])["roleArn"]
        made = self.stepfunctions.create_state_machine(name="child", roleArn=role, definition=json.dumps(CHILD))
        self._child = made["stateMachineArn"]
        made = self.stepfunctions.create_state_machine(
            name="caller", roleArn=role, definition=json.dumps(_caller(self.outputs["RequestQueueUrl"]))
        )
        self._caller = made["stateMachineArn"]

    @classmethod
    def start(cls, folder: Path) -> Self:
        aws = EmbeddedAws.start(folder)
        try:
            aws.deploy(PARAMETERS)
            return cls(aws)
        except BaseException:
            aws.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.aws.stop()

    def process(self, name: str, limit: int) -> None:
        """Create a process, and run some requests: the first of each container takes a second."""
        self.processes.create(name, limit, self._child)
        self.send(name, [f"warm{number}" for number in range(WARM)], {"ms": 100})
        self.wait_for_ends(name, 0)

    def send(
        self, process: str, request_ids: Sequence[str], work: Mapping[str, object], priority: str = "normal"
    ) -> None:
        """Send requests, ten per call. `work`: the input of the child."""
        for batch in batched(request_ids, 10, strict=False):
            entries = [
                {
                    "Id": str(number),
                    "MessageBody": json.dumps(
                        {"process": process, "request_id": name, "priority": priority, "input": work}
                    ),
                    "MessageGroupId": process,
                    "MessageDeduplicationId": f"{process}-{name}",
                }
                for number, name in enumerate(batch)
            ]
            if self.sqs.send_message_batch(QueueUrl=self.outputs["RequestQueueUrl"], Entries=entries).get("Failed"):
                raise CannotContinue(f"SQS refused requests of {process}")

    def call(self, process: str, request_ids: Sequence[str], work: Mapping[str, object]) -> list[str]:
        """Start an execution for each request that waits for its end; their ARNs."""
        return [
            self.stepfunctions.start_execution(
                stateMachineArn=self._caller,
                input=json.dumps({"process": process, "request_id": name, "input": work}),
            )["executionArn"]
            for name in request_ids
        ]

    def stopped(self, arn: str) -> float | None:
        """When an execution ended, in seconds since the epoch; None while it runs."""
        stopped = self.stepfunctions.describe_execution(executionArn=arn).get("stopDate")
        return stopped.timestamp() if stopped else None

    def work_ended(self, process: str) -> dict[str, float]:
        """When the work of each request of a process ended: request id -> seconds since the epoch."""
        children = self._child.replace(":stateMachine:", ":execution:")
        names = {row["request_id"]["S"]: row["execution"]["S"] for row in self.rows(process)}
        return {request_id: self.stopped(f"{children}:{name}") or 0.0 for request_id, name in names.items()}

    def executions(self, process: str) -> list[dict[str, Any]]:
        """The workflows of a process, as listed."""
        pages = self.stepfunctions.get_paginator("list_executions")
        listed = pages.paginate(stateMachineArn=self.outputs["WorkflowArn"])
        return [e for page in listed for e in page["executions"] if e["name"].startswith(f"{process}-")]

    def wait_for_ends(self, process: str, count: int) -> None:
        """Return when so many workflows of a process have succeeded, besides the first ones. Raises CannotContinue."""
        wait_for(
            lambda: sum(each["status"] == "SUCCEEDED" for each in self.executions(process)) >= WARM + count,
            f"{count} requests of {process} have not ended",
        )

    def invocations(self) -> list[float]:
        """The start of each invocation of the starter."""
        return read_invocations(self.logs, self.outputs["StarterLogGroupName"])

    def set_limit(self, process: str, limit: int) -> None:
        """Change the limit as an operator does."""
        Operations(self.processes, Doorbell(self.sqs, self.outputs["DispatchQueueUrl"])).set_limit(process, limit)

    def wait_until_queued(self, process: str, count: int) -> None:
        """Return when so many requests of a process are queued. Raises CannotContinue."""
        wait_for(lambda: sum("place" in row for row in self.rows(process)) == count, "the requests are not queued")

    def rows(self, process: str) -> list[dict[str, Any]]:
        """The rows of a process's requests, in DynamoDB's format."""
        pages = self.dynamodb.get_paginator("query").paginate(
            TableName=self.outputs["RequestTableName"],
            ConsistentRead=True,
            KeyConditionExpression="process_name = :process",
            ExpressionAttributeValues={":process": {"S": process}},
        )
        return [row for page in pages for row in page["Items"]]


def _caller(queue_url: str) -> dict[str, Any]:
    """It sends its input as a request, and waits for the answer."""
    body = "{% $merge([$states.input, {'task_token': $states.context.Task.Token}]) %}"
    send = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Arguments": {
            "QueueUrl": queue_url,
            "MessageGroupId": "callers",
            "MessageDeduplicationId": "{% $states.input.request_id %}",
            "MessageBody": body,
        },
        "End": True,
    }
    return {"QueryLanguage": "JSONata", "StartAt": "Send", "States": {"Send": send}}


def wait_for(condition: Callable[[], bool], otherwise: str) -> None:
    """Raises CannotContinue after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise CannotContinue(f"{otherwise} after {PATIENCE:g} s: see the engine's log")
        time.sleep(0.3)
