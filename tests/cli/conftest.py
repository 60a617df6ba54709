"""The operator command over an account in this process: queues, tables and outputs as the template declares them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from cfnlint.decode import cfn_yaml
from moto import mock_aws

from slotkeeper.processes import Process, Processes
from slotkeeper.request_queue import RequestQueue
from slotkeeper.requests import Delivery, parse_request
from slotkeeper.slots import Slots
from slotkeeper.workflow import Workflow
from slotkeeper_cli import app as command
from slotkeeper_cli import stack
from slotkeeper_cli.commands import holders

ROOT = Path(__file__).parents[2]
TEMPLATE: dict[str, Any] = cfn_yaml.load(str(ROOT / "template.yaml"))
STACK = "slotkeeper"
_MACHINE = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 60, "End": True}}}


@cache
def client(service: str) -> Any:
    """A client of moto's, one for all tests: to make one takes longer than most tests do."""
    make: Any = boto3.client
    return make(service, region_name="us-east-1", aws_access_key_id="local", aws_secret_access_key="local")


@dataclass
class Ended:
    """How a command ended, and what it said: on stdout, and on stderr."""

    exit_code: int
    out: str
    told: str

    @property
    def json(self) -> Any:
        """The result, as a script reads it."""
        return json.loads(self.out)


class Operator:
    """Runs commands, and knows the account that they work on."""

    def __init__(self, outputs: dict[str, str], cloudformation: Cloudformation) -> None:
        self.outputs, self.cloudformation = outputs, cloudformation
        self.dynamodb, self.sqs, self.glue = (client(name) for name in ("dynamodb", "sqs", "glue"))
        self.stepfunctions, self.logs = client("stepfunctions"), client("logs")
        self.slots = Slots(self.dynamodb, outputs["SlotTableName"])
        self.processes = Processes(self.dynamodb, outputs["SlotTableName"])
        self.queue = RequestQueue(self.sqs, outputs["RequestQueueUrl"], outputs["RequestDeadLetterQueueUrl"])
        self.workflow = Workflow(self.stepfunctions, outputs["WorkflowArn"])

    def run(self, *arguments: str, stdin: str | None = None) -> Ended:
        """One command, as a shell would call it. A terminal is never there."""
        out, told = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(told), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", StringIO(stdin or ""))
            with pytest.raises(SystemExit) as ended:
                command.main(list(arguments))
        code = ended.value.code
        assert isinstance(code, int)
        return Ended(code, out.getvalue(), told.getvalue())

    def process(self, name: str = "sample") -> Process:
        """A process that is there."""
        found = self.slots.read(name)
        assert found is not None
        return found

    def audited(self) -> list[dict[str, Any]]:
        """The audit lines, in their order."""
        group = self.outputs["AuditLogGroupName"]
        told = self.logs.filter_log_events(logGroupName=group)["events"]
        return [json.loads(event["message"]) for event in told]

    def send(self, request_id: str, process: str = "sample", receives: int = 1) -> Delivery:
        """Puts a request on the queue and gives it as a starter would receive it, without receiving it."""
        body = json.dumps({"process": process, "request_id": request_id})
        sent = self.sqs.send_message(
            QueueUrl=self.outputs["RequestQueueUrl"],
            MessageBody=body,
            MessageGroupId=process,
            MessageDeduplicationId=request_id,
        )
        return Delivery(sent["MessageId"], body, process, f"handle-{request_id}", "1", receives, 1_790_000_000.0)

    @staticmethod
    def workflow_name(delivery: Delivery) -> str:
        """The name of the execution that a delivery would start."""
        return parse_request(delivery).execution_name

    def hold(self, request_id: str, process: str = "sample", started: bool = True, confirmed: bool = True) -> str:
        """Lets a request hold a slot, RESERVED or RUNNING, with or without an execution; returns its name."""
        request = parse_request(self.send(request_id, process))
        name = request.execution_name
        self.slots.reserve(process, name, 1_790_000_000.0)
        if started:
            self.workflow.start(request)
        if confirmed:
            self.dynamodb.update_item(
                TableName=self.outputs["SlotTableName"],
                Key={"process_name": {"S": process}},
                UpdateExpression="SET holders.#me.#state = :running, holders.#me.job = job_name",
                ExpressionAttributeNames={"#me": name, "#state": "state"},
                ExpressionAttributeValues={":running": {"S": "RUNNING"}},
            )
        return name

    def stop(self, execution: str) -> None:
        """Aborts an execution."""
        arn = self.outputs["WorkflowArn"].replace(":stateMachine:", ":execution:")
        self.stepfunctions.stop_execution(executionArn=f"{arn}:{execution}")


