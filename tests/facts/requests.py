"""The processes and requests of one check on the deployed stack. All are ended and removed after it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError

from slotkeeper.next_step import next_step
from slotkeeper.slots.process import Process
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import execution_name, process_of_execution
from slotkeeper.slots.rows import RequestRow, RequestRows
from slotkeeper.slots.work import MARKER
from tests.facts.account import ENDED, Account
from tests.facts.facts import Failed, NotShown
from tests.facts.machines import Machines

ALIVE = ("STARTING", "RUNNING", "STOPPING", "WAITING")
INPUT = """date,precipitation,temp_max,temp_min,wind,weather
2012/01/01,0.0,12.8,5.0,4.7,drizzle
2012/01/02,10.9,10.6,2.8,4.5,rain
"""


class Requests:
    """Requests for the stack's workflow, whose jobs are runs of the sample job.

    The clean-up ends the executions, then the Glue runs, and then removes the processes. If something is still alive,
    it keeps them, since the workflow or the janitor has to release their slots.
    """

    def __init__(self, aws: Account) -> None:
        self.aws, self.stack, self.timings = aws, aws.stack, aws.timings
        self.table, dynamodb = self.stack.outputs["SlotTableName"], aws.client("dynamodb")
        self.slots, self.processes = Slots(dynamodb, self.table), Processes(dynamodb, self.table)
        self.rows = RequestRows(dynamodb, self.stack.outputs["RequestTableName"])
        self._machines = Machines(aws)
        self.executions: list[str] = []  # ARNs of executions that may be running
        self._sent: list[str] = []  # names of executions whose request was sent to the queue
        self._created: list[str] = []  # names of processes
        self._alive = {"executions", "runs"}
        self._prefix = f"smoke/{aws.name('objects')}/"
        bucket = self.stack.outputs["DataBucketName"]
        aws.client("s3").put_object(Bucket=bucket, Key=f"{self._prefix}input.csv", Body=INPUT.encode())
        aws.undo += [
            (f"objects under {self._prefix} in {bucket}", self._remove_objects),
            (f"processes in {self.table}", self._remove_processes),
            ("Glue runs", self._end_runs),
            ("executions", self._end_executions),
        ]

    # ------------------------------------------------------------------------------------------ processes and requests

    @property
    def job(self) -> str:
        """The name of the sample job. Raises NotShown if the stack runs another job, which the check must not start."""
        job = self.stack.sample_job
        if job is None:
            raise NotShown("this stack runs your own Glue job; deploy one without GlueJobName to show it")
        return job

    def process(self) -> str:
        """Create a process with one slot, and return its name."""
        name = self.aws.name("process")
        self._created.append(name)
        self.processes.create(name, 1, self.job)
        return name

    def body(self, process: str, request_id: str, linger: float, **fields: object) -> dict[str, Any]:
        """The body of a request whose job waits for `linger` seconds and then summarizes two days of weather."""
        arguments = {
            "--input_key": f"{self._prefix}input.csv",
            "--output_key": f"{self._prefix}{process}-{request_id}.json",
            "--linger_seconds": f"{linger:g}",
        }
        return {"process": process, "request_id": request_id, "arguments": arguments, "attempt": 1, **fields}

    def send(self, process: str, request_id: str, linger: float, **fields: object) -> str:
        """Send a request as a producer does, and return its execution's name."""
        self.aws.client("sqs").send_message(
            QueueUrl=self.stack.outputs["RequestQueueUrl"],
            MessageBody=json.dumps(self.body(process, request_id, linger, **fields)),
            MessageGroupId=process,
            MessageDeduplicationId=str(uuid4()),
        )
        return self.expect(execution_name(process, request_id, 1))

    def expect(self, name: str) -> str:
        """Register an execution whose request is queued, for the clean-up."""
        self.executions.append(self.arn(name))
        self._sent.append(name)
        return name

    def item(self, process: str) -> Process:
        """Read the process. Raises Failed if its item is missing."""
        item = self.slots.read(process)
        if item is None:
            raise Failed(f"the item of process {process} is missing from {self.table}")
        return item

    def row(self, execution: str) -> RequestRow | None:
        """The request's row; None before it is accepted."""
        return self.rows.row(process_of_execution(execution), execution)

    # ------------------------------------------------------------------------------------------------------- outcomes

    def arn(self, name: str) -> str:
        """The ARN of an execution of the stack's workflow."""
        return f"{self.stack.outputs['WorkflowArn'].replace(':stateMachine:', ':execution:')}:{name}"

    def execution(self, arn: str) -> dict[str, Any]:
        """Describe the execution; `status` is NONE if it does not exist."""
        try:
            description: dict[str, Any] = self.aws.client("stepfunctions").describe_execution(executionArn=arn)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionDoesNotExist":
                raise
            return {"status": "NONE"}
        return description

    def history(self, arn: str) -> list[dict[str, Any]]:
        """The events of an execution, oldest first."""
        return self._machines.history(arn)

    def times(self, arn: str, kind: str = "Entered") -> dict[str, float]:
        """When the execution last entered each state, or "Exited" it, in seconds since the epoch."""
        details = f"state{kind}EventDetails"
        events = (event for event in self.history(arn) if details in event)
        return {event[details]["name"]: event["timestamp"].timestamp() for event in events}

    def glue_run(self, name: str) -> dict[str, Any] | None:
        """The newest Glue run of an execution, found as the workflow and the janitor find it."""
        listed = self.aws.client("glue").get_job_runs(JobName=self.job, MaxResults=50)["JobRuns"]
        runs: list[dict[str, Any]] = [each for each in listed if each.get("Arguments", {}).get(MARKER) == name]
        return max(runs, key=lambda each: each["StartedOn"], default=None)

    def wait_until_alive(self, name: str) -> dict[str, Any]:
        """Wait until the execution's Glue run is RUNNING, and return it. Raises Failed if it ended before."""

        def running() -> Any:
            run = self.glue_run(name)
            if run and run["JobRunState"] not in ALIVE:
                raise Failed(
                    f"the Glue run of {name} ended as {run['JobRunState']} before it could be checked "
                    f"({run.get('ErrorMessage', 'no reason given')}), but it should linger. Is the stack up to date?"
                )
            return run if run and run["JobRunState"] == "RUNNING" else None

        run: dict[str, Any] = self.aws.wait(running, f"a Glue run of {name}")
        return run

    def wait_for_end(self, arn: str, *statuses: str) -> dict[str, Any]:
        """Wait until an execution has ended, and return it. Raises Failed if its status is not one of `statuses`."""
        name, longest = arn.rsplit(":", 1)[-1], self.timings.start + self.timings.finish
        self.aws.wait(lambda: self.execution(arn)["status"] in ENDED, f"the end of {name}", longest)
        execution = self.execution(arn)
        if execution["status"] not in statuses:
            raise Failed(
                f"{name} ended as {execution['status']}, {error_of(execution)}; expected {' or '.join(statuses)}"
            )
        return execution

    # ------------------------------------------------------------------------------------------------------- clean-up

    def _end_executions(self) -> None:
        stepfunctions = self.aws.client("stepfunctions")

        def has_ended(arn: str) -> bool:
            return self.execution(arn)["status"] in (*ENDED, "NONE")

        for arn in self.executions:
            try:
                if not has_ended(arn):
                    stepfunctions.stop_execution(executionArn=arn, cause="the smoke test has ended")
            except ClientError:
                if not has_ended(arn):  # it may have closed after it was described
                    raise
        self._until(lambda: all(map(has_ended, self.executions)), "to close")
        self._alive.discard("executions")

    def _end_runs(self) -> None:
        def alive() -> list[str]:
            # Only a check with a process has started runs of the sample job; other stacks may not have that job.
            names = [arn.rsplit(":", 1)[-1] for arn in self.executions if self._created]
            runs = [self.glue_run(name) for name in names]
            return [run["Id"] for run in runs if run and run["JobRunState"] in ALIVE]

        if ids := alive():
            self.aws.client("glue").batch_stop_job_run(JobName=self.job, JobRunIds=ids)
            self._until(lambda: not alive(), "to end")
        self._alive.discard("runs")

    def _remove_processes(self) -> None:
        """Delete the processes, and their rows. All executions have closed and their Glue runs have ended.

        A request that is accepted later would be added after its process was removed. The rows are deleted last: a
        dispatch that has read the queue before ends what it still finds, or starts nothing without a slot.
        """
        if self._alive:
            commands = [next_step("process remove", process) for process in self._created]
            raise Failed(f"kept for the janitor; afterwards, {', '.join(commands)}")
        self._until(lambda: all(self.row(name) for name in self._sent), "to be accepted")
        dynamodb, rows = self.aws.client("dynamodb"), self.stack.outputs["RequestTableName"]
        for process in self._created:
            key = {"process_name": {"S": process}}
            dynamodb.delete_item(TableName=self.table, Key=key)
            for row in self.rows.rows(process).rows:
                dynamodb.delete_item(TableName=rows, Key=key | {"execution": {"S": row.execution}})

    def _remove_objects(self) -> None:
        """Delete all versions of the objects."""
        s3, bucket = self.aws.client("s3"), self.stack.outputs["DataBucketName"]
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=self._prefix):
            for each in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
                s3.delete_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """As Account.wait, also after the user has interrupted the run."""
        deadline = time.monotonic() + self.timings.finish
        while not condition():
            if time.monotonic() > deadline:
                raise Failed(f"waited {self.timings.finish:.0f} s for them {what}")
            time.sleep(self.timings.poll)


def error_of(execution: Mapping[str, Any]) -> str:
    """Error and cause of an execution as text, at most 300 characters."""
    return f"error {execution.get('error', 'none')}: {execution.get('cause', 'no cause')}"[:300]
