"""The designs that are compared. Each starts requests, of which at most so many work at the same time.

All use tables of one embedded AWS. The work of a request is an execution of the same state machine, but for the lock
client, whose work is in its own process. The designs without a queue repeat a refused attempt after a fixed time.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

from dev.emulator.aws import EmbeddedAws
from dev.scenarios.runner.scenario import CannotContinue, send_all
from slotkeeper.slots.processes import Processes

# Seconds between two attempts: of AWS's sample, and of AWS's lock client by default ("refresh period").
SAMPLE_PAUSE, CLIENT_PAUSE = 3, 1.0
BODY = 1000  # bytes of a request, which only Slotkeeper stores
LEASE_SECONDS = 20  # of a lock
PATIENCE = 300.0  # seconds until all requests have ended
ROLE = "arn:aws:iam::000000000000:role/any"  # the embedded AWS checks no permissions
WORK = "work"
_INPUT = "$states.context.Execution.Input"


class Span(NamedTuple):
    """When the work of one request began and ended, in seconds since the epoch."""

    began: float
    ended: float


class Load(NamedTuple):
    """So many requests that are sent together, the slots, and the seconds of the work of each."""

    requests: int
    slots: int
    seconds: float


class Work:
    """The state machine that is the work of a request."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self._sfn = aws.client("stepfunctions")
        wait = {"Type": "Wait", "Timestamp": "{% $fromMillis($millis() + $states.input.ms) %}", "End": True}
        self.arn = create_machine(aws, WORK, {"StartAt": "Wait", "States": {"Wait": wait}})

    def spans(self, prefix: str) -> list[Span]:
        """The executions whose names begin so, once they have succeeded."""
        pages = self._sfn.get_paginator("list_executions").paginate(stateMachineArn=self.arn, statusFilter="SUCCEEDED")
        return [
            Span(each["startDate"].timestamp(), each["stopDate"].timestamp())
            for page in pages
            for each in page["executions"]
            if each["name"].startswith(f"{prefix}-")
        ]

    def wait(self, prefix: str, count: int) -> list[Span]:
        """Return when so many have succeeded. Raises CannotContinue after PATIENCE."""
        deadline = time.monotonic() + PATIENCE
        while len(found := self.spans(prefix)) < count:
            if time.monotonic() > deadline:
                raise CannotContinue(f"{len(found)} of {count} requests of {prefix} have ended in {PATIENCE:.0f} s")
            time.sleep(0.5)
        return found


def create_machine(aws: EmbeddedAws, name: str, definition: dict[str, Any]) -> str:
    """Create a state machine in JSONata; its ARN."""
    text = json.dumps({"QueryLanguage": "JSONata", **definition})
    made = aws.client("stepfunctions").create_state_machine(name=name, definition=text, roleArn=ROLE)
    return str(made["stateMachineArn"])


def create_table(aws: EmbeddedAws, name: str) -> None:
    """A table with the key `name`."""
    aws.client("dynamodb").create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "name", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "name", "KeyType": "HASH"}],
    )


class Design(ABC):
    """One design.

    Attributes:
        machine: the ARN of a state machine whose tasks call DynamoDB; empty without one.
    """

    title: ClassVar[str]

    def __init__(self, aws: EmbeddedAws, work: Work) -> None:
        self.aws, self.work = aws, work
        self.machine = ""

    def prepare(self, label: str, load: Load) -> None:
        """Write what a run needs before its first request. `label`: of this run alone."""
        self.label, self.load = label, load

    @abstractmethod
    def run(self) -> list[Span]:
        """Start the requests together, and return when each has worked."""


class Slotkeeper(Design):
    """The deployed stack, with a process for each run."""

    title = "Slotkeeper"

    def __init__(self, aws: EmbeddedAws, work: Work) -> None:
        super().__init__(aws, work)
        self.machine = aws.outputs["WorkflowArn"]
        self._processes = Processes(aws.client("dynamodb"), aws.outputs["SlotTableName"])

    def prepare(self, label: str, load: Load) -> None:
        super().prepare(label, load)
        self._processes.create(label, load.slots, self.work.arn)

    def run(self) -> list[Span]:
        label, load = self.label, self.load
        bodies: list[dict[str, Any]] = [
            {"process": label, "request_id": f"r{number}", "input": {"ms": load.seconds * 1000, "data": "x" * BODY}}
            for number in range(load.requests)
        ]
        entries = {
            body["request_id"]: {
                "MessageBody": json.dumps(body),
                "MessageGroupId": label,
                "MessageDeduplicationId": str(uuid.uuid4()),
            }
            for body in bodies
        }
        send_all(self.aws.client("sqs"), self.aws.outputs["RequestQueueUrl"], entries)
        return self.work.wait(label, load.requests)


