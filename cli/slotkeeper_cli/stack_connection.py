"""The deployed stack that a command works on: clients for its account, outputs, resources and queues."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

from slotkeeper_cli.errors import CommandFailed, NotFound
from slotkeeper_cli.parallel import in_parallel

LOCAL_OUTPUTS = Path("build") / "local" / "outputs.json"
LOCAL_FILE = "SLOTKEEPER_LOCAL_FILE"  # a variable with the path of LOCAL_OUTPUTS
CONSOLE = "https://{region}.console.aws.amazon.com"

# Throttled calls are retried while the operator waits (boto3 guide, "Retries").
_CLIENT_CONFIG = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 6})

# As long as a function may run (Lambda quotas, "Function timeout"), and without retries: a second invocation would run
# at the same time as the first.
_INVOKE_CONFIG = Config(connect_timeout=5, read_timeout=900, retries={"mode": "standard", "total_max_attempts": 1})

# Calls that share their quota with the janitor, which needs them to free slots: size and refill a second of the bucket
# of a command, half of the lowest of AWS (Step Functions Developer Guide, "Quotas related to API action throttling").
BUDGETS = {"ListExecutions": (50, 1.0), "DescribeExecution": (125, 5.0)}

# Without the user's own AWS files, so that a command for the local stack cannot reach an account.
_NO_USER_CONFIG: dict[str, Any] = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
_IN_PROGRESS = "DETECTION_IN_PROGRESS"  # of drift
_DRIFT_POLLS, _DRIFT_PAUSE = 300, 2.0  # seconds between two polls: ten minutes in total


@dataclass(frozen=True)
class Flow:
    """An optional part of the template, its parameter, and how the names of its outputs begin."""

    name: str
    parameter: str
    output_prefixes: tuple[str, ...]

    def has(self, output: str) -> bool:
        """Whether an output exists only if the flow is deployed."""
        return output.startswith(self.output_prefixes)


FLOWS = (
    Flow("chatbot", "ChatApiUrl=https://...", ("Chatbot", "Token", "SeenSignature", "ApiCredentials", "SigningKey")),
    Flow(
        "worker", "DeployWorker=true", ("WorkQueue", "WorkDeadLetter", "Worker", "RequestLedger", "Retry", "Downstream")
    ),
)


class CallBudget:
    """A token bucket: a call that finds it empty waits.

    Args:
        size: calls without a wait.
        refill: calls a second after these.
    """

    def __init__(self, size: int, refill: float) -> None:
        self._size, self._refill = size, refill
        self._tokens, self._at = float(size), time.monotonic()
        self._lock = threading.Lock()

    def take(self, **_event: Any) -> None:
        """Take a token; wait for it if there is none. botocore calls it before each call, with the request."""
        with self._lock:
            now = time.monotonic()
            self._tokens = min(self._size, self._tokens + (now - self._at) * self._refill) - 1
            self._at = now
            wait = -self._tokens / self._refill
        if wait > 0:
            time.sleep(wait)


class StackConnection:
    """A stack by its name, in the account and Region of a profile, or in the AWS that `make local-up` runs.

    Args:
        profile: of the user's AWS configuration; by default that of the environment.
        region: AWS Region; by default that of the profile or the environment.
        local: the file that `make local-up` writes; the stack is then not searched in an account.
    """

    def __init__(
        self, name: str, profile: str | None = None, region: str | None = None, local: Path | None = None
    ) -> None:
        self.name, self.profile = name, profile
        self.local_file = local
        self._local = json.loads(local.read_text()) if local else None
        self._clients: dict[str, Any] = {}
        # Threads share clients, but not the session that makes them (Boto3 documentation, "Session", multithreading).
        self._making = threading.Lock()
        self._budgets = {operation: CallBudget(*budget) for operation, budget in BUDGETS.items()}
        self._session = (
            _isolated(self._local) if self._local else boto3.Session(profile_name=profile, region_name=region)
        )

    @property
    def local(self) -> Mapping[str, Any] | None:
        """What `make local-up` wrote about the stack; None for a stack in an account."""
        return self._local

    @property
    def is_local(self) -> bool:
        return self._local is not None

    @property
    def container_endpoint(self) -> str:
        """The local stack's endpoint for containers; "" if they cannot reach it, or the stack is in an account."""
        host = self._local.get("container_host") if self._local else ""
        return self._local["endpoint"].replace("127.0.0.1", host) if self._local and host else ""

    @property
    def region(self) -> str:
        return str(self.client("cloudformation").meta.region_name)

    def client(self, service: str) -> Any:
        """The boto3 client of a service, made on first use."""
        with self._making:
            if service not in self._clients:
                self._clients[service] = self._make(service, _CLIENT_CONFIG)
            return self._clients[service]

    def invoke(self, function: str) -> dict[str, Any]:
        """Invoke a function with an empty event, and wait for its response (Lambda, Invoke)."""
        answer: dict[str, Any] = self._make("lambda", _INVOKE_CONFIG).invoke(FunctionName=function, Payload=b"{}")
        return answer

    def _make(self, service: str, config: Config) -> Any:
        where: dict[str, Any] = {"config": config}
        if self._local:
            where = {"endpoint_url": self._local["endpoint"], "config": config.merge(Config(proxies={}))}
        make: Any = self._session.client
        client = make(service, **where)
        if service == "stepfunctions" and not self._local:
            for operation, budget in self._budgets.items():
                client.meta.events.register(f"before-call.stepfunctions.{operation}", budget.take)
        return client

    @cached_property
    def description(self) -> dict[str, Any]:
        """The stack as CloudFormation describes it (DescribeStacks).

        Raises:
            NotFound: there is no such stack in this account and Region, or it is not a Slotkeeper stack.
        """
        cloudformation = self.client("cloudformation")
        try:
            description: dict[str, Any] = cloudformation.describe_stacks(StackName=self.name)["Stacks"][0]
        except ClientError as error:
            if "does not exist" not in error.response["Error"].get("Message", ""):
                raise
            raise NotFound(
                f"there is no stack {self.name!r} in {self.region}: give its name with --stack, and its account and "
                "Region with --profile and --region"
            ) from error
        outputs = {output["OutputKey"] for output in description.get("Outputs", [])}
        if "SlotTableName" not in outputs:
            raise NotFound(
                f"stack {self.name!r} ({description['StackStatus']}) has no output SlotTableName: it is not a stack of "
                "Slotkeeper, or its first deployment has not finished. Check --stack, or run this again later"
            )
        return description

    @cached_property
    def outputs(self) -> dict[str, str]:
        """The stack's outputs. A missing output raises NotFound if its flow is not deployed, else CommandFailed."""
        return _Outputs({output["OutputKey"]: output["OutputValue"] for output in self.description["Outputs"]})

    @property
    def reachable_outputs(self) -> dict[str, str]:
        """The outputs, with the URL at which this machine reaches the chatbot of the local stack."""
        url = (self._local or {}).get("chatbot_url")
        return self.outputs | ({"ChatbotUrl": url} if url else {})

    @cached_property
    def not_deployed(self) -> tuple[Flow, ...]:
        """The flows that the stack was deployed without."""
        return tuple(flow for flow in FLOWS if not any(map(flow.has, self.outputs)))

    @cached_property
    def parameters(self) -> dict[str, str]:
        """The parameters with which the stack is deployed."""
        return {given["ParameterKey"]: given.get("ParameterValue", "") for given in self.description["Parameters"]}

    @cached_property
    def caller(self) -> str:
        """The ARN of the operator (GetCallerIdentity)."""
        return str(self.client("sts").get_caller_identity()["Arn"])

    def execution_arn(self, name: str) -> str:
        """The ARN of an execution of the stack's workflow."""
        return f"{self.outputs['WorkflowArn'].replace(':stateMachine:', ':execution:')}:{name}"

    def execution_link(self, name: str) -> str:
        """The console's URL of an execution of the stack's workflow; for the local stack its ARN."""
        return self.link_of(self.execution_arn(name))

    def link_of(self, arn: str) -> str:
        """The console's URL of any execution; for the local stack its ARN."""
        if self.is_local:
            return arn
        return f"{CONSOLE.format(region=self.region)}/states/home?region={self.region}#/v2/executions/details/{arn}"


