"""The operator command with a state machine as target and with a lease, on the deployed stack."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slotkeeper.slots.leases import Leases
from slotkeeper_cli.errors import CommandRefused
from tests.e2e.deployed_stack import DeployedStack
from tests.support.waiting import wait_until

Slotkeeper = Callable[..., Any]
_ROLE = "arn:aws:iam::000000000000:role/any"  # the embedded AWS checks no permissions
# It ends when the operator stops it.
_LONG = {"StartAt": "Work", "States": {"Work": {"Type": "Wait", "Seconds": 3600, "End": True}}}


@pytest.fixture
def loads(stack: DeployedStack, slotkeeper: Slotkeeper) -> Iterator[str]:
    """A process whose target is a state machine; its ARN."""
    arn = _machine(stack, "child-loads")
    slotkeeper("process", "add", "loads", "--limit", "2", "--target", arn)
    yield arn
    stack.dynamodb.delete_item(TableName=stack.table, Key={"process_name": {"S": "loads"}})


def _machine(stack: DeployedStack, name: str) -> str:
    """Create a state machine; return its ARN."""
    created = stack.stepfunctions.create_state_machine(name=name, definition=json.dumps(_LONG), roleArn=_ROLE)
    return str(created["stateMachineArn"])


def test_a_target_that_the_stack_does_not_permit_is_refused_and_not_started(
    stack: DeployedStack, slotkeeper: Slotkeeper
) -> None:
    arn = _machine(stack, "another")
    with pytest.raises(CommandRefused, match=f"the workflow may not start state machine {arn}"):
        slotkeeper("process", "add", "another", "--limit", "1", "--target", arn)
    slotkeeper("process", "add", "another", "--limit", "1", "--target", arn, "--force")

    slotkeeper("request", "submit", "--process", "another", "--request-id", "a", "--input", "{}")

    (kept,) = wait_until(lambda: stack.kept("another"), "the request to be kept")
    assert kept["error"] == "TargetNotPermitted"
    assert stack.stepfunctions.list_executions(stateMachineArn=arn)["executions"] == []
    wait_until(lambda: not slotkeeper("status", "another")["processes"][0]["holders"], "the slot to be free")
    stack.dynamodb.delete_item(TableName=stack.table, Key={"process_name": {"S": "another"}})


def test_a_request_with_an_input_is_a_child_execution_and_a_block_of_code_a_lease(
    stack: DeployedStack, slotkeeper: Slotkeeper, loads: str
) -> None:
    (sent,) = slotkeeper("request", "submit", "--process", "loads", "--request-id", "a", "--input", '{"day": 1}')[
        "sent"
    ]
    name = sent["execution"]

    def held() -> Any:
        (process,) = slotkeeper("status", "loads")["processes"]
        return {holder["execution"]: holder for holder in process["holders"]}

    wait_until(lambda: (held().get(name) or {}).get("child"), "the child execution to be shown")
    holder = held()[name]
    assert (holder["request_id"], holder["target"], holder["child"]["state"]) == ("a", loads, "RUNNING")
    given = stack.stepfunctions.describe_execution(executionArn=holder["child"]["id"])["input"]
    assert json.loads(given)["day"] == 1

    with Leases(stack.table, stack.dynamodb, stack.aws.client("sqs")).lease("loads", seconds=60):
        (lease,) = [one for one in held().values() if one["state"] == "LEASED"]
        assert 0 < lease["seconds_left"] <= 61
        with pytest.raises(CommandRefused, match="may still use its slot: it ends in"):
            slotkeeper("holder", "release", lease["execution"])
        assert slotkeeper("stack", "reconcile", "loads", "--check")["expired"] == []

    stack.stepfunctions.stop_execution(executionArn=holder["child"]["id"])
    wait_until(lambda: not held(), "the slot to be free")
    (attempt,) = slotkeeper("request", "show", "a")["found"][0]["attempts"]
    assert (attempt["state"], attempt["status"]) == ("failed", "FAILED")
    slotkeeper("dlq", "discard", "failed", "--id", "a")
