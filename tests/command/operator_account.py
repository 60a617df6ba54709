"""An account for the operator command: queues, tables and outputs as the template declares them."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import botocore.session
import pytest
import typer.main

from slotkeeper.slots.endings import Endings, Retention
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.grants import GrantMade, Grants
from slotkeeper.slots.intake import accept
from slotkeeper.slots.lease_protocol import LeaseSteps, LeaseTerm, Taken
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.plan import PlannedStart
from slotkeeper.slots.process import Process
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import Delivery, parse_request
from slotkeeper.slots.request_table import Leaving, RequestTable, granted_as
from slotkeeper.slots.returns import Requeued, Requeues
from slotkeeper.slots.rows import RequestRow, RequestRows, read_row
from slotkeeper.slots.targets import execution_arn
from slotkeeper.slots.work import MARKER, PARENT_FIELD
from slotkeeper_cli import app as command
from tests.command import json_page
from tests.simulation.account.account import AwsAccount
from tests.template.parsing import parsed_template
from tests.template.roles.operators import WatchedClient, check_page

ROOT = Path(__file__).parents[2]
TEMPLATE: dict[str, Any] = parsed_template()
STACK = "slotkeeper"
# When requests are sent, seconds since the epoch: each a millisecond after the one before.
NOW = 1_790_000_000.0


# The actions of the calls of the command that runs.
CALLED: set[str] = set()
_built = cache(typer.main.get_command)  # Typer builds all commands again for each call


@cache
def client(service: str) -> Any:
    """A client, shared by all tests, since making one takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)  # that of a test, which no file of this machine has
        return botocore.session.get_session().create_client(service, "us-east-1")


def command_client(service: str) -> Any:
    """The same for a command, whose calls are noted."""
    return WatchedClient(client(service), CALLED)


@dataclass
class Ended:
    """The exit code and the output of a command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The result on stdout, parsed."""
        return json.loads(self.stdout)


