"""The four ways: the deployed one, and three that poll, made of the deployed one's own parts without the wake.

Each way has a queue, a starter, a workflow and a process of its own, so none stands in another's way. All share the
slot table, the Glue job and the engine.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import batched
from pathlib import Path
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.environment import ROOT
from dev.scenarios.runner.scenario import CannotGoOn
from dev.scenarios.slots.slot_records import read_slots
from dev.scenarios.soak.soak_stack import SCRIPT
from slotkeeper.slots.process import Processes

JOB = "one-second"
JOB_SECONDS = 1.0
WAKE = "wake"
WAKE_STATES = ("ReadWaiting", "IsRequestWaiting", "WakeWaiting")
AFTER_WAKE = "ChooseOutcome"
STARTER_CODE = ROOT / "functions" / "starter" / "app.py"
POLLING_CODE = Path(__file__).with_name("polling_starter.py")
# What makes the rivals' queues like the deployed one. Its dead-letter queue is never met: a window is minutes.
QUEUE_ATTRIBUTES = (
    "FifoQueue",
    "DeduplicationScope",
    "FifoThroughputLimit",
    "MessageRetentionPeriod",
    "MaximumMessageSize",
    "VisibilityTimeout",
)


@dataclass(frozen=True)
class Way:
    """A process and what serves it. `period`: seconds between two looks; None with a wake."""

    name: str
    period: int | None
    queue_url: str
    function: str
    workflow_arn: str


def without_wake(definition: str, queue_url: str, own_queue_url: str) -> str:
    """The deployed workflow, but after its release it goes straight to its end. Raises CannotGoOn if it is not the
    workflow that this was written for."""
    machine: dict[str, Any] = json.loads(definition.replace(queue_url, own_queue_url))
    states = machine["States"]
    missing = [name for name in ("ReleaseSlot", *WAKE_STATES, AFTER_WAKE) if name not in states]
    if missing:
        raise CannotGoOn(f"the workflow has no {', '.join(missing)} any more: it cannot be robbed of its wake")
    for name in WAKE_STATES:
        del states[name]
    text = json.dumps(machine)
    bypassed = text.replace(f'"Next": "{WAKE_STATES[0]}"', f'"Next": "{AFTER_WAKE}"')
    if bypassed == text or any(f'"{name}"' in bypassed for name in WAKE_STATES):
        raise CannotGoOn("the workflow comes to its wake by another way than it did: it cannot be robbed of it")
    return bypassed


class Stand:
    """The deployed stack, with the job, the rivals and their processes beside it."""

    def __init__(self, aws: EmbeddedAws, limit: int) -> None:
        self.aws, self.limit = aws, limit
        self.sqs, self.stepfunctions, self.functions, self.logs, self.trail = (
            aws.client(service) for service in ("sqs", "stepfunctions", "lambda", "logs", "cloudtrail")
        )
        self.table = aws.outputs["SlotTableName"]
        self._dynamodb = aws.client("dynamodb")
        self._processes = Processes(self._dynamodb, self.table)
        names = [function["FunctionName"] for function in self.functions.list_functions()["Functions"]]
        (self._starter,) = (name for name in names if "Starter" in name)
        self._make_job()

    def _make_job(self) -> None:
        bucket = self.aws.outputs["DataBucketName"]
        self.aws.client("s3").put_object(Bucket=bucket, Key=f"jobs/{JOB}.py", Body=SCRIPT.read_bytes())
        self.aws.client("glue").create_job(
            Name=JOB,
            Role="arn:aws:iam::000000000000:role/job",
            Command={"Name": "pythonshell", "ScriptLocation": f"s3://{bucket}/jobs/{JOB}.py"},
            ExecutionProperty={"MaxConcurrentRuns": 500},
        )

    def deployed(self) -> Way:
        """The stack's own way."""
        outputs = self.aws.outputs
        way = Way(WAKE, None, outputs["RequestQueueUrl"], self._starter, outputs["WorkflowArn"])
        self._ready(way)
        return way

    def polling(self, period: int) -> Way:
        """A way that looks again after `period` seconds."""
        name = f"poll-{period}"
        deployed = self.aws.outputs["RequestQueueUrl"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=deployed, AttributeNames=["All"])["Attributes"]
        own = {key: attributes[key] for key in QUEUE_ATTRIBUTES if key in attributes}
        queue_url: str = self.sqs.create_queue(QueueName=f"{name}.fifo", Attributes=own)["QueueUrl"]
        machine = self.stepfunctions.describe_state_machine(stateMachineArn=self.aws.outputs["WorkflowArn"])
        workflow_arn: str = self.stepfunctions.create_state_machine(
            name=name, roleArn=machine["roleArn"], definition=without_wake(machine["definition"], deployed, queue_url)
        )["stateMachineArn"]
        variables = {"POLL_SECONDS": str(period), "REQUEST_QUEUE_URL": queue_url, "WORKFLOW_ARN": workflow_arn}
        self._make_starter(name, queue_url, variables)
        way = Way(name, period, queue_url, name, workflow_arn)
        self._ready(way)
        return way

    def _make_starter(self, name: str, queue_url: str, variables: Mapping[str, str]) -> None:
        deployed = self.functions.get_function_configuration(FunctionName=self._starter)
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as code:
            for file in (STARTER_CODE, POLLING_CODE):
                code.writestr(file.name, file.read_text())
        self.functions.create_function(
            FunctionName=name,
            Code={"ZipFile": archive.getvalue()},
            Handler="polling_starter.handler",
            Layers=[layer["Arn"] for layer in deployed["Layers"]],
            Environment={"Variables": deployed["Environment"]["Variables"] | dict(variables)},
            **{key: deployed[key] for key in ("Role", "Runtime", "Timeout", "MemorySize")},
        )
        (mapping,) = self.functions.list_event_source_mappings(FunctionName=self._starter)["EventSourceMappings"]
        arn = self.sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        self.functions.create_event_source_mapping(
            FunctionName=name,
            EventSourceArn=arn,
            BatchSize=mapping["BatchSize"],
            FunctionResponseTypes=mapping["FunctionResponseTypes"],
        )

    def _ready(self, way: Way) -> None:
        """Its process, and a warm container: the first start takes seconds, which is nobody's fault."""
        self._processes.create(way.name, self.limit, JOB)
        answer = self.functions.invoke(FunctionName=way.function, Payload=b'{"Records": []}')
        if "FunctionError" in answer:
            raise CannotGoOn(f"the starter of {way.name} fails: {answer['Payload'].read().decode()}")

    def send(self, way: Way, count: int, label: str) -> None:
        """Makes a queue stand: `count` requests, ten a call."""
        arguments = {"--seconds": str(JOB_SECONDS), "--ending": "succeed"}
        for numbers in batched(range(count), 10, strict=False):
            entries = [
                {
                    "Id": str(number),
                    "MessageBody": json.dumps(
                        {"process": way.name, "request_id": f"{label}-{number}", "arguments": arguments}
                    ),
                    "MessageGroupId": way.name,
                    "MessageDeduplicationId": f"{label}-{number}",
                }
                for number in numbers
            ]
            if self.sqs.send_message_batch(QueueUrl=way.queue_url, Entries=entries).get("Failed"):
                raise CannotGoOn(f"SQS did not take the requests of {way.name}")

    def log_group(self, way: Way) -> str:
        """Where its starter's invocations are written down."""
        configured = self.functions.get_function_configuration(FunctionName=way.function)
        return str(configured.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{way.function}")

    def queued(self, way: Way) -> int:
        """Messages that stand on its queue."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.sqs.get_queue_attributes(QueueUrl=way.queue_url, AttributeNames=names)["Attributes"]
        return sum(int(answer[name]) for name in names)

    def admitted(self, way: Way) -> int:
        """Workflows that it has started so far."""
        pages = self.stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=way.workflow_arn)
        return sum(len(page["executions"]) for page in pages)

    def in_use(self, way: Way) -> int:
        """Slots of its process that are held."""
        return read_slots(self._dynamodb, self.table, way.name)[0]

    def clear(self, way: Way, patience: float = 30.0) -> None:
        """Takes away what still waits, and returns when the slots are free again. Raises CannotGoOn."""
        self.sqs.purge_queue(QueueUrl=way.queue_url)
        deadline = time.monotonic() + patience
        while self.in_use(way):
            if time.monotonic() > deadline:
                raise CannotGoOn(f"{way.name} holds slots {patience:.0f} s after its queue was emptied")
            time.sleep(0.2)