@pytest.fixture(autouse=True)
def _nobodys_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "COLUMNS": "200",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "SLOTKEEPER_STACK", "SLOTKEEPER_LOCAL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    monkeypatch.setattr(holders.time, "sleep", lambda _: None)
    with mock_aws():
        outputs = _outputs()
        made = Operator(outputs, Cloudformation(outputs))
        made.cloudformation.attach(client("cloudformation"))
        monkeypatch.setattr(
            stack.boto3, "Session", lambda **_: SimpleNamespace(client=lambda service, **_: client(service))
        )
        made.processes.create("sample", 1, outputs["GlueJobName"])
        yield made
        made.cloudformation.detach()


def _outputs() -> dict[str, str]:
    """The stack's outputs, each made by the resource that it names where a command touches that."""
    made = {name: _made(name, resource) for name, resource in TEMPLATE["Resources"].items()}
    outputs = {}
    for name, declared in TEMPLATE["Outputs"].items():
        (resource,) = re.findall(r"'(?:Ref|Fn::GetAtt)': \[?'?(\w+)", str(declared["Value"]))[:1] or [""]
        outputs[name] = made.get(resource) or f"{name.lower()}"
    glue = client("glue")
    outputs["GlueJobName"] = "sample-job"
    glue.create_job(
        Name="sample-job",
        Role="role",
        Command={"Name": "pythonshell"},
        MaxRetries=0,
        ExecutionProperty={"MaxConcurrentRuns": 500},
    )
    return outputs


def _made(name: str, resource: dict[str, Any]) -> str:
    make: Callable[[str, dict[str, Any]], str] | None = _MAKERS.get(resource["Type"])
    return make(name, resource.get("Properties", {})) if make else ""


def _queue(name: str, properties: dict[str, Any]) -> str:
    fifo = properties.get("FifoQueue", False)
    attributes = {key: str(properties[key]) for key in ("VisibilityTimeout", "MaximumMessageSize") if key in properties}
    if fifo:
        attributes |= {"FifoQueue": "true", "DeduplicationScope": "messageGroup"}
        attributes["FifoThroughputLimit"] = "perMessageGroupId"
    made: str = client("sqs").create_queue(QueueName=name + ".fifo" * fifo, Attributes=attributes)["QueueUrl"]
    return made


def _table(name: str, properties: dict[str, Any]) -> str:
    client("dynamodb").create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=properties["AttributeDefinitions"],
        KeySchema=properties["KeySchema"],
    )
    return name


def _log_group(name: str, _properties: dict[str, Any]) -> str:
    client("logs").create_log_group(logGroupName=name)
    return name


def _state_machine(name: str, _properties: dict[str, Any]) -> str:
    made: str = client("stepfunctions").create_state_machine(
        name=name, definition=json.dumps(_MACHINE), roleArn="arn:aws:iam::123456789012:role/workflow"
    )["stateMachineArn"]
    return made


def _schedule_group(name: str, _properties: dict[str, Any]) -> str:
    client("scheduler").create_schedule_group(Name=name)
    return name


_MAKERS: dict[str, Callable[[str, dict[str, Any]], str]] = {
    "AWS::SQS::Queue": _queue,
    "AWS::DynamoDB::Table": _table,
    "AWS::Logs::LogGroup": _log_group,
    "AWS::Serverless::StateMachine": _state_machine,
    "AWS::Scheduler::ScheduleGroup": _schedule_group,
}


class Cloudformation:
    """Answers for one stack. moto's would need SAM's transform, and half a dozen packages for resources of no use here.

    `answers` may be given more: operation name -> what it is answered.
    """

    def __init__(self, outputs: dict[str, str]) -> None:
        self.parameters = {name: str(told.get("Default", "")) for name, told in TEMPLATE["Parameters"].items()}
        self._outputs = outputs
        self.answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"DescribeStacks": self._describe}

    def attach(self, client: Any) -> None:
        """From now on this client asks here."""
        self._events = client.meta.events
        self._events.register("before-call.cloudformation", self._answer)
        # What was asked stands in the serialized body; taking it before that is simpler.
        self._events.register("provide-client-params.cloudformation", self._note)

    def detach(self) -> None:
        """No longer."""
        self._events.unregister("before-call.cloudformation", self._answer)
        self._events.unregister("provide-client-params.cloudformation", self._note)

    def _note(self, params: dict[str, Any], **_: Any) -> None:
        self._asked = params

    def _answer(self, model: Any, **_: Any) -> tuple[Any, dict[str, Any]]:
        told = self.answers[model.name](self._asked)
        status = 400 if "Error" in told else 200
        return AWSResponse("", status, {}, None), told | {"ResponseMetadata": {"HTTPStatusCode": status}}

    def _describe(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["StackName"] != STACK:
            message = f"Stack with id {asked['StackName']} does not exist"
            return {"Error": {"Code": "ValidationError", "Message": message}}
        told = {
            "StackName": STACK,
            "StackStatus": "UPDATE_COMPLETE",
            "Parameters": [{"ParameterKey": k, "ParameterValue": v} for k, v in self.parameters.items()],
            "Outputs": [{"OutputKey": k, "OutputValue": v} for k, v in self._outputs.items()],
        }
        return {"Stacks": [told]}
