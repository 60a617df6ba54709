"""The variants: the deployed stack with a Glue job or a state machine, and those that poll, without the wake.

Each variant that polls has its own queue, starter and workflow, made of the deployed parts: without registration,
second check and wake, a refused message is hidden for the period. All share the slot table and the engine.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import batched
from pathlib import Path
from typing import Any

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.environment import ROOT
from dev.scenarios.runner.scenario import CannotContinue
from dev.scenarios.slots.slot_stack import item_of
from dev.scenarios.soak.soak_stack import create_script_job, function_named
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.rate import Rate

JOB = "one-second"
JOB_SECONDS = 1.0
JOB_ARGUMENTS = {"--seconds": str(JOB_SECONDS), "--ending": "succeed"}
WAKE, WAKE_CHILDREN = "wake", "wake-children"
CHILD_SECONDS = int(JOB_SECONDS)
CHILD = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": CHILD_SECONDS, "End": True}}}
WAKE_STATES = ("ReadWaiting", "IsRequestWaiting", "WakeWaiting", "IsReceiptHandleRefused", "ClearWaiting")
AFTER_WAKE = "ChooseOutcome"
STARTER_CODE = ROOT / "functions" / "starter" / "app.py"
POLLING_CODE = Path(__file__).with_name("polling_starter.py")
# Copied from the deployed queue, without its dead-letter queue: a window lasts minutes and uses none.
QUEUE_ATTRIBUTES = (
    "FifoQueue",
    "DeduplicationScope",
    "FifoThroughputLimit",
    "MessageRetentionPeriod",
    "MaximumMessageSize",
    "VisibilityTimeout",
)


@dataclass(frozen=True)
class Variant:
    """A process with its queue, function and workflow.

    Args:
        period: seconds between two polls; None with a wake.
        work: the request's fields for the run.
    """

    name: str
    period: int | None
    queue_url: str
    function: str
    workflow_arn: str
    work: Mapping[str, Any] = field(default_factory=lambda: {"arguments": JOB_ARGUMENTS})


def without_wake(definition: str, queue_url: str, own_queue_url: str) -> str:
    """The deployed workflow without the states between its release and its end. Raises CannotContinue for another
    form of workflow."""
    machine: dict[str, Any] = json.loads(definition.replace(queue_url, own_queue_url))
    states = machine["States"]
    missing = [name for name in ("ReleaseSlot", *WAKE_STATES, AFTER_WAKE) if name not in states]
    if missing:
        raise CannotContinue(f"the workflow has no state {', '.join(missing)}: its wake cannot be removed")
    for name in WAKE_STATES:
        del states[name]
    text = json.dumps(machine)
    bypassed = text.replace(f'"Next": "{WAKE_STATES[0]}"', f'"Next": "{AFTER_WAKE}"')
    if bypassed == text or any(f'"{name}"' in bypassed for name in WAKE_STATES):
        raise CannotContinue("the workflow reaches its wake by another way than expected: it cannot be removed")
    return bypassed


class BenchmarkStack:
    """The deployed stack with the job, the polling variants and a process for each variant."""

    def __init__(self, aws: EmbeddedAws, limit: int) -> None:
        self.aws, self.limit = aws, limit
        self.sqs, self.stepfunctions, self.functions, self.logs = (
            aws.client(service) for service in ("sqs", "stepfunctions", "lambda", "logs")
        )
        self.table = aws.outputs["SlotTableName"]
        self._processes = Processes(aws.client("dynamodb"), self.table)
        self._starter = function_named("Starter", self.functions)
        create_script_job(aws, JOB, 500)

    def deployed(self) -> Variant:
        """The stack itself."""
        outputs = self.aws.outputs
        return self._ready(Variant(WAKE, None, outputs["RequestQueueUrl"], self._starter, outputs["WorkflowArn"]))

    def with_children(self) -> Variant:
        """The stack itself, whose process runs a state machine that takes as long as the job."""
        outputs = self.aws.outputs
        role = self.stepfunctions.describe_state_machine(stateMachineArn=outputs["WorkflowArn"])["roleArn"]
        child = self.stepfunctions.create_state_machine(name="child", roleArn=role, definition=json.dumps(CHILD))
        queue_url, workflow_arn = outputs["RequestQueueUrl"], outputs["WorkflowArn"]
        variant = Variant(WAKE_CHILDREN, None, queue_url, self._starter, workflow_arn, work={"input": {}})
        return self._ready(variant, child["stateMachineArn"])

    def polling(self, period: int) -> Variant:
        """A variant that polls every `period` seconds."""
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
        return self._ready(Variant(name, period, queue_url, name, workflow_arn))

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

    def _ready(self, variant: Variant, target: str = JOB) -> Variant:
        """The variant, after its process was created and its starter invoked: the first container takes seconds."""
        self._processes.create(variant.name, self.limit, target)
        answer = self.functions.invoke(FunctionName=variant.function, Payload=b'{"Records": []}')
        if "FunctionError" in answer:
            raise CannotContinue(f"the starter of {variant.name} fails: {answer['Payload'].read().decode()}")
        return variant

    def set_rate(self, variant: Variant, rate: Rate) -> None:
        """Set the rate of its process."""
        self._processes.set_rate(variant.name, rate)

    def send(self, variant: Variant, count: int, label: str) -> None:
        """Send `count` requests, ten per call."""
        for numbers in batched(range(count), 10, strict=False):
            entries = [
                {
                    "Id": str(number),
                    "MessageBody": json.dumps(
                        {"process": variant.name, "request_id": f"{label}-{number}", **variant.work}
                    ),
                    "MessageGroupId": variant.name,
                    "MessageDeduplicationId": f"{label}-{number}",
                }
                for number in numbers
            ]
            if self.sqs.send_message_batch(QueueUrl=variant.queue_url, Entries=entries).get("Failed"):
                raise CannotContinue(f"SQS refused requests of {variant.name}")

    def log_group(self, variant: Variant) -> str:
        configured = self.functions.get_function_configuration(FunctionName=variant.function)
        return str(configured.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{variant.function}")

    def queued(self, variant: Variant) -> int:
        return queue_reading.total(self.sqs, variant.queue_url)

    def admitted(self, variant: Variant) -> int:
        """The number of workflows that it has started."""
        pages = self.stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=variant.workflow_arn)
        return sum(len(page["executions"]) for page in pages)

    def in_use(self, variant: Variant) -> int:
        """The slots of its process that are held."""
        return item_of(self.aws, variant.name).slots_in_use

    def clear(self, variant: Variant, patience: float = 30.0) -> None:
        """Purge its queue, and return when its slots are free. Raises CannotContinue after `patience` seconds."""
        self.sqs.purge_queue(QueueUrl=variant.queue_url)
        deadline = time.monotonic() + patience
        while self.in_use(variant):
            if time.monotonic() > deadline:
                raise CannotContinue(f"{variant.name} holds slots {patience:.0f} s after its queue was purged")
            time.sleep(0.2)
