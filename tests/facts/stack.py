"""The stack under test: its clients, outputs and configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from dev.emulator.deployment import STACK_NAME
from dev.emulator.local_clients import local_client

# Throttled calls are retried (boto3 guide, "Retries"). The checks bound their own waits.
_EIGHT_ATTEMPTS = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 8})

# The outputs that the checks use; all versions of the template have them.
_OUTPUTS = {
    "DataBucketName",
    "DispatchQueueUrl",
    "JanitorFunctionName",
    "RequestQueueArn",
    "RequestQueueUrl",
    "RequestTableName",
    "SlotTableName",
    "StarterFunctionName",
    "WorkflowArn",
}


class Refused(Exception):
    """The run cannot start: no such stack, another application's stack, or wrong options."""


@dataclass(frozen=True)
class StackUnderTest:
    """A deployed stack. `local`: the stack of `make local-up`, which costs nothing."""

    name: str
    region: str
    local: bool
    make_client: Callable[[str], Any]
    _clients: dict[str, Any] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)  # creating a client is not thread-safe in boto3

    def client(self, service: str) -> Any:
        """The boto3 client of a service."""
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self.make_client(service)
            return self._clients[service]

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """The stack's outputs. Raises Refused unless it is a completely deployed Slotkeeper stack."""
        try:
            stack = self.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"][0]
        except ClientError as error:
            if "does not exist" not in error.response["Error"].get("Message", ""):
                raise
            raise Refused(f"there is no stack {self.name!r} in {self.region}. Check --stack and --region") from error
        outputs = {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", [])}
        if missing := sorted(_OUTPUTS - outputs.keys()):
            raise Refused(
                f"stack {self.name!r} is not one of Slotkeeper's, or not completely deployed: it has no output "
                f"{', '.join(missing)}. Nothing was changed"
            )
        if not stack["StackStatus"].endswith("_COMPLETE") or stack["StackStatus"].startswith("DELETE"):
            raise Refused(f"stack {self.name!r} is {stack['StackStatus']}: wait until it is deployed")
        return outputs

    @cached_property
    def sample_job(self) -> str | None:
        """The sample Glue job's name; None if the stack runs another job."""
        described = self.client("cloudformation").describe_stack_resource
        try:
            found = described(StackName=self.name, LogicalResourceId="SampleJob")
            return str(found["StackResourceDetail"]["PhysicalResourceId"])
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationError":
                raise
            return None

    @cached_property
    def machine(self) -> Mapping[str, Any]:
        """The description of the workflow, with its definition as an object."""
        machine: dict[str, Any] = self.client("stepfunctions").describe_state_machine(
            stateMachineArn=self.outputs["WorkflowArn"]
        )
        return machine | {"definition": json.loads(machine["definition"])}

    def environment(self, function_output: str) -> Mapping[str, str]:
        """The environment variables of one of the stack's functions."""
        configuration = self.client("lambda").get_function_configuration(FunctionName=self.outputs[function_output])
        variables: dict[str, str] = configuration["Environment"]["Variables"]
        return variables

    @cached_property
    def check_gap(self) -> float:
        """The deployed CheckGapSeconds: seconds between two checks of a Glue run."""
        return float(self.environment("JanitorFunctionName")["CHECK_GAP_SECONDS"])


def in_account(name: str, profile: str | None, region: str | None) -> StackUnderTest:
    """The stack in an account; profile and region default to the AWS CLI's. Raises Refused without a region."""
    session = boto3.Session(profile_name=profile, region_name=region)
    if not session.region_name:
        raise Refused("no region: give --region, or set one in your profile")
    make: Any = session.client  # the stubs require a literal service name
    return StackUnderTest(name, session.region_name, False, lambda service: make(service, config=_EIGHT_ATTEMPTS))


def embedded(outputs: Path) -> StackUnderTest:
    """The stack of `make local-up`. Raises Refused if it does not run."""
    try:
        document = json.loads(outputs.read_text())
    except (FileNotFoundError, ValueError):
        raise Refused(f"{outputs} does not describe a local stack. Start one with: make local-up") from None
    return StackUnderTest(
        STACK_NAME,
        document["region"],
        True,
        lambda service: local_client(service, document["endpoint"], attempts=3),
    )
