"""The resources of the stack, and the template that it was deployed with."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.stack_connection import StackConnection

_IN_PROGRESS = "DETECTION_IN_PROGRESS"
_DRIFT_POLLS, _DRIFT_PAUSE = 300, 2.0  # seconds between two polls: ten minutes in total


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