def _isolated(local: dict[str, str]) -> boto3.Session:
    return boto3.Session(
        aws_access_key_id=local["access_key_id"],
        aws_secret_access_key=local["secret_access_key"],
        region_name=local["region"],
        botocore_session=botocore.session.Session(session_vars=_NO_USER_CONFIG),
    )


class _Outputs(dict[str, str]):
    def __missing__(self, name: str) -> str:
        for flow in FLOWS:
            if flow.has(name) and not any(map(flow.has, self)):
                raise NotFound(f"the {flow.name} is not deployed in this stack: deploy the stack with {flow.parameter}")
        raise CommandFailed(
            f"the stack has no output {name}: it was deployed from an older template. Deploy the stack again first"
        )


def find_local() -> Path:
    """The file that `make local-up` writes: in the working directory or one of its parents, else the one that the shell
    has by `slotkeeper stack outputs --export`, for commands in other folders.

    Raises:
        NotFound: there is no such file.
    """
    folders = (Path.cwd(), *Path.cwd().parents)
    for file in (*(folder / LOCAL_OUTPUTS for folder in folders), Path(os.environ.get(LOCAL_FILE, LOCAL_OUTPUTS))):
        if file.is_file():
            return file
    raise NotFound(f"no local stack is running (no {LOCAL_OUTPUTS} here or in a parent folder): run make local-up")


