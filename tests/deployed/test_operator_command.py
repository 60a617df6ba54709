"""The operator command on the deployed stack: doctor, retries, requests, a state machine as target, and a lease."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dev.emulator.downstream import Step
from slotkeeper_cli.errors import CommandRefused
from tests.deployed.deployed_stack import DeployedStack
from tests.deployed.deployed_worker import END, DeployedWorker
from tests.waiting import wait_until

Slotkeeper = Callable[..., Any]


# Checks whose subjects no test of this folder changes permanently, unlike processes, queues and alarms.
OF_THE_TEMPLATE = ("stack", "event-sources", "worker-concurrency", "functions", "recursion", "rules", "alarm-actions")
OF_THE_TEMPLATE += ("keys",)


def test_the_doctor_checks_everything_and_the_templates_resources_are_healthy(slotkeeper: Slotkeeper) -> None:
    checks = {one["check"]: one for one in slotkeeper("doctor")["checks"]}
    assert not [f for one in checks.values() for f in one["findings"] if "not checked" in f["what"]]
    assert [name for name in OF_THE_TEMPLATE if checks[name]["level"] != "ok"] == []


def test_run_now_makes_a_scheduled_retry_immediately(slotkeeper: Slotkeeper, work: DeployedWorker) -> None:
    request = work.request(Step(answer="slow_down", retry_after=3600))
    work.send(request)
    work.wait_for(request, "WAITING")
    (listed,) = (each for each in slotkeeper("retry", "list")["retries"] if each["request_id"] == request)
    assert (listed["by"], listed["attempt"]) == ("schedule", 2)
    assert (work.schedule(request, attempt=2) or {})["ActionAfterCompletion"] == "DELETE"
    assert slotkeeper("retry", "run-now", request) == {"sent": request, "attempt": 2}
    assert work.wait_for(request, *END)["status"] == "SUCCEEDED"
    assert work.schedule(request, attempt=2) is None


# ----------------------------------------------------------------------------------------------------------- requests


def test_a_running_request_is_stopped_and_redriven(stack: DeployedStack, slotkeeper: Slotkeeper) -> None:
    process = stack.process(limit=1)
    name = stack.send(process, "a")
    stack.wait_until_running(name)
    (stopped,) = slotkeeper("request", "cancel", "a", "--process", process, "--stop")["stopped"]
    assert (stopped["execution"], stopped["request_id"]) == (name, "a")
    stack.run_janitor_until(lambda: not stack.holders(process), "the slot to be free")
    assert stack.alive(process) == 0
    stack.wait_for_end(process, name, "FAILED")
    stack.end(process, "a")
    (redriven,) = slotkeeper("failed", "redrive", name)["redriven"]
    stack.wait_for_status(redriven["next"], "SUCCEEDED")
    assert stack.row(process, name).state == "REDRIVEN"


# ------------------------------------------------------------------------------------------------- targets and leases

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

    with stack.leases.lease("loads", seconds=60):
        (lease,) = [one for one in held().values() if one["state"] == "LEASED"]
        assert 0 < lease["seconds_left"] <= 61
        with pytest.raises(CommandRefused, match="may still use its slot: it ends in"):
            slotkeeper("holder", "release", lease["execution"])
        assert slotkeeper("stack", "reconcile", "loads", "--check")["expired"] == []

    stack.stepfunctions.stop_execution(executionArn=holder["child"]["id"])
    wait_until(lambda: not held(), "the slot to be free")
    (attempt,) = slotkeeper("request", "show", "a", "--process", "loads")["found"][0]["attempts"]
    assert attempt["state"] == "failed"