class Operator:
    """Runs commands on the account, and changes the account."""

    def __init__(self, aws: AwsAccount) -> None:
        self.aws = aws
        self.outputs, self.parameters = aws.outputs, aws.stack_parameters
        self.outputs |= make_stack(aws)
        self.parameters |= {name: str(each.get("Default", "")) for name, each in TEMPLATE["Parameters"].items()}
        self._sequence = count(1)
        self.event_source = "Enabled"
        aws.stubs += [
            ("lambda", {"ListEventSourceMappings": self._mappings}),
            ("stepfunctions", {"GetExecutionHistory": self._history}),
        ]
        self.histories: dict[str, list[dict[str, Any]]] = {}
        outputs = self.outputs
        self.dynamodb, self.sqs, self.glue = (client(name) for name in ("dynamodb", "sqs", "glue"))
        self.stepfunctions, self.logs = client("stepfunctions"), client("logs")
        self.slots = Slots(self.dynamodb, outputs["SlotTableName"])
        self.processes = Processes(self.dynamodb, outputs["SlotTableName"])
        self.grants = Grants(self.dynamodb, outputs["SlotTableName"])
        self.requests = RequestTable(self.dynamodb, outputs["RequestTableName"], outputs["SlotTableName"])
        self.requeues = Requeues(self.dynamodb, outputs["RequestTableName"], outputs["SlotTableName"], 30 * 86400)
        self.outcomes = Outcomes(self.dynamodb, outputs["RequestTableName"])
        self.rows = RequestRows(self.dynamodb, outputs["RequestTableName"])
        self.leases = LeaseSteps(self.dynamodb, outputs["SlotTableName"], self.requests)
        self.workflow = Workflow(self.stepfunctions, outputs["WorkflowArn"])
        self.processes.create("sample", 1, "sample-job")

    def run(self, *arguments: str, stdin: str | None = None) -> Ended:
        """Run a command as from a shell without a terminal."""
        stdout, stderr = StringIO(), StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", StringIO(stdin or ""))
            patch.setattr(typer.main, "get_command", _built)
            CALLED.clear()
            with pytest.raises(SystemExit) as ended:
                command.main(list(arguments))
        check_page(arguments, CALLED)
        code = ended.value.code
        assert isinstance(code, int)
        if "--json" in arguments and stdout.getvalue() and (name := json_page.command_of(arguments)):
            assert json_page.undocumented(name, json.loads(stdout.getvalue())) == [], "docs/json.md"
        return Ended(code, stdout.getvalue(), stderr.getvalue())

    def refuses(self, *arguments: str, exit_code: int = 3) -> str:
        """The reason for which a command is refused: it changes nothing, and writes no audit line."""
        before = self.contents(), self.audited()
        ended = self.run(*arguments)
        assert (ended.exit_code, self.contents(), self.audited()) == (exit_code, *before), ended.stderr
        return ended.stderr

    def asks(self, *arguments: str) -> str:
        """The question of a command, which changes nothing without a terminal and --yes."""
        return self.refuses(*arguments, exit_code=6)

    def contents(self) -> dict[str, Any]:
        """The items of all tables, the numbers of messages in all queues, and the executions."""
        counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found: dict[str, Any] = {}
        for name, value in self.outputs.items():
            if name.endswith("TableName"):
                found[name] = self.dynamodb.scan(TableName=value)["Items"]
            elif name.endswith("QueueUrl"):
                asked = self.sqs.get_queue_attributes(QueueUrl=value, AttributeNames=counts)["Attributes"]
                found[name] = sum(map(int, asked.values()))
        listed = self.stepfunctions.list_executions(stateMachineArn=self.outputs["WorkflowArn"])["executions"]
        return found | {"executions": [(one["name"], one["status"]) for one in listed]}

    def process(self, name: str = "sample") -> Process:
        """A process, which must exist."""
        process = self.slots.read(name)
        assert process is not None
        return process

    def audited(self) -> list[dict[str, Any]]:
        """The audit lines in order."""
        group = self.outputs["AuditLogGroupName"]
        events = self.logs.filter_log_events(logGroupName=group)["events"]
        return [json.loads(event["message"]) for event in events]

    def send(self, request_id: str, process: str = "sample", priority: str = "normal", **fields: Any) -> Delivery:
        """Send a request to RequestQueue, where it stays; return it as the starter would receive it."""
        delivery = self.delivery(request_id, process, priority, **fields)
        sent = self.sqs.send_message(
            QueueUrl=self.outputs["RequestQueueUrl"],
            MessageBody=delivery.body,
            MessageGroupId=process,
            MessageDeduplicationId=request_id,
        )
        return replace(delivery, message_id=sent["MessageId"])

    def delivery(self, request_id: str, process: str = "sample", priority: str = "normal", **fields: Any) -> Delivery:
        """A request as the starter would receive it."""
        fields = {"process": process, "request_id": request_id, "priority": priority, **fields}
        number = next(self._sequence)
        return Delivery(f"m-{number}", json.dumps(fields), process, str(number), NOW + number / 1000)

    def wait(self, request_id: str, process: str = "sample", priority: str = "normal", **fields: Any) -> str:
        """Let a request be queued; return its execution's name."""
        return self.accept(self.delivery(request_id, process, priority, **fields))

    def accept(self, delivery: Delivery) -> str:
        """Add the row of a delivery, as the starter does; return its execution's name."""
        request = parse_request(delivery)
        made = accept(self.requests, request, delivery.message_id, delivery.sent_at, delivery.sequence, NOW)
        return made.execution

    def row(self, execution: str, process: str = "sample") -> RequestRow:
        """The whole row of an execution, with body and token. It must exist."""
        return read_row(self.aws.tables.item(self.outputs["RequestTableName"], f"{process}\n{execution}"))

    def states(self, process: str = "sample") -> dict[str, str]:
        """The state of each request of a process, by its id and the number of its attempt, such as `a-1`."""
        return {f"{row.request_id}-{row.attempt}": row.state for row in self.rows.rows(process).rows}

    def hold(
        self, request_id: str, process: str = "sample", started: bool = True, confirmed: bool = True, **fields: Any
    ) -> str:
        """Let a request hold a slot, RESERVED or RUNNING, with or without an execution; return its name."""
        name = self.wait(request_id, process, **fields)
        self.start(name, process, started, confirmed)
        return name

    def start(self, name: str, process: str = "sample", started: bool = True, confirmed: bool = True) -> None:
        """Let a queued request hold a slot."""
        seen, row = self.process(process), self.row(name, process)
        granted = self.grants.grant(seen, [PlannedStart(name, row.weight or seen.default_weight, row.key)], 0, NOW)
        assert isinstance(granted, GrantMade)
        if started:
            arn = self.outputs["WorkflowArn"]
            self.stepfunctions.start_execution(stateMachineArn=arn, name=name, input=row.body)
            assert self.requests.mark_started(process, name, granted_as(granted.grants, 0), NOW)
        if confirmed:
            self.dynamodb.update_item(
                TableName=self.outputs["SlotTableName"],
                Key={"process_name": {"S": process}},
                UpdateExpression="SET holders.#me.#state = :running, holders.#me.job = target",
                ExpressionAttributeNames={"#me": name, "#state": "state"},
                ExpressionAttributeValues={":running": {"S": "RUNNING"}},
            )

    def succeed(self, execution: str, process: str = "sample") -> None:
        """Record the success of a request, as its workflow does before it releases the slot."""
        assert self.outcomes.succeeded(process, execution, NOW + 30)

    def fail(self, execution: str, code: str, cause: str, process: str = "sample") -> None:
        """Record the failure of a request, as its workflow does before it releases the slot."""
        assert self.outcomes.failed(process, execution, NOW + 30, code, cause)

    def leave(self, execution: str, end: Any, code: str, reason: str, process: str = "sample") -> None:
        """Let a queued request end without a start, and its end be published."""
        assert self.requests.leave(process, [Leaving(execution, end, code, reason)], NOW + 30)
        self.publish(execution, process)

    def publish(self, execution: str, process: str = "sample") -> None:
        """Let the end of a request be published, without an answer or an event: its row is marked."""
        table, retention, arn = (
            self.outputs["RequestTableName"],
            Retention(30 * 86400, 90 * 86400),
            self.workflow.execution_arn,
        )
        sender = Endings(self.dynamodb, table, Mock(), Mock(), Mock(), retention, arn, lambda: NOW + 30)
        assert sender.publish(process, [execution]) == []

    def give_back(self, execution: str, process: str = "sample") -> str:
        """Queue a request again whose slot was gone before its work began; return the next execution's name."""
        made = self.requeues.give_back(process, execution, NOW + 30)
        assert isinstance(made, Requeued)
        return made.execution

    def rings(self) -> list[dict[str, Any]]:
        """The doorbells that were rung, in order; each is read once."""
        return self.received("DispatchQueue")

    def received(self, queue: str) -> list[dict[str, Any]]:
        """The bodies of a queue's messages, in order; each is read once."""
        url = self.outputs[f"{queue}Url"]
        found: list[dict[str, Any]] = []
        while messages := self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            found += [json.loads(message["Body"]) for message in messages]
        return found

    def end(self, arn: str, status: str, **ending: Any) -> None:
        """Let an execution end so, which may have ended already."""
        head, name = arn.rsplit(":", 1)
        self.aws.execution(name, status, head.replace(":execution:", ":stateMachine:"), **ending)

    def _mappings(self, asked: dict[str, Any]) -> dict[str, Any]:
        is_work = asked["EventSourceArn"].endswith(":WorkQueue")
        most = int(self.parameters["WorkerConcurrency" if is_work else "StarterConcurrency"])
        as_deployed = {"BatchSize": 1 if is_work else 10, "FunctionResponseTypes": ["ReportBatchItemFailures"]}
        as_deployed |= {
            "ScalingConfig": {"MaximumConcurrency": most},
            "LastModified": datetime.fromtimestamp(NOW, UTC),
        }
        return {"EventSourceMappings": [{"UUID": "mapping-1", "State": self.event_source, **as_deployed, **asked}]}

    def _history(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked["executionArn"].rpartition(":")[2]
        return {"events": self.histories.get(name, [entered("RunGlueJob"), {"type": "ExecutionStarted"}])}

    def run_glue(self, execution: str, state: str = "RUNNING", seconds: int = 0) -> str:
        """Add a Glue run of an execution that began so long ago; return its id."""
        return self.aws.run_job("sample-job", state, {MARKER: execution}, started=time.time() - seconds)

    def release(self, execution: str, process: str = "sample") -> None:
        """Free the slot of a holder, as its workflow does after it has recorded the outcome."""
        assert self.slots.free(process, execution, self.process(process).holders[execution].raw)

    def stop(self, execution: str, machine: str = "") -> None:
        """Abort an execution of the workflow, or of another state machine."""
        arn = execution_arn(machine or self.outputs["WorkflowArn"], execution)
        self.stepfunctions.stop_execution(executionArn=arn)

    def stop_long_ago(self, execution: str) -> None:
        """Abort an execution of the workflow; with a grace time of 0 s it can have no further Glue run."""
        self.parameters["GraceSeconds"] = "0"
        self.stop(execution)

    def machine(self, process: str = "", kind: str = "STANDARD", key: str = "", **settings: Any) -> str:
        """Make a state machine that the workflow may start, and a process that runs it; return its ARN."""
        own = {"encryptionConfiguration": {"type": "CUSTOMER_MANAGED_KMS_KEY", "kmsKeyId": key}} if key else {}
        made = self.aws.make_machine(f"Load{kind}", kind, **own)
        self.parameters["MoreStateMachineArns"] = made
        if process:
            self.processes.create(process, 1, made, **settings)
        return made

    def run_child(self, execution: str, machine: str) -> str:
        """Start the child of an execution; return its ARN."""
        given = json.dumps({PARENT_FIELD: execution_arn(self.outputs["WorkflowArn"], execution)})
        started = self.stepfunctions.start_execution(stateMachineArn=machine, name=execution, input=given)
        return str(started["executionArn"])

    def lease(self, name: str, until: int, process: str = "sample", weight: int = 1) -> str:
        """Let a block of code hold a slot; return the lease's name."""
        assert self.leases.take(process, name, weight, LeaseTerm(until, "the-code"), NOW) == Taken()
        return name


def entered(state: str) -> dict[str, Any]:
    """The event of a state in an execution's history."""
    return {"type": "TaskStateEntered", "stateEnteredEventDetails": {"name": state}}


class StubbedCalls:
    """Stubs some calls of a service. Of two stubs of a call, that which was entered last answers.

    Args:
        answers: operation name -> function from the call's parameters to its response; None leaves it to the account.
    """

    def __init__(self, service: str, answers: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]]) -> None:
        self._stub = (service, answers)

    def __enter__(self) -> None:
        assert AwsAccount.current
        self._stubs = AwsAccount.current.stubs
        self._stubs.append(self._stub)

    def __exit__(self, *_: object) -> None:
        self._stubs.remove(self._stub)


