"""The context of a check: its processes and requests, their outcome, and waiting for it.

Every name begins with the run's name, `smoke-` and eight hex digits. Other processes and requests are not changed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError

from dev.smoke.facts import Failed, NotShown
from dev.smoke.stack_under_test import StackUnderTest
from slotkeeper.slots.process import Process
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import execution_name, process_of_execution
from slotkeeper.slots.rows import RequestRow, RequestRows
from slotkeeper.slots.work import MARKER

ALIVE = ("STARTING", "RUNNING", "STOPPING", "WAITING")
HIDDEN = 20  # seconds; matters only if this program dies before it makes a message visible again
BATCHES = 20  # receives per collect: bounds the reading of a queue with many other messages
INPUT = """date,precipitation,temp_max,temp_min,wind,weather
2012/01/01,0.0,12.8,5.0,4.7,drizzle
2012/01/02,10.9,10.6,2.8,4.5,rain
"""


@dataclass(frozen=True)
class Timings:
    """Seconds for each part of a run.

    hold: how long a job runs while another request waits for its slot.
    long: how long a job would run that the check stops.
    task_timeout: the Glue task's timeout in the check of it; longer than Glue takes to start a run.
    due: from now to the schedule's time.
    start: longest wait until a run is alive, or a message has reached a function.
    finish: longest wait for the workflow after its run has ended, with its checks of Glue.
    poll: between two reads.
    new_role: from the creation of a role to its first use.
    """

    hold: float
    long: float
    task_timeout: int
    due: float
    start: float
    finish: float
    poll: float
    new_role: float = 0


# A Python shell run takes about ten to sixty seconds to start. A workflow's checks are up to 60 s apart by default.
AWS = Timings(hold=25, long=420, task_timeout=90, due=75, start=180, finish=300, poll=1.0, new_role=20)
EMBEDDED = Timings(hold=8, long=60, task_timeout=2, due=2, start=120, finish=180, poll=0.1)


@dataclass
class RunMessages:
    """Collects the run's messages from shared queues. Other messages are made visible again immediately.

    Args:
        mark: the run's name, which the body of each of its messages contains.
    """

    sqs: Any
    mark: str
    _taken: dict[str, list[str]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def collect(self, url: str) -> list[str]:
        """Delete the run's messages from this queue, and return the bodies of all that were collected so far."""
        with self._lock:
            taken = self._taken.setdefault(url, [])
            foreign: list[str] = []
            try:
                for _ in range(BATCHES):
                    answer = self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=HIDDEN)
                    if not answer.get("Messages"):
                        break
                    for message in answer["Messages"]:
                        if self.mark not in message["Body"]:
                            foreign.append(message["ReceiptHandle"])
                            continue
                        taken.append(message["Body"])
                        self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            finally:
                for handle in foreign:
                    self.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
            return list(taken)


