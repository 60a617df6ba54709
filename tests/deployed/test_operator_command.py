"""The operator command on the deployed stack: doctor, retries, requests, a state machine as target, and a lease."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
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


def _submit(slotkeeper: Slotkeeper, folder: Path, process: str, request_ids: str) -> None:
    """Submit requests whose jobs wait at the gates of their names."""
    file = folder / "requests.jsonl"
    lines = [
        {"process": process, "request_id": one, "arguments": {"--gate": f"{process}/{one}"}} for one in request_ids
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    assert len(slotkeeper("request", "submit", "--file", str(file))["sent"]) == len(request_ids)


def _wait_for(slotkeeper: Slotkeeper, process: str, request_id: str, state: str) -> dict[str, Any]:
    """Wait for the state of a request; return its last attempt."""

    def read() -> Any:
        shown = slotkeeper("request", "show", request_id, "--process", process)["found"]
        return shown and shown[0]["state"] == state and shown[0]["attempts"][-1]

    last: dict[str, Any] = wait_until(read, f"{request_id} to be {state}")
    return last


def test_a_queued_request_is_explained_cancelled_and_redriven_and_the_next_one_starts(
    stack: DeployedStack, slotkeeper: Slotkeeper, tmp_path: Path
) -> None:
    process = stack.process(limit=1)
    _submit(slotkeeper, tmp_path, process, "abc")
    assert _wait_for(slotkeeper, process, "a", "started")["attempt"] == 1
    _wait_for(slotkeeper, process, "c", "queued")
    explained = {one: slotkeeper("explain", one, "--process", process) for one in "bc"}
    assert [explained[one]["position"] for one in "bc"] == [1, 2]
    assert [explained[one]["reasons"][0]["condition"] for one in "bc"] == ["slots", "queue"]
    assert [one["request_id"] for one in explained["b"]["found"][0]["holders"]] == ["a"]

    (cancelled,) = slotkeeper("request", "cancel", "b", "--process", process)["cancelled"]
    assert cancelled["request_id"] == "b"
    stack.wait_for_end(process, cancelled["execution"], "CANCELLED")
    assert slotkeeper("explain", "c", "--process", process)["position"] == 1
    stack.end(process, "a", "c", "b")
    _wait_for(slotkeeper, process, "c", "succeeded")

    (redriven,) = slotkeeper("failed", "redrive", "b", "--process", process)["redriven"]
    assert _wait_for(slotkeeper, process, "b", "succeeded")["attempt"] == 2
    started = [execution["name"] for execution in stack.executions(process)]
    assert (len(started), started[-1]) == (3, redriven["next"])


def test_a_running_request_is_stopped_and_redriven(
    stack: DeployedStack, slotkeeper: Slotkeeper, tmp_path: Path
) -> None:
    process = stack.process(limit=1)
    _submit(slotkeeper, tmp_path, process, "a")
    name = _wait_for(slotkeeper, process, "a", "started")["execution"]
    wait_until(lambda: stack.alive(process), "its Glue run")
    (stopped,) = slotkeeper("request", "cancel", "a", "--process", process, "--stop")["stopped"]
    assert (stopped["execution"], stopped["request_id"]) == (name, "a")
    stack.run_janitor_until(lambda: not stack.holders(process), "the slot to be free")
    assert stack.alive(process) == 0
    _wait_for(slotkeeper, process, "a", "failed")
    stack.end(process, "a")
    stack.wait_for_end(process, name, "FAILED")
    assert len(slotkeeper("failed", "redrive", name)["redriven"]) == 1
    assert _wait_for(slotkeeper, process, "a", "succeeded")["attempt"] == 2
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
