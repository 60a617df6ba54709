"""Failures of the deployed workflow: outcomes are recorded, and slots are freed only when no run lives."""

from __future__ import annotations

import json

import pytest

from slotkeeper.slots.request import execution_name
from tests.deployed.deployed_stack import DeployedStack
from tests.deployed.receivers import Inbox
from tests.waiting import wait_until


def _released_after_its_run_ended(stack: DeployedStack, execution: str) -> bool:
    events = stack.stepfunctions.get_execution_history(executionArn=stack.arn(execution), maxResults=1000)["events"]
    released = next(e for e in events if e.get("stateEnteredEventDetails", {}).get("name") == "ReleaseSlot")
    (run,) = stack.runs(execution)
    return bool(run["CompletedOn"] <= released["timestamp"])


def test_f23_a_failed_job_leaves_its_request_with_code_and_reason_its_slot_free_and_a_notification(
    stack: DeployedStack, notices: Inbox
) -> None:
    process = stack.process(limit=1)
    name = stack.send(process, "r1")
    stack.end(process, "r1", how="fail")
    row = stack.wait_for_end(process, name, "FAILED")
    assert (row.code, row.reason) == ("States.TaskFailed", "failed by the test")
    stack.wait_until_free(process)
    execution = stack.execution(name) or {}
    assert execution["error"] == "RequestFailed"
    assert json.loads(row.body) == json.loads(execution["input"])
    notice = notices.receives_one(execution=stack.arn(name))
    assert (notice["reason"], notice["request"]) == (row.reason, json.loads(row.body))


@pytest.mark.parametrize("call", ["StartExecution", "RecordOutcome", "ReleaseSlot"])
def test_f1_f5_a_call_whose_answer_is_lost_takes_effect_once_and_the_outcome_precedes_the_release(
    stack: DeployedStack, call: str
) -> None:
    process = stack.process(limit=2)
    other = stack.send(process, "other")
    stack.wait_until_running(other)
    lost = stack.faults.add(call, "lose_answer", error="DynamoDB.InternalServerError")
    name = stack.send(process, "r1")
    stack.end(process, "r1")
    row = stack.wait_for_end(process, name, "SUCCEEDED")
    stack.wait_for_status(name, "SUCCEEDED")
    assert stack.faults.fired(lost) == len(stack.runs(name)) == 1
    states = stack.states_of(name)
    assert states.index("RecordOutcome") < states.index("ReleaseSlot") < states.index("Ring")
    assert (row.place, row.body) == ("", "")
    assert (stack.holders(process), stack.item(process).slots_in_use) == ({other}, 1)
    stack.end(process, "other")
    stack.wait_until_free(process)


def test_f3_the_workflow_waits_in_its_slot_for_a_run_that_glue_still_counts(stack: DeployedStack) -> None:
    job = stack.make_job("narrow-job", concurrent_runs=1)
    process = stack.process(limit=1, job=job)
    names = [stack.send(process, f"r{n}") for n in range(2)]
    stack.end(process, "r0", "r1")
    stack.wait_for_status(names[1], "SUCCEEDED")
    history = stack.stepfunctions.get_execution_history(executionArn=stack.arn(names[1]), maxResults=1000)["events"]
    errors = [event["taskFailedEventDetails"]["error"] for event in history if "taskFailedEventDetails" in event]
    refused = [error for error in errors if error.startswith("Glue.")]
    assert set(refused) == {"Glue.ConcurrentRunsExceededException"}
    assert len(stack.runs(names[1], job)) == 1


def _abort_while_running(stack: DeployedStack, process: str) -> str:
    name = stack.send(process, "r1")
    stack.wait_until_running(name)
    stack.stepfunctions.stop_execution(executionArn=stack.arn(name))
    return name


@pytest.mark.parametrize("lives", [False, True], ids=["its run was stopped", "its run lives on"])
def test_f4_a_redriven_workflow_stops_its_run_frees_its_slot_and_its_request_runs_again(
    stack: DeployedStack, lives: bool
) -> None:
    process = stack.process(limit=1)
    if lives:
        stack.faults.add("RunGlueJob", "leave_running")
    name = _abort_while_running(stack, process)
    stack.stepfunctions.redrive_execution(executionArn=stack.arn(name))
    stack.wait_for_status(name, "FAILED")
    assert (stack.execution(name) or {})["error"] == "SlotLost"
    assert [run["JobRunState"] for run in stack.runs(name)] == ["STOPPED"]
    assert _released_after_its_run_ended(stack, name)
    stack.end(process, "r1")
    stack.wait_for_status(execution_name(process, "r1", 2), "SUCCEEDED")


def test_f13_the_request_of_a_slow_starter_whose_reservation_was_freed_runs_as_the_next_attempt(
    stack: DeployedStack,
) -> None:
    """The starter reserves and freezes. An operator frees the slot. Then the starter starts its workflow."""
    process = stack.process(limit=1)
    frozen = stack.faults.add("StartExecution", "hold")
    name = stack.send(process, "r1")
    wait_until(lambda: stack.holders(process) == {name}, "the reservation")
    assert stack.slots.free(process, name, stack.item(process).holders[name].raw)
    stack.faults.remove(frozen)
    stack.wait_for_status(name, "FAILED")
    assert (stack.execution(name) or {})["error"] == "SlotLost"
    assert stack.runs(name) == []
    stack.end(process, "r1")
    stack.wait_for_status(execution_name(process, "r1", 2), "SUCCEEDED")
    assert stack.row(process, name).state == "RETURNED"