@dataclass
class CheckContext:
    """The part of the stack that one check uses.

    Args:
        run: the name of the whole run.
        check: the check's name.
        say: prints one line of progress.
        stopped: set when the user interrupts the run.
    """

    stack: StackUnderTest
    timings: Timings
    run: str
    check: str
    messages: RunMessages
    say: Callable[[str], None]
    stopped: Event
    executions: list[str] = field(default_factory=list)  # ARNs of executions that may be running
    sent: list[str] = field(default_factory=list)  # names of executions whose request was sent to the queue
    processes: list[str] = field(default_factory=list)
    undo: list[tuple[str, Callable[[], object]]] = field(default_factory=list)  # other objects: name, how to remove it
    _shared: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = self.stack.outputs["SlotTableName"]
        dynamodb = self.stack.client("dynamodb")
        self.slots = Slots(dynamodb, self.table)
        self.rows = RequestRows(dynamodb, self.stack.outputs["RequestTableName"])

    def once[Value](self, make: Callable[[CheckContext], Value]) -> Value:
        """What `make` returns for this check. It is called once; if it fails, each use raises the same error."""
        if make.__name__ not in self._shared:
            try:
                self._shared[make.__name__] = make(self)
            except Exception as error:  # it is raised again below
                self._shared[make.__name__] = error
        made = self._shared[make.__name__]
        if isinstance(made, Exception):
            raise made
        value: Value = made
        return value

    # ------------------------------------------------------------------------------------------ processes and requests

    @property
    def job(self) -> str:
        """The name of the sample job. Raises NotShown if the stack runs another job, which the check must not start."""
        job = self.stack.sample_job
        if job is None:
            raise NotShown("this stack runs your own Glue job; to run this check, deploy a stack without GlueJobName")
        return job

    def process(self, suffix: str = "") -> str:
        """Create a process for this check, with one slot, and return its name."""
        name = f"{self.run}-{self.check}{suffix}"
        self.processes.append(name)
        Processes(self.stack.client("dynamodb"), self.table).create(name, 1, self.job)
        return name

    def request(self, process: str, request_id: str, linger: float, **fields: object) -> dict[str, Any]:
        """The body of a request whose job waits for `linger` seconds and then summarizes two days of weather."""
        arguments = {
            "--input_key": f"smoke/{self.run}/input.csv",
            "--output_key": f"smoke/{self.run}/{process}-{request_id}.json",
            "--linger_seconds": f"{linger:g}",
        }
        return {"process": process, "request_id": request_id, "arguments": arguments, "attempt": 1, **fields}

    def send(self, process: str, request_id: str, linger: float, **fields: object) -> str:
        """Send a request as a producer does, and return its execution's name."""
        self.stack.client("sqs").send_message(
            QueueUrl=self.stack.outputs["RequestQueueUrl"],
            MessageBody=json.dumps(self.request(process, request_id, linger, **fields)),
            MessageGroupId=process,
            MessageDeduplicationId=str(uuid4()),
        )
        name = execution_name(process, request_id, 1)
        self.expect(name)
        self.sent.append(name)
        return name

    def expect(self, name: str) -> None:
        """Register an execution that may start, for the clean-up."""
        self.executions.append(self.arn(name))

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
            description: dict[str, Any] = self.stack.client("stepfunctions").describe_execution(executionArn=arn)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionDoesNotExist":
                raise
            return {"status": "NONE"}
        return description

    def history(self, arn: str) -> list[dict[str, Any]]:
        """The events of an execution, in order."""
        pages = self.stack.client("stepfunctions").get_paginator("get_execution_history").paginate(executionArn=arn)
        return [event for page in pages for event in page["events"]]

    def entered(self, arn: str) -> dict[str, float]:
        """When the execution last entered each state, in seconds since the epoch."""
        return {
            event["stateEnteredEventDetails"]["name"]: event["timestamp"].timestamp()
            for event in self.history(arn)
            if "stateEnteredEventDetails" in event
        }

    def glue_run(self, name: str) -> dict[str, Any] | None:
        """The newest Glue run of an execution, found as the workflow and the janitor find it."""
        listed = self.stack.client("glue").get_job_runs(JobName=self.job, MaxResults=50)["JobRuns"]
        runs: list[dict[str, Any]] = [each for each in listed if each.get("Arguments", {}).get(MARKER) == name]
        return max(runs, key=lambda each: each["StartedOn"], default=None)

    # --------------------------------------------------------------------------------------------------------- waiting

    def wait[Value](self, check: Callable[[], Value], what: str, seconds: float) -> Value:
        """Call `check` until its result is true, and return the result.

        Raises:
            Failed: it did not become true within `seconds`.
            NotShown: the user interrupted the run.
        """
        self.say(f"waiting for {what}")
        started = time.monotonic()
        while not (last := check()):
            if time.monotonic() - started > seconds:
                raise Failed(f"waited {seconds:.0f} s for {what}; the last result was {last!r}")
            if self.stopped.wait(self.timings.poll):
                raise NotShown("interrupted")
        return last

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

        run: dict[str, Any] = self.wait(running, f"a Glue run of {name}", self.timings.start)
        return run

    def wait_for_end(self, arn: str, *statuses: str) -> dict[str, Any]:
        """Wait until an execution has ended, and return it. Raises Failed if its status is not one of `statuses`."""

        def ended() -> Any:
            execution = self.execution(arn)
            return execution if execution["status"] not in ("NONE", "RUNNING", "PENDING_REDRIVE") else None

        name = arn.rsplit(":", 1)[-1]
        execution: dict[str, Any] = self.wait(ended, f"the end of {name}", self.timings.start + self.timings.finish)
        if execution["status"] not in statuses:
            raise Failed(
                f"{name} ended as {execution['status']}, {error_of(execution)}; expected {' or '.join(statuses)}"
            )
        return execution


def error_of(execution: Mapping[str, Any]) -> str:
    """Error and cause of an execution as text, at most 300 characters."""
    return f"error {execution.get('error', 'none')}: {execution.get('cause', 'no cause')}"[:300]
