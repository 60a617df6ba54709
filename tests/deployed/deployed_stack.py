"""The deployed stack for tests: a process for each test, requests whose jobs the test ends, and the final state."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dev.emulator import processes
from dev.emulator.aws import EmbeddedAws
from dev.emulator.deployment import STACK_NAME
from dev.emulator.faults import Faults
from slotkeeper.aws.dynamodb import Table
from slotkeeper.slots.doorbell import Doorbell
from slotkeeper.slots.leases import Leases
from slotkeeper.slots.process import Process
from slotkeeper.slots.processes import Operations, Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.rows import RequestRow, RequestRows, read_row
from tests.waiting import wait_until

GRACE = 2
CHECK_GAP = 1
JOB = "gated-job"
KILLED = "Runtime.HandlerError"  # of the next invocation of a container that was killed
ENDED = ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")
_numbers = itertools.count(1)


def update(aws: EmbeddedAws, **parameters: str) -> dict[str, str]:
    """Update these parameters of the deployed stack; return its outputs. Other parameters keep their values."""
    cloudformation = aws.client("cloudformation")

    def stack() -> Any:
        return cloudformation.describe_stacks(StackName=STACK_NAME)["Stacks"][0]

    cloudformation.update_stack(
        StackName=STACK_NAME,
        UsePreviousTemplate=True,
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        Parameters=[
            {"ParameterKey": key, "ParameterValue": parameters[key]}
            if key in parameters
            else {"ParameterKey": key, "UsePreviousValue": True}
            for key in (each["ParameterKey"] for each in stack()["Parameters"])
        ],
    )
    wait_until(lambda: not stack()["StackStatus"].endswith("_IN_PROGRESS"), "the update to end")
    updated = stack()
    assert updated["StackStatus"] == "UPDATE_COMPLETE", updated
    return {output["OutputKey"]: output["OutputValue"] for output in updated["Outputs"]}


def created(aws: EmbeddedAws, name: str, template: str, **parameters: str) -> dict[str, str]:
    """Create another stack; return its outputs."""
    cloudformation = aws.client("cloudformation")
    given = [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()]
    cloudformation.create_stack(StackName=name, TemplateBody=template, Parameters=given)

    def complete() -> Any:
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
        return stack["StackStatus"] == "CREATE_COMPLETE" and stack

    return {each["OutputKey"]: each["OutputValue"] for each in wait_until(complete, f"stack {name}")["Outputs"]}


def kill_containers(aws: EmbeddedAws) -> None:
    """Kill all containers during their work, as Lambda can do."""
    for pid in processes.session_members(aws.pid):
        if pid != aws.pid:
            processes.send_signal(pid, signal.SIGKILL)


class DeployedStack:
    """Clients and helpers for one deployed stack."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.aws = aws
        self.outputs = aws.outputs
        self.dynamodb = aws.client("dynamodb")
        self.sqs = aws.client("sqs")
        self.stepfunctions = aws.client("stepfunctions")
        self.glue = aws.client("glue")
        self.s3 = aws.client("s3")
        self._lambda = aws.client("lambda")
        self.faults = Faults(aws.state_dir)
        self.table = aws.outputs["SlotTableName"]
        self.queue_url = aws.outputs["RequestQueueUrl"]
        self.processes = Processes(self.dynamodb, self.table)
        self.slots = Slots(self.dynamodb, self.table)
        self.requests = RequestRows(self.dynamodb, aws.outputs["RequestTableName"])
        self._rows = Table(self.dynamodb, aws.outputs["RequestTableName"], "process_name", "execution")
        self.doorbell = Doorbell(self.sqs, aws.outputs["DispatchQueueUrl"])
        self.operations = Operations(self.processes, self.doorbell)
        self._gates = aws.state_dir / "gates"
        self._dead_letters: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.make_job(JOB, concurrent_runs=500)

    def make_job(self, name: str, concurrent_runs: int) -> str:
        """Create a Glue job whose runs wait at their gates."""
        script = Path(__file__).with_name("gated_job.py").read_bytes()
        bucket = self.outputs["DataBucketName"]
        self.s3.put_object(Bucket=bucket, Key="jobs/gated_job.py", Body=script)
        self.glue.create_job(
            Name=name,
            Role="arn:aws:iam::000000000000:role/job",
            Command={"Name": "pythonshell", "ScriptLocation": f"s3://{bucket}/jobs/gated_job.py"},
            DefaultArguments={"--gates": str(self._gates)},
            ExecutionProperty={"MaxConcurrentRuns": concurrent_runs},
        )
        return name

    def process(self, limit: int = 1, job: str = JOB) -> str:
        """Create a process for this test."""
        name = f"process-{next(_numbers)}"
        self.processes.create(name, limit, job)
        return name

    def send(self, process: str, request_id: str, **fields: Any) -> str:
        """Send a request whose job waits at the gate of the same name; return its execution name."""
        body = {
            "process": process,
            "request_id": request_id,
            "arguments": {"--gate": f"{process}/{request_id}"},
            **fields,
        }
        self.send_raw(json.dumps(body), process, f"{request_id}-{time.monotonic_ns()}")
        return execution_name(process, request_id, fields.get("attempt", 1))

    def send_raw(self, body: str, group: str, deduplication_id: str = "") -> None:
        """Send a message; requests may have any group."""
        self.sqs.send_message(
            QueueUrl=self.queue_url,
            MessageBody=body,
            MessageGroupId=group,
            MessageDeduplicationId=deduplication_id or f"d-{time.monotonic_ns()}",
        )

    def end(self, process: str, *request_ids: str, how: str = "succeed") -> None:
        """Let the jobs of these requests end."""
        for request_id in request_ids:
            gate = self._gates / process / request_id
            gate.mkdir(parents=True, exist_ok=True)
            (gate / how).touch()

    def close_gate(self, process: str, request_id: str) -> None:
        """Close the request's gate, so that its next job waits again."""
        shutil.rmtree(self._gates / process / request_id)

    def item(self, process: str) -> Process:
        item = self.slots.read(process)
        assert item is not None
        return item

    def holders(self, process: str) -> set[str]:
        return set(self.item(process).holders)

    def row(self, process: str, execution: str) -> RequestRow:
        """The request's whole row. Waits until it is accepted."""
        item = wait_until(lambda: self._rows.read((process, execution)), f"the row of {execution}")
        return read_row(item)

    def wait_for_end(self, process: str, execution: str, state: str) -> RequestRow:
        """Wait until a request has ended in this state and its end is published; return the row."""
        wait_until(lambda: self.row(process, execution).state == state, f"{execution} to be {state}")
        wait_until(lambda: self.row(process, execution).open is None, f"the end of {execution} to be published")
        return self.row(process, execution)

    def queued(self, process: str) -> list[str]:
        """The executions of a process's queue, in their order."""
        return [each.queued.execution for each in self.requests.queue(process).rows]

    @property
    def leases(self) -> Leases:
        """Leases, as a function of a stack's user has them that may read its requests and ring."""
        names = {"request_table_name": "RequestTableName", "dispatch_queue_url": "DispatchQueueUrl"}
        return Leases(self.table, self.dynamodb, self.sqs, **{name: self.outputs[n] for name, n in names.items()})

    def arn(self, execution: str) -> str:
        return f"{self.outputs['WorkflowArn'].replace(':stateMachine:', ':execution:')}:{execution}"

    def execution(self, name: str) -> dict[str, Any] | None:
        try:
            description: dict[str, Any] = self.stepfunctions.describe_execution(executionArn=self.arn(name))
        except self.stepfunctions.exceptions.ExecutionDoesNotExist:
            return None
        return description

    def status(self, name: str) -> str:
        return str((self.execution(name) or {}).get("status", "NONE"))

    def executions(self, process: str) -> list[dict[str, Any]]:
        """The executions of a process, in the order of their starts."""
        listed = self.stepfunctions.list_executions(stateMachineArn=self.outputs["WorkflowArn"])["executions"]
        mine = [execution for execution in listed if execution["name"].startswith(process + "-")]
        return sorted(mine, key=lambda execution: execution["startDate"])

    def states_of(self, name: str) -> list[str]:
        events = self.stepfunctions.get_execution_history(executionArn=self.arn(name), maxResults=1000)["events"]
        entered = (event.get("stateEnteredEventDetails") for event in events)
        return [details["name"] for details in entered if details]

    def runs(self, execution: str, job: str = JOB) -> list[dict[str, Any]]:
        """The Glue runs of an execution."""
        runs = []
        for page in self.glue.get_paginator("get_job_runs").paginate(JobName=job):
            runs += [r for r in page["JobRuns"] if r["Arguments"].get("--slotkeeper-execution") == execution]
        return runs

    def alive(self, process: str) -> int:
        """The number of live Glue runs of a process."""
        pages = self.glue.get_paginator("get_job_runs").paginate(JobName=JOB)
        runs = [run for page in pages for run in page["JobRuns"]]
        mine = [r for r in runs if r["Arguments"].get("--slotkeeper-execution", "").startswith(process + "-")]
        return sum(run["JobRunState"] in ("STARTING", "RUNNING", "STOPPING") for run in mine)

    def dead_letters(self, process: str) -> list[dict[str, Any]]:
        """The messages of a process that are no requests. All tests share their queue."""
        url = self.outputs["RequestDeadLetterQueueUrl"]
        answer = self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        for message in answer.get("Messages", []):
            self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            attributes = {key: value["StringValue"] for key, value in message["MessageAttributes"].items()}
            self._dead_letters[attributes["message_group"]].append({"body": message["Body"], **attributes})
        return self._dead_letters[process]

    @contextmanager
    def without_event_source(self, queue: str) -> Iterator[None]:
        """Disable the event source of this queue, by a part of its name."""
        listed = self._lambda.list_event_source_mappings()
        (uuid,) = (each["UUID"] for each in listed["EventSourceMappings"] if queue in each["EventSourceArn"])
        self._lambda.update_event_source_mapping(UUID=uuid, Enabled=False)
        try:
            yield
        finally:
            self._lambda.update_event_source_mapping(UUID=uuid, Enabled=True)

    def janitor(self) -> dict[str, int]:
        """Run the janitor; return its counts."""
        answer = self._lambda.invoke(FunctionName=self.outputs["JanitorFunctionName"], Payload=b"{}")
        counts: dict[str, Any] = json.loads(answer["Payload"].read())
        if counts.get("errorType") == KILLED:
            return self.janitor()
        assert "errorMessage" not in counts, counts
        return counts

    def wait_for_status(self, execution: str, *statuses: str) -> str:
        return (
            wait_until(
                lambda: (status := self.status(execution)) in statuses and status, f"{execution} to be {statuses}"
            )
            or ""
        )

    def wait_until_running(self, execution: str) -> None:
        """Wait until a Glue run of the execution is RUNNING."""
        wait_until(
            lambda: any(run["JobRunState"] == "RUNNING" for run in self.runs(execution)), f"a Glue run of {execution}"
        )

    def wait_until_queued(self, process: str, *executions: str) -> None:
        """Wait until the requests of these executions are the queue of the process."""
        wait_until(lambda: self.queued(process) == list(executions), f"{executions} to be queued")

    def wait_until_free(self, process: str) -> None:
        wait_until(lambda: not self.item(process).holders, f"{process} to be free")

    def run_janitor_until(self, condition: Any, what: str) -> None:
        """Run the janitor until the condition holds."""
        wait_until(lambda: self.janitor() is not None and condition(), what, interval=0.3)