def stack_of(*resources: tuple[str, str, str], **more: Callable[[dict[str, Any]], dict[str, Any]]) -> StubbedCalls:
    """Stub a stack of these resources, each with its logical id, physical id and type, and more of its calls."""
    names = ("LogicalResourceId", "PhysicalResourceId", "ResourceType")
    listed = [dict(zip(names, each, strict=True)) | {"ResourceStatus": "CREATE_COMPLETE"} for each in resources]
    return StubbedCalls("cloudformation", {"ListStackResources": lambda _: {"StackResourceSummaries": listed}, **more})


def make_stack(aws: AwsAccount) -> dict[str, str]:
    """Create the resources of the template that commands use; return the stack's outputs."""
    made = {name: _made(aws, name, resource) for name, resource in TEMPLATE["Resources"].items()}
    outputs = {}
    for name, declared in TEMPLATE["Outputs"].items():
        (resource,) = re.findall(r"'(?:Ref|Fn::GetAtt)': \[?'?(\w+)", str(declared["Value"]))[:1] or [""]
        default = TEMPLATE["Parameters"].get(resource, {}).get("Default")
        outputs[name] = made.get(resource) or str(default or name.lower())
    outputs["GlueJobName"] = "sample-job"
    aws.stack_name = STACK
    aws.make_job("sample-job", MaxRetries=0, ExecutionProperty={"MaxConcurrentRuns": 500})
    aws.parameters[outputs["RetryPolicyParameterName"]] = "{}"
    return outputs


def _made(aws: AwsAccount, name: str, resource: dict[str, Any]) -> str:
    """Create a resource, if commands use it; return its physical id, or nothing."""
    properties = resource.get("Properties", {})
    match resource["Type"]:
        case "AWS::SQS::Queue":
            sizes = {key: str(properties[key]) for key in ("MaximumMessageSize",) if key in properties}
            physical = name + ".fifo" * properties.get("FifoQueue", False)
            return aws.make_queue(physical, properties.get("VisibilityTimeout", 30), **sizes)
        case "AWS::DynamoDB::Table":
            aws._CreateTable(properties | {"TableName": name})
        case "AWS::Logs::LogGroup":
            aws.log_groups[name] = []
        case "AWS::StepFunctions::StateMachine":
            return aws.make_machine(name)
        case "AWS::Scheduler::ScheduleGroup":
            pass
        case _:
            return ""
    return name