class PollingWorkflow(Design):
    """A workflow for each request: it adds one to a counter, works, and subtracts it. After a refusal it waits."""

    table: ClassVar[str]
    acquire: ClassVar[str] = "SET used = used + :one"
    condition: ClassVar[str] = "used < slots"
    release: ClassVar[str] = "SET used = used - :one"
    released_if: ClassVar[str] = "used >= :one"
    names: ClassVar[dict[str, str]] = {}
    values: ClassVar[dict[str, Any]] = {}
    reads: ClassVar[bool] = False

    def __init__(self, aws: EmbeddedAws, work: Work) -> None:
        super().__init__(aws, work)
        create_table(aws, self.table)
        self.machine = create_machine(aws, self.table, self._definition())

    def prepare(self, label: str, load: Load) -> None:
        super().prepare(label, load)
        item = {"name": {"S": label}, "used": {"N": "0"}, "slots": {"N": str(load.slots)}}
        self.aws.client("dynamodb").put_item(TableName=self.table, Item=item)

    def run(self) -> list[Span]:
        given = json.dumps({"key": self.label, "ms": self.load.seconds * 1000})
        start = self.aws.client("stepfunctions").start_execution
        for number in range(self.load.requests):
            start(stateMachineArn=self.machine, name=f"{self.label}-{number}", input=given)
        return self.work.wait(self.label, self.load.requests)

    def _definition(self) -> dict[str, Any]:
        of_item: dict[str, Any] = {"TableName": self.table, "Key": {"name": {"S": f"{{% {_INPUT}.key %}}"}}}
        of_item |= {"ExpressionAttributeNames": self.names} if self.names else {}

        def update(expression: str, condition: str, values: dict[str, Any], **more: Any) -> dict[str, Any]:
            given = {
                "UpdateExpression": expression,
                "ConditionExpression": condition,
                "ExpressionAttributeValues": {":one": {"N": "1"}, **values},
            }
            return {
                "Type": "Task",
                "Resource": "arn:aws:states:::dynamodb:updateItem",
                "Arguments": of_item | given,
            } | more

        refused = {
            "ErrorEquals": ["DynamoDB.ConditionalCheckFailedException"],
            "Next": "Read" if self.reads else "Pause",
        }
        states: dict[str, Any] = {
            "Acquire": update(self.acquire, self.condition, self.values, Catch=[refused], Next="Work"),
            "Pause": {"Type": "Wait", "Seconds": SAMPLE_PAUSE, "Next": "Acquire"},
            "Work": {
                "Type": "Task",
                "Resource": "arn:aws:states:::states:startExecution.sync:2",
                "Arguments": {
                    "StateMachineArn": self.work.arn,
                    "Name": "{% $states.context.Execution.Name %}",
                    "Input": {"ms": f"{{% {_INPUT}.ms %}}"},
                },
                "Next": "Release",
            },
            "Release": update(self.release, self.released_if, {}, End=True),
        }
        if self.reads:
            states["Read"] = {
                "Type": "Task",
                "Resource": "arn:aws:states:::dynamodb:getItem",
                "Arguments": of_item | {"ProjectionExpression": "#me", "ConsistentRead": True},
                "Next": "Pause",
            }
        return {"StartAt": "Acquire", "States": states}


class AwsSample(PollingWorkflow):
    """The semaphore of AWS's sample: the counter's item also names each owner, and a refused workflow reads it.

    "Controlling concurrency in distributed systems using AWS Step Functions" (AWS Compute Blog). The read finds out
    whether an earlier attempt of the same execution has taken the slot. What frees the slots of aborted executions, a
    second workflow, has nothing to do here.
    """

    title = "AWS's sample"
    table = "sample"
    acquire = "SET used = used + :one, #me = :since"
    condition = "used < slots AND attribute_not_exists(#me)"
    release = "SET used = used - :one REMOVE #me"
    released_if = "attribute_exists(#me)"
    names: ClassVar[dict[str, str]] = {"#me": "{% $states.context.Execution.Name %}"}
    values: ClassVar[dict[str, Any]] = {":since": {"S": "{% $states.context.State.EnteredTime %}"}}
    reads = True


class NaiveCounter(PollingWorkflow):
    """A number alone. A workflow that ends between its two writes leaves it too high until an operator corrects it."""

    title = "naive counter"
    table = "counter"


class LockClient(Design):
    """A lock for each slot, as of AWS's lock client and python-dynamodb-lock, in threads of this process.

    An attempt reads each lock in random order until one is absent, and puts it with the condition that it still is.
    If none was free, the next attempt follows after a pause. A release deletes the lock. No owner dies here, so no
    lock expires; a heartbeat, a write every few seconds of longer work, is not due.
    """

    title = "lock client"

    def __init__(self, aws: EmbeddedAws, work: Work) -> None:
        super().__init__(aws, work)
        create_table(aws, "locks")
        self._dynamodb = aws.client("dynamodb")

    def run(self) -> list[Span]:
        with ThreadPoolExecutor(self.load.requests) as pool:
            return list(pool.map(lambda _: self._request(), range(self.load.requests)))

    def _request(self) -> Span:
        while (held := self._acquire()) is None:
            time.sleep(CLIENT_PAUSE)
        began = time.time()
        time.sleep(self.load.seconds)
        ended = time.time()
        key, version = held
        self._dynamodb.delete_item(
            TableName="locks",
            Key={"name": {"S": key}},
            ConditionExpression="version = :version",
            ExpressionAttributeValues={":version": {"S": version}},
        )
        return Span(began, ended)

    def _acquire(self) -> tuple[str, str] | None:
        """A lock and its version; None if each one is held."""
        for number in random.sample(range(self.load.slots), self.load.slots):
            key, version = f"{self.label}-{number}", str(uuid.uuid4())
            found = self._dynamodb.get_item(TableName="locks", Key={"name": {"S": key}}, ConsistentRead=True)
            if "Item" not in found and self._put(key, version):
                return key, version
        return None

    def _put(self, key: str, version: str) -> bool:
        item = {"name": {"S": key}, "version": {"S": version}, "lease_seconds": {"N": str(LEASE_SECONDS)}}
        try:
            self._dynamodb.put_item(TableName="locks", Item=item, ConditionExpression="attribute_not_exists(version)")
        except self._dynamodb.exceptions.ConditionalCheckFailedException:
            return False
        return True


DESIGNS: Sequence[type[Design]] = (Slotkeeper, AwsSample, LockClient, NaiveCounter)
