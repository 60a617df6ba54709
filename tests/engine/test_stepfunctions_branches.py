"""stepfunctions_branches: the first failure in a Map or a Parallel state stops the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.engine.conftest import MachineMaker
from tests.engine.test_stepfunctions_children import WAIT, child_of, run, started
from tests.engine.waiting_callers import Callers

CAUGHT = {"Type": "Pass", "Output": "{% $states.input.error %}", "End": True}


def each(states: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A Map over the input's items."""
    processor = {"StartAt": next(iter(states)), "States": states}
    return {"Each": {"Type": "Map", "Items": "{% $states.input.items %}", "ItemProcessor": processor, **fields}}


def test_a_failed_iteration_ends_the_map_with_its_error_and_the_tokens_of_the_others(
    callers: Callers, machine: MachineMaker
) -> None:
    catch = [{"ErrorEquals": ["Refused"], "Output": {"error": "{% $states.errorOutput.Cause %}"}, "Next": "Caught"}]
    states = {**each(callers.asks(), Next="Caught", Catch=catch), "Caught": CAUGHT}
    execution = machine.start(machine(states), {"items": [1, 2, 3]})
    asked = {each["item"]: each["token"] for each in (callers.received() for _ in range(3))}
    callers.client.send_task_failure(taskToken=asked[2], error="Refused", cause="too large")
    closed = callers.end_of(execution)
    assert (closed["status"], json.loads(closed["output"])) == ("SUCCEEDED", "too large")
    spent = [callers.refused("send_task_heartbeat", asked[item]) for item in (1, 3)]
    assert spent == ["TaskTimedOut", "TaskTimedOut"]


def test_a_failed_iteration_stops_the_children_and_waits_of_the_others(
    machine: MachineMaker, unique: Callable[[str], str]
) -> None:
    child, name = machine(WAIT), unique("child")
    choice = {
        "Type": "Choice",
        "Choices": [{"Condition": "{% $states.input.name = 'wait' %}", "Next": "Wait"}],
        "Default": "Run",
    }
    states = {"Which": choice, "Wait": WAIT["Wait"], **run(child, "{% $states.input.name %}")}
    items = [{"name": each, "a": 1} for each in ("wait", name, unique("child"))]
    execution = machine.start(machine(each(states, End=True)), {"items": items})
    children = [started(machine, child_of(child, each["name"])) for each in items[1:]]
    machine.client.stop_execution(executionArn=children[1], error="Stopped")
    closed = machine.end_of(execution)
    assert (closed["status"], closed["error"]) == ("FAILED", "States.TaskFailed")
    assert machine.end_of(children[0])["status"] == "ABORTED"


def test_a_failed_branch_stops_the_others(machine: MachineMaker) -> None:
    fail = {"StartAt": "Fail", "States": {"Fail": {"Type": "Fail", "Error": "Broken"}}}
    branches = [{"StartAt": "Wait", "States": WAIT}, fail]
    closed = machine.end_of(machine.start(machine({"Both": {"Type": "Parallel", "Branches": branches, "End": True}})))
    assert (closed["status"], closed["error"]) == ("FAILED", "Broken")
