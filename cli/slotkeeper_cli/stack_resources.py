"""What the stack is made of: the physical name of each resource, and the template that it was deployed with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.stack_connection import StackConnection


@dataclass(frozen=True)
class StackResource:
    """One resource of a stack. `name` is its physical id: for a function its name, for a queue its URL."""

    logical_id: str
    name: str
    kind: str


def resources(stack: StackConnection) -> list[StackResource]:
    """Every resource that is there, by logical id (ListStackResources)."""
    pages = stack.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack.name)
    found_resources = [
        StackResource(one["LogicalResourceId"], one.get("PhysicalResourceId", ""), one["ResourceType"])
        for page in pages
        for one in page["StackResourceSummaries"]
        if one.get("ResourceStatus") != "DELETE_COMPLETE"
    ]
    return sorted(found_resources, key=lambda one: one.logical_id)


def template_of(stack: StackConnection) -> Mapping[str, Any]:
    """The template as CloudFormation has carried it out, the serverless resources turned into plain ones.

    Raises:
        CommandFailed: it cannot be read here.
    """
    body = stack.client("cloudformation").get_template(StackName=stack.name, TemplateStage="Processed")["TemplateBody"]
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError as error:
            raise CommandFailed(
                "the deployed template is not JSON, as it is once a transform has gone over it"
            ) from error
    template: Mapping[str, Any] = body
    return template
