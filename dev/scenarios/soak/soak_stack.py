"""The deployed stack as the soak uses it: its processes and their job, shorter times, and every fault it can cause.

Times that AWS fixes or the template chooses are shortened, never the protocol: a Glue minute lasts seconds, the
queue's default visibility is seconds instead of three minutes, and the run invokes the janitor every few seconds.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from dev.emulator import processes
from dev.emulator.aws import EmbeddedAws
from dev.emulator.local_clients import local_client
from slotkeeper.slots.operations import Operations
from slotkeeper.slots.process import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue
from slotkeeper.slots.request import execution_name

from .soak_records import JanitorRun, Journal, SentMessage

GRACE, LOOK_GAP, JANITOR_PERIOD = 2, 1, 3.0  # seconds
VISIBILITY = 6  # seconds; the template's 180 would leave a group alone for three minutes after each kill
ENGINE = {"SLOTKEEPER_GLUE_MINUTE_SECONDS": "15", "SLOTKEEPER_GLUE_PLACE_HELD_SECONDS": "1"}
PARAMETERS = {
    "JanitorSchedule": "rate(1 day)",
    "GraceSeconds": str(GRACE),
    "LookGapSeconds": str(LOOK_GAP),
    "GlueTimeoutMinutes": "1",
}
JOB = "soak-job"
SCRIPT = Path(__file__).with_name("soak_job.py")
GLUE_SCRIPT = re.compile(r"/glue-[^/\s]+/[^/\s]+\.py\b")  # where dev/emulator/engine/glue_script.py puts it
ATTEMPTS = 8  # of the run's own calls: faults meet them too, and the engine restarts now and then


class SoakStack:
    """Clients of one deployed stack."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.aws = aws
        self.outputs = outputs = aws.outputs
        self.dynamodb, self.sqs, self.stepfunctions, self.glue, self.functions, self.events = (
            local_client(service, aws.endpoint, attempts=ATTEMPTS)
            for service in ("dynamodb", "sqs", "stepfunctions", "glue", "lambda", "events")
        )
        # A janitor run that is cut off does not count: it is not tried again.
        self._janitor = local_client("lambda", aws.endpoint)
        self.table, self.queue_url = outputs["SlotTableName"], outputs["RequestQueueUrl"]
        self.processes = Processes(self.dynamodb, self.table)
        slots, queue = Slots(self.dynamodb, self.table), RequestQueue(self.sqs, self.queue_url)
        self.operations = Operations(self.processes, slots, queue)
        self.journal = Journal(aws.state_dir / "journal.jsonl", self.table)
        self.starter = self._function("Starter")
        rules = self.events.list_rules()["Rules"]
        self._status_rules = [rule["Name"] for rule in rules if "aws.states" in rule.get("EventPattern", "")]

    def _function(self, part: str) -> str:
        names = [function["FunctionName"] for function in self.functions.list_functions()["Functions"]]
        (name,) = (name for name in names if part in name)
        return str(name)

    def prepare(self, limits: Mapping[str, int]) -> None:
        """The job, the processes, and the short times."""
        s3, bucket = self.aws.client("s3"), self.outputs["DataBucketName"]
        s3.put_object(Bucket=bucket, Key="jobs/soak_job.py", Body=SCRIPT.read_bytes())
        self.glue.create_job(
            Name=JOB,
            Role="arn:aws:iam::000000000000:role/job",
            Command={"Name": "pythonshell", "ScriptLocation": f"s3://{bucket}/jobs/soak_job.py"},
            # A little more than all slots: a run that Glue still counts is met now and then (F3).
            ExecutionProperty={"MaxConcurrentRuns": sum(limits.values()) + 2},
        )
        for process, limit in limits.items():
            self.processes.create(process, limit, JOB)
        self.sqs.set_queue_attributes(QueueUrl=self.queue_url, Attributes={"VisibilityTimeout": str(VISIBILITY)})
        configured = self.functions.get_function_configuration(FunctionName=self.starter)["Environment"]["Variables"]
        variables = configured | {"QUEUE_VISIBILITY_SECONDS": str(VISIBILITY)}
        self.functions.update_function_configuration(FunctionName=self.starter, Environment={"Variables": variables})
        # The first containers take seconds to start, which is no finding.
        self.functions.invoke(FunctionName=self.starter, Payload=b'{"Records": []}')
        self.run_janitor()

    # ------------------------------------------------------------------------------------------------------- messages

    def send(self, process: str, request_id: str, body: str, deduplication_id: str, *, bad: str = "") -> SentMessage:
        """Sends a message; what SQS answered."""
        answer = self.sqs.send_message(
            QueueUrl=self.queue_url,
            MessageBody=body,
            MessageGroupId=process,
            MessageDeduplicationId=deduplication_id,
        )
        return SentMessage(process, request_id, answer["MessageId"], answer["SequenceNumber"], time.time(), body, bad)

    def redeliver(self, sent: SentMessage) -> None:
        """Gives a message to the starter once more, with a receipt handle that is spent."""
        record = {
            "messageId": sent.message_id,
            "receiptHandle": f"spent-{sent.message_id}",
            "body": sent.body,
            "attributes": {
                "ApproximateReceiveCount": "2",
                "SentTimestamp": str(int(sent.at * 1000)),
                "SequenceNumber": sent.sequence,
                "MessageGroupId": sent.process,
            },
            "messageAttributes": {},
            "eventSource": "aws:sqs",
        }
        payload = json.dumps({"Records": [record]}).encode()
        self.functions.invoke(FunctionName=self.starter, InvocationType="Event", Payload=payload)

    def wake_without_release(self, process: str) -> bool:
        """Makes a waiting message visible although no slot was released."""
        key = {"process_name": {"S": process}}
        item = self.dynamodb.get_item(TableName=self.table, Key=key)["Item"]
        if "waiting" not in item:
            return False
        handle = item["waiting"]["M"]["receipt_handle"]["S"]
        try:
            self.sqs.change_message_visibility(QueueUrl=self.queue_url, ReceiptHandle=handle, VisibilityTimeout=0)
        except ClientError:
            return False
        return True

    def queued(self) -> int:
        """Messages on RequestQueue: visible, hidden and in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=names)["Attributes"]
        return sum(int(answer[name]) for name in names)

    # ----------------------------------------------------------------------------------------------------- executions

    def running(self) -> list[str]:
        """The names of the executions that run."""
        return self._listed("RUNNING")

    def unsuccessful(self) -> list[str]:
        """Of those that closed without success, the newest of each kind."""
        return [name for status in ("FAILED", "ABORTED", "TIMED_OUT") for name in self._listed(status)[:10]]

    def _listed(self, status: str) -> list[str]:
        arn = self.outputs["WorkflowArn"]
        answer = self.stepfunctions.list_executions(stateMachineArn=arn, statusFilter=status, maxResults=1000)
        return [execution["name"] for execution in answer["executions"]]

    def has_started(self, sent: SentMessage) -> bool:
        """Whether a request's first workflow was started, so that its message is a redelivery from now on."""
        try:
            name = execution_name(sent.process, sent.request_id, 1)
            self.stepfunctions.describe_execution(executionArn=self._arn(name))
        except self.stepfunctions.exceptions.ExecutionDoesNotExist:
            return False
        return True

    def abort(self, name: str) -> bool:
        return self._control(self.stepfunctions.stop_execution, name)

    def redrive(self, name: str) -> bool:
        return self._control(self.stepfunctions.redrive_execution, name)

    def _control(self, call: Any, name: str) -> bool:
        """False if it had ended, or ran, already."""
        try:
            call(executionArn=self._arn(name))
        except ClientError:
            return False
        return True

    def _arn(self, name: str) -> str:
        return f"{self.outputs['WorkflowArn'].replace(':stateMachine:', ':execution:')}:{name}"

    # -------------------------------------------------------------------------------- events, containers and janitor

    def status_events(self, *, lost: bool) -> None:
        """Lets every status event of a workflow be lost, or be delivered again."""
        for rule in self._status_rules:
            (self.events.disable_rule if lost else self.events.enable_rule)(Name=rule)

    def kill_containers(self) -> int:
        """Ends every container of a function from outside, as Lambda may; the scripts of Glue runs are left alone."""
        containers = [
            pid
            for pid in processes.session_members(self.aws.pid)
            if pid != self.aws.pid and not GLUE_SCRIPT.search(processes.command_line(pid))
        ]
        for pid in containers:
            processes.send_signal(pid, signal.SIGKILL)
        return len(containers)

    def run_janitor(self) -> JanitorRun:
        """Invokes the janitor once."""
        started, ok = time.time(), False
        try:
            answer = self._janitor.invoke(FunctionName=self.outputs["JanitorFunctionName"], Payload=b"{}")
            counts = json.loads(answer["Payload"].read())
            # A run that is skipped, since a killed one still has its lease, has checked nothing.
            ok = "FunctionError" not in answer and not {"JanitorErrors", "JanitorRunsSkipped"} & set(counts)
        except Exception as error:  # the engine may end in the middle of an answer; botocore has many errors for it
            ok = not error
        return JanitorRun(started, time.time(), ok)
