"""The deployed stack in a soak: its processes and their job, shorter times, and the faults from outside.

Only times are changed, not the protocol: a Glue minute lasts seconds, the visibility timeouts of the queues are seconds
instead of three minutes, and the run invokes the janitor every few seconds, with a shorter timeout.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError

from dev.emulator import processes, queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.local_clients import local_client
from dev.scenarios.runner.audit import Journal
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.ending_queue import EndingQueue
from slotkeeper.slots.processes import Operations, Processes
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.request_table import Leaving, RequestTable
from slotkeeper.slots.rows import RequestRows

from .soak_plan import PREFIX, PROCESSES
from .soak_receivers import Receivers
from .soak_report import SentMessage

GRACE, CHECK_GAP, JANITOR_PERIOD = 2, 1, 3.0  # seconds
JANITOR_TIMEOUT = 40  # seconds; with the template's 120, no janitor runs for two minutes after one was killed
VISIBILITY = 6  # seconds; with the template's 180, messages would wait for three minutes after each kill
ENGINE = {"SLOTKEEPER_GLUE_MINUTE_SECONDS": "15", "SLOTKEEPER_GLUE_PLACE_HELD_SECONDS": "1"}
JOB = "soak-job"
PARAMETERS = {
    "JanitorSchedule": "rate(1 day)",
    "GraceSeconds": str(GRACE),
    "CheckGapSeconds": str(CHECK_GAP),
    "WorkTimeoutMinutes": "1",
    "MoreGlueJobArns": f"arn:aws:glue:us-east-1:000000000000:job/{JOB}",
}
SCRIPT = Path(__file__).with_name("soak_job.py")
GLUE_SCRIPT = re.compile(r"/glue-[^/\s]+/[^/\s]+\.py\b")  # as in dev/emulator/engine/glue_script.py
ATTEMPTS = 8  # of the run's own calls, which faults and engine restarts affect too


def function_named(part: str, functions: Any) -> str:
    """The only function whose name contains `part`."""
    names = [function["FunctionName"] for function in functions.list_functions()["Functions"]]
    (name,) = (name for name in names if part in name)
    return str(name)


def create_script_job(aws: EmbeddedAws, name: str, concurrent_runs: int) -> None:
    """Create a Glue job that runs soak_job.py."""
    bucket, key = aws.outputs["DataBucketName"], f"jobs/{name}.py"
    aws.client("s3").put_object(Bucket=bucket, Key=key, Body=SCRIPT.read_bytes())
    aws.client("glue").create_job(
        Name=name,
        Role="arn:aws:iam::000000000000:role/job",
        Command={"Name": "pythonshell", "ScriptLocation": f"s3://{bucket}/{key}"},
        ExecutionProperty={"MaxConcurrentRuns": concurrent_runs},
    )


class SoakStack:
    """Clients of one deployed stack."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.aws = aws
        self.outputs = outputs = aws.outputs
        self.dynamodb, self.sqs, self.stepfunctions, self.functions, self.events = (
            local_client(service, aws.endpoint, attempts=ATTEMPTS)
            for service in ("dynamodb", "sqs", "stepfunctions", "lambda", "events")
        )
        self.queue_url, table = outputs["RequestQueueUrl"], outputs["SlotTableName"]
        self.processes, self.doorbell = Processes(self.dynamodb, table), Doorbell(self.sqs, outputs["DispatchQueueUrl"])
        self._endings = EndingQueue(self.sqs, outputs["EndingQueueUrl"])
        self.operations = Operations(self.processes, self.doorbell)
        self.rows = RequestRows(self.dynamodb, outputs["RequestTableName"])
        self._requests = RequestTable(self.dynamodb, outputs["RequestTableName"], table)
        self.journal = Journal(aws.state_dir / "journal.jsonl", outputs)
        clients = (self.sqs, self.stepfunctions, self.events, local_client("sns", aws.endpoint))
        self.receivers = Receivers(outputs, *clients)
        self.starter = function_named("Starter", self.functions)
        rules = self.events.list_rules()["Rules"]
        self._status_rules = [rule["Name"] for rule in rules if "aws.states" in rule.get("EventPattern", "")]

    def prepare(self, limits: Mapping[str, int]) -> None:
        """Create the job and the processes, and set the short times."""
        # A little more than all slots, so that starts sometimes exceed the runs that Glue still counts (F3).
        create_script_job(self.aws, JOB, sum(limits.values()) + 2)
        for process, limit in limits.items():
            self.processes.create(process, limit, JOB)
        for queue in ("RequestQueueUrl", "DispatchQueueUrl", "EndingQueueUrl"):
            attributes = {"VisibilityTimeout": str(VISIBILITY)}
            self.sqs.set_queue_attributes(QueueUrl=self.outputs[queue], Attributes=attributes)
        self.functions.update_function_configuration(
            FunctionName=self.outputs["JanitorFunctionName"], Timeout=JANITOR_TIMEOUT
        )
        # The first containers take seconds to start.
        self.functions.invoke(FunctionName=self.starter, Payload=b'{"Records": []}')

    # ------------------------------------------------------------------------------------------------------- messages

    def send(self, process: str, request_id: str, body: str, *, bad: str = "") -> SentMessage:
        answer = self.sqs.send_message(
            QueueUrl=self.queue_url, MessageBody=body, MessageGroupId=process, MessageDeduplicationId=str(uuid4())
        )
        return SentMessage(process, request_id, answer["MessageId"], time.time(), body, bad)

    def left(self) -> int:
        """The messages on RequestQueue and EndingQueue, the queued requests, and the ends that are not published."""
        unpublished = sum(len(self.rows.unpublished(each).rows) for each in PROCESSES)
        queued = sum(len(self.queue(each)) for each in PROCESSES)
        urls = (self.queue_url, self.outputs["EndingQueueUrl"])
        return sum(queue_reading.total(self.sqs, url) for url in urls) + queued + unpublished

    def queue(self, process: str) -> list[str]:
        """The executions of the queued requests of a process, in their order."""
        return [each.queued.execution for each in self.rows.queue(process).rows]

    def ring(self, process: str) -> None:
        """Ring although nothing has changed."""
        self.doorbell.ring(Bell(process))

    def cancel(self, process: str, request_id: str) -> bool:
        """Cancel a request as an operator does; False if it is not queued any more."""
        name = execution_name(process, request_id, 1)
        leaving = Leaving(name, "CANCELLED", "Cancelled", "by make soak")
        is_cancelled = bool(self._requests.leave(process, [leaving], time.time()))
        self._endings.publish(process, [name])
        self.doorbell.ring(Bell(process))
        return is_cancelled

    # ----------------------------------------------------------------------------------------------------- executions

    def running(self) -> list[str]:
        return self._listed("RUNNING")

    def unsuccessful(self) -> list[str]:
        """The newest executions of each status that ended without success."""
        return [name for status in ("FAILED", "ABORTED", "TIMED_OUT") for name in self._listed(status)[:10]]

    def _listed(self, status: str) -> list[str]:
        arn = self.outputs["WorkflowArn"]
        answer = self.stepfunctions.list_executions(stateMachineArn=arn, statusFilter=status, maxResults=1000)
        names = [execution["name"] for execution in answer["executions"]]
        return [name for name in names if name.startswith(PREFIX)]

    def abort(self, name: str) -> bool:
        return self._control(self.stepfunctions.stop_execution, name)

    def redrive(self, name: str) -> bool:
        return self._control(self.stepfunctions.redrive_execution, name)

    def _control(self, call: Any, name: str) -> bool:
        """False if the execution's status does not allow the call."""
        try:
            call(executionArn=self._arn(name))
        except ClientError:
            return False
        return True

    def _arn(self, name: str) -> str:
        return f"{self.outputs['WorkflowArn'].replace(':stateMachine:', ':execution:')}:{name}"

    # -------------------------------------------------------------------------------- events, containers and janitor

    def status_events(self, *, lost: bool) -> None:
        """Lose all status events of workflows, or deliver them again."""
        for rule in self._status_rules:
            (self.events.disable_rule if lost else self.events.enable_rule)(Name=rule)

    def kill_containers(self) -> int:
        """Kill all containers of functions, as Lambda may, and no script of a Glue run. Returns their number."""
        containers = [
            pid
            for pid in processes.session_members(self.aws.pid)
            if pid != self.aws.pid and not GLUE_SCRIPT.search(processes.command_line(pid))
        ]
        for pid in containers:
            processes.send_signal(pid, signal.SIGKILL)
        return len(containers)
