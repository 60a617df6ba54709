"""An update of the deployed stack."""

from __future__ import annotations

from dev.emulator.deployment import STACK_NAME
from tests.deployed.deployed_stack import DeployedStack, update
from tests.template.stateful import STATEFUL


def _stateful(stack: DeployedStack) -> dict[str, str]:
    """The physical ids of the stateful resources."""
    pages = stack.aws.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=STACK_NAME)
    listed = [each for page in pages for each in page["StackResourceSummaries"]]
    return {
        each["LogicalResourceId"]: each["PhysicalResourceId"] for each in listed if each["ResourceType"] in STATEFUL
    }


def test_an_update_keeps_every_stateful_resource_the_holders_and_an_operators_limit(stack: DeployedStack) -> None:
    """F8 and F10: a deployment with another limit neither removes a holder nor overwrites an operator's limit."""
    process = "sample"
    stack.processes.set_limit(process, 7)
    assert stack.slots.adopt(process, "sample-held", 2e11, stack.item(process).target)
    before = _stateful(stack)
    update(stack.aws, LogRetentionDays="7", SlotLimit="9")
    assert _stateful(stack) == before
    assert (stack.item(process).slot_limit, stack.holders(process)) == (7, {"sample-held"})
    assert stack.slots.free(process, "sample-held", stack.item(process).holders["sample-held"].raw)