@dataclass(frozen=True)
class StackResource:
    """One resource of a stack. `name` is its physical id: the name of a function, the URL of a queue."""

    logical_id: str
    name: str
    kind: str


def resources(stack: StackConnection) -> list[StackResource]:
    """Every resource that exists, ordered by logical id (ListStackResources)."""
    pages = stack.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack.name)
    existing = [
        StackResource(one["LogicalResourceId"], one.get("PhysicalResourceId", ""), one["ResourceType"])
        for page in pages
        for one in page["StackResourceSummaries"]
        if one.get("ResourceStatus") != "DELETE_COMPLETE"
    ]
    return sorted(existing, key=lambda one: one.logical_id)


def template_of(stack: StackConnection) -> Mapping[str, Any]:
    """The deployed template after its transforms, in which serverless resources are plain ones.

    Raises:
        CommandFailed: the template is not JSON.
    """
    body = stack.client("cloudformation").get_template(StackName=stack.name, TemplateStage="Processed")["TemplateBody"]
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError as error:
            raise CommandFailed("the deployed template is not JSON: deploy the stack again") from error
    template: Mapping[str, Any] = body
    return template


def drifted_resources(stack: StackConnection) -> dict[str, str]:
    """Detect stack drift; return the resources that are MODIFIED or DELETED, by logical id. It takes minutes.

    Raises:
        CommandFailed: drift detection did not complete.
    """
    client = stack.client("cloudformation")
    detection = client.detect_stack_drift(StackName=stack.name)["StackDriftDetectionId"]
    status = _IN_PROGRESS
    for _ in range(_DRIFT_POLLS):
        response = client.describe_stack_drift_detection_status(StackDriftDetectionId=detection)
        status = response["DetectionStatus"]
        if status != _IN_PROGRESS:
            break
        time.sleep(_DRIFT_PAUSE)
    if status != "DETECTION_COMPLETE":
        reason = response.get("DetectionStatusReason", "run this again")
        raise CommandFailed(f"CloudFormation's drift detection is {status}: {reason}")
    token: dict[str, str] = {}
    drifted: dict[str, str] = {}
    while True:
        page = client.describe_stack_resource_drifts(
            StackName=stack.name, StackResourceDriftStatusFilters=["MODIFIED", "DELETED"], **token
        )
        drifted |= {one["LogicalResourceId"]: one["StackResourceDriftStatus"] for one in page["StackResourceDrifts"]}
        if "NextToken" not in page:
            return drifted
        token = {"NextToken": page["NextToken"]}


QUEUES = (
    "RequestQueue",
    "DispatchQueue",
    "EndingQueue",
    "RequestDeadLetterQueue",
    "WorkQueue",
    "WorkDeadLetterQueue",
    "RetryScheduleDeadLetterQueue",
)
DEAD_LETTER_QUEUES = tuple(queue for queue in QUEUES if queue.endswith("DeadLetterQueue"))
_COUNTS = {
    "visible": "ApproximateNumberOfMessages",
    "in_flight": "ApproximateNumberOfMessagesNotVisible",
    "delayed": "ApproximateNumberOfMessagesDelayed",
}


def queue_attributes(stack: StackConnection, queue: str) -> dict[str, str]:
    """The attributes of a queue, by its logical id (GetQueueAttributes)."""
    sqs, url = stack.client("sqs"), stack.outputs[f"{queue}Url"]
    attributes: dict[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return attributes


def all_queue_attributes(stack: StackConnection) -> dict[str, dict[str, str]]:
    """The attributes of each deployed queue, by logical id."""
    deployed = [queue for queue in QUEUES if f"{queue}Url" in stack.outputs]
    return dict(zip(deployed, in_parallel(partial(queue_attributes, stack), deployed), strict=True))


def message_counts(attributes: Mapping[str, str]) -> dict[str, int]:
    """The approximate numbers of messages of a queue: `visible`, `in_flight` (hidden) and `delayed`."""
    return {name: int(attributes.get(attribute, 0)) for name, attribute in _COUNTS.items()}


def received_or_visible(stack: StackConnection, queue: str) -> int:
    """The approximate number of messages of a queue, without the delayed ones."""
    counts = message_counts(queue_attributes(stack, queue))
    return counts["visible"] + counts["in_flight"]


def event_source_mappings(stack: StackConnection, queue_arn: str) -> list[dict[str, Any]]:
    """The event source mappings of a queue: the functions that receive its messages (ListEventSourceMappings)."""
    pages = stack.client("lambda").get_paginator("list_event_source_mappings").paginate(EventSourceArn=queue_arn)
    return [one for page in pages for one in page["EventSourceMappings"]]
