"""AWS in the process, without HTTP, for hundreds of examples a second. Calls that AWS refuses are refused.

Queues have the rules of SQS for characters, sizes and counts (SQS API Reference, SendMessage). The rest are dicts.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from botocore.response import StreamingBody

from slotkeeper.aws import sqs as message_attributes
from tests.simulation.account.boundary import note_parameters
from tests.simulation.account.completion_events import checked
from tests.simulation.account.in_process_tables import Refusal, Tables
from tests.unit.work_messages import ALLOWED

LARGEST_MESSAGE = 1_048_576
LARGEST_NOTIFICATION = 262_144
MOST_ATTRIBUTES = 10
GROUP = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
# Characters that a name must not contain (Step Functions API Reference, StartExecution, `name`).
NO_NAME = re.compile(r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f\ufffe\uffff]")
LARGEST_INPUT = 262_144

Parameters = dict[str, Any]
Answer = tuple[Any, dict[str, Any]]


class InProcessAws:
    """One small account, empty at first. `sent` has each message as (queue's name, parameters of SendMessage)."""

    def __init__(self) -> None:
        self.tables = Tables()
        self.sent: list[tuple[str, Parameters]] = []
        self.published: list[Parameters] = []
        self.executions: dict[str, Parameters] = {}
        self.children: dict[str, Parameters] = {}  # executions of other state machines than the workflow, by ARN
        self.answers: list[Parameters] = []  # to callers
        self.jobs: dict[str, Parameters] = {"job": {"Name": "job"}}
        self.runs: list[Parameters] = []
        self.stopped: list[str] = []
        self.schedules: dict[str, Parameters] = {}
        self.events: list[Parameters] = []
        self.parameter = "{}"
        self.secrets: dict[str, Parameters] = {}
        self.objects: dict[str, bytes] = {}
        self.refuse: dict[str, str] = {}
        self._ids = itertools.count(1)

    def answer(self, model: Any, parameters: Parameters) -> Answer:
        """For `before-call`: the answer to an operation with these parameters."""
        try:
            if model.name in self.refuse:
                raise Refusal(self.refuse[model.name])
            handler: Callable[[Parameters], Parameters] | None = getattr(self, f"_{model.name}", None)
            answer = handler(parameters) if handler else self.tables.perform(model.name, parameters)
            return SimpleNamespace(status_code=200, headers={}), answer
        except Refusal as refusal:
            return SimpleNamespace(status_code=400, headers={}), refusal.answer

    def answer_calls_of(self, client: Any) -> None:
        """Answer each later call of this client."""
        client.meta.events.register("before-parameter-build", note_parameters)
        client.meta.events.register(
            "before-call", lambda model, context, **_: self.answer(model, context["parameters"])
        )

    # SQS

    def _GetQueueUrl(self, parameters: Parameters) -> Parameters:
        return {"QueueUrl": f"https://sqs/{parameters['QueueName']}"}

    def _return_nothing(self, _: Parameters) -> Parameters:
        return {}

    _SetQueueAttributes = _return_nothing

    def _GetQueueAttributes(self, parameters: Parameters) -> Parameters:
        return {"Attributes": dict.fromkeys(parameters["AttributeNames"], "0")}

    def _SendMessage(self, parameters: Parameters) -> Parameters:
        queue, attributes = parameters["QueueUrl"].rpartition("/")[2], parameters.get("MessageAttributes", {})
        texts = [parameters["MessageBody"], *(value["StringValue"] for value in attributes.values())]
        assert all(text and ALLOWED.fullmatch(text) for text in texts), f"SQS would have refused {texts!r}"
        assert message_attributes.size(parameters["MessageBody"], attributes) <= LARGEST_MESSAGE
        assert len(attributes) <= MOST_ATTRIBUTES
        assert 0 <= parameters.get("DelaySeconds", 0) <= 900
        assert queue.endswith(".fifo") == ("MessageGroupId" in parameters)
        assert "MessageGroupId" not in parameters or GROUP.fullmatch(parameters["MessageGroupId"])
        self.sent.append((queue, parameters))
        return {"MessageId": f"sent-{next(self._ids)}"}

    def sent_to(self, queue: str) -> list[Parameters]:
        return [parameters for name, parameters in self.sent if name == queue]

    def _ChangeMessageVisibility(self, parameters: Parameters) -> Parameters:
        if not parameters["ReceiptHandle"].startswith("handle-"):
            raise Refusal("ReceiptHandleIsInvalid")
        assert 0 <= parameters["VisibilityTimeout"] <= 43_200
        return {}

    # SNS

    def _Publish(self, parameters: Parameters) -> Parameters:
        """The rules of SNS (SNS API Reference, Publish)."""
        assert re.fullmatch(r"[\x20-\x7e]{1,99}", parameters["Subject"])
        assert 1 <= len(parameters["Message"].encode()) <= LARGEST_NOTIFICATION
        self.published.append(parameters)
        return {"MessageId": f"sent-{next(self._ids)}"}

    # Step Functions

    def execution(self, name: str, status: str, input: str = "{}", **more: Any) -> None:
        closed = {} if status == "RUNNING" else {"stopDate": datetime.now(UTC)}
        self.executions[name] = {"name": name, "status": status, "input": input, "startDate": datetime.now(UTC)}
        self.executions[name]["executionArn"] = f"arn:aws:states:us-east-1:123456789012:execution:workflow:{name}"
        self.executions[name] |= closed | more

    def age_executions(self, seconds: float) -> None:
        """Move the times of all executions so far back."""
        for execution in self.executions.values():
            for name in execution.keys() & {"startDate", "stopDate"}:
                execution[name] -= timedelta(seconds=seconds)

    def _StartExecution(self, parameters: Parameters) -> Parameters:
        name = parameters["name"]
        assert 1 <= len(name) <= 80
        assert not NO_NAME.search(name)
        assert len(parameters["input"].encode()) <= LARGEST_INPUT
        running = self.executions.get(name)
        if running and (running["status"] != "RUNNING" or running["input"] != parameters["input"]):
            raise Refusal("ExecutionAlreadyExists")
        self.execution(name, "RUNNING", parameters["input"])
        return {"executionArn": name, "startDate": datetime.now(UTC)}

    def _DescribeExecution(self, parameters: Parameters) -> Parameters:
        if parameters["executionArn"] in self.children:
            return dict(self.children[parameters["executionArn"]])
        if ":execution:workflow:" not in parameters["executionArn"]:
            raise Refusal("ExecutionDoesNotExist")
        name = parameters["executionArn"].partition(":execution:workflow:")[2]
        if not name or len(name) > 80 or NO_NAME.search(name):
            raise Refusal("InvalidArn")
        if name not in self.executions:
            raise Refusal("ExecutionDoesNotExist")
        return dict(self.executions[name])

    def _StopExecution(self, parameters: Parameters) -> Parameters:
        self.children[parameters["executionArn"]] |= {"status": "ABORTED", "stopDate": datetime.now(UTC)}
        return {"stopDate": datetime.now(UTC)}

    def _DescribeStateMachine(self, _: Parameters) -> Parameters:
        return {"type": "STANDARD"}

    def _SendTaskSuccess(self, parameters: Parameters) -> Parameters:
        assert 1 <= len(parameters["taskToken"]) <= 2048
        assert len(parameters["output"].encode()) <= LARGEST_INPUT
        self.answers.append(parameters)
        return {}

    def _SendTaskFailure(self, parameters: Parameters) -> Parameters:
        assert 1 <= len(parameters["taskToken"]) <= 2048
        assert len(parameters["error"]) <= 256
        assert len(parameters["cause"]) <= 32_768
        self.answers.append(parameters)
        return {}

    def _ListExecutions(self, parameters: Parameters) -> Parameters:
        if "redriveFilter" in parameters:
            prefix = parameters["stateMachineArn"].replace(":stateMachine:", ":execution:") + ":"
            ours = [child for arn, child in self.children.items() if arn.startswith(prefix)]
            return {"executions": [child for child in ours if child["redriveCount"] and child["status"] == "RUNNING"]}
        return {"executions": [one for one in self.executions.values() if one["status"] == parameters["statusFilter"]]}

    # Glue, Scheduler, Systems Manager, Secrets Manager, Lambda

    def _GetJob(self, parameters: Parameters) -> Parameters:
        if parameters["JobName"] not in self.jobs:
            raise Refusal("EntityNotFoundException")
        return {"Job": self.jobs[parameters["JobName"]]}

    def _GetJobRuns(self, parameters: Parameters) -> Parameters:
        self._GetJob(parameters)
        return {"JobRuns": self.runs}

    def _BatchStopJobRun(self, parameters: Parameters) -> Parameters:
        self.stopped += parameters["JobRunIds"]
        return {}

    def _CreateSchedule(self, parameters: Parameters) -> Parameters:
        assert ALLOWED.fullmatch(parameters["Target"]["Input"])
        if parameters["Name"] in self.schedules:
            raise Refusal("ConflictException")
        self.schedules[parameters["Name"]] = parameters
        return {"ScheduleArn": parameters["Name"]}

    def _GetSchedule(self, parameters: Parameters) -> Parameters:
        if parameters["Name"] not in self.schedules:
            raise Refusal("ResourceNotFoundException")
        return self.schedules[parameters["Name"]]

    def _DeleteSchedule(self, parameters: Parameters) -> Parameters:
        del self.schedules[parameters["Name"]]
        return {}

    def _ListSchedules(self, _: Parameters) -> Parameters:
        return {"Schedules": list(self.schedules.values())}

    def _PutParameter(self, parameters: Parameters) -> Parameters:
        self.parameter = parameters["Value"]
        return {}

    def _GetParameter(self, parameters: Parameters) -> Parameters:
        return {"Parameter": {"Value": self.parameter}}

    def _GetSecretValue(self, parameters: Parameters) -> Parameters:
        if parameters["SecretId"] not in self.secrets:
            raise Refusal("ResourceNotFoundException")
        return self.secrets[parameters["SecretId"]]

    # EventBridge

    def _PutEvents(self, parameters: Parameters) -> Parameters:
        self.events += parameters["Entries"]
        return {"FailedEntryCount": 0, "Entries": [{"EventId": "event"}]}

    def check_events(self) -> None:
        """Raise if an event is invalid. It is not checked when it is sent, since the sender catches every error."""
        for event in self.events:
            checked(event)

    # S3

    def _GetObject(self, parameters: Parameters) -> Parameters:
        if parameters["Key"] not in self.objects:
            raise Refusal("NoSuchKey")
        content = self.objects[parameters["Key"]]
        body = StreamingBody(io.BytesIO(content), len(content))
        return {"Body": body, "ContentLength": len(content), "ETag": '"etag"'}

    def _PutObject(self, parameters: Parameters) -> Parameters:
        if parameters.get("IfNoneMatch") and parameters["Key"] in self.objects:
            raise Refusal("PreconditionFailed")
        self.objects[parameters["Key"]] = parameters["Body"].read()  # botocore has wrapped it in a file
        return {}

    def _ListObjectsV2(self, parameters: Parameters) -> Parameters:
        return {"Contents": [{"Key": key} for key in self.objects if key.startswith(parameters["Prefix"])]}

    def _DeleteObjects(self, parameters: Parameters) -> Parameters:
        for one in parameters["Delete"]["Objects"]:
            self.objects.pop(one["Key"], None)
        return {}
