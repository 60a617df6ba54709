"""Workflows that are aborted or time out at any step: the request ends, the slot is freed, and no run lives."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from dev.emulator.faults import Action
from tests.deployed.deployed_stack import CHECK_GAP, DeployedStack


@pytest.fixture
def no_events(stack: DeployedStack) -> Iterator[None]:
    """Lose every status event."""
    events = stack.aws.client("events")
    rules = [r["Name"] for r in events.list_rules()["Rules"] if "aws.states" in r.get("EventPattern", "")]
    assert rules
    for rule in rules:
        events.disable_rule(Name=rule)
    yield
    for rule in rules:
        events.enable_rule(Name=rule)


# With the state that the row ends in. The simulation aborts before and after each call.
STEPS = [
    ("ConfirmSlot", "abort_before", "succeed", "FAILED"),
    ("RunGlueJob", "abort_after", "", "FAILED"),  # its run is stopped
    ("RecordOutcome", "abort_before", "succeed", "SUCCEEDED"),
    ("ReleaseSlot", "abort_before", "fail", "FAILED"),
]


@pytest.mark.parametrize(("state", "action", "how", "end"), STEPS)
def test_f16_a_workflow_aborted_at_a_step_loses_neither_its_slot_nor_its_request(
    stack: DeployedStack, state: str, action: Action, how: str, end: str
) -> None:
    process = stack.process(limit=1)
    stack.faults.add(state, action)
    name = stack.send(process, "r1")
    if how:
        stack.end(process, "r1", how=how)
    stack.wait_for_status(name, "ABORTED")
    stack.run_janitor_until(lambda: not stack.holders(process), "the slot to be free")
    row = stack.wait_for_end(process, name, end)
    assert (row.code == "") is (end == "SUCCEEDED")
    assert stack.alive(process) == 0
    assert stack.item(process).slots_in_use == 0


def test_f20_s4_the_status_event_of_an_abort_ends_the_request_and_gives_its_slot_to_the_next(
    stack: DeployedStack,
) -> None:
    """The janitor does not run, so only the rule and the event can free the slot."""
    process = stack.process(limit=1)
    aborted, following = stack.send(process, "r1"), stack.send(process, "r2")
    stack.wait_until_running(aborted)
    stack.wait_until_queued(process, following)
    stack.stepfunctions.stop_execution(executionArn=stack.arn(aborted))
    stack.wait_until_running(following)
    assert [run["JobRunState"] for run in stack.runs(aborted)] == ["STOPPED"]
    stopped = stack.execution(aborted)["stopDate"].timestamp()  # type: ignore[index]
    started = stack.execution(following)["startDate"].timestamp()  # type: ignore[index]
    # Two checks, each after a gap.
    assert started - stopped >= 2 * CHECK_GAP
    row = stack.wait_for_end(process, aborted, "FAILED")
    assert (row.code, json.loads(row.body)["request_id"]) == ("ABORTED", "r1")
    stack.end(process, "r2")
    stack.wait_for_status(following, "SUCCEEDED")


def test_f18_without_its_status_event_an_aborted_workflow_is_found_by_janitor_runs(
    stack: DeployedStack, no_events: None
) -> None:
    process = stack.process(limit=1)
    name = stack.send(process, "r1")
    stack.wait_until_running(name)
    stack.stepfunctions.stop_execution(executionArn=stack.arn(name))
    stack.run_janitor_until(lambda: not stack.holders(process), "the slot to be free")
    assert stack.row(process, name).open is None


def test_f16_a_workflow_that_timed_out_has_failed_and_its_run_is_stopped(stack: DeployedStack) -> None:
    machine = stack.outputs["WorkflowArn"]
    definition = stack.stepfunctions.describe_state_machine(stateMachineArn=machine)["definition"]
    short = json.dumps(json.loads(definition) | {"TimeoutSeconds": 2})
    process = stack.process(limit=1)
    stack.stepfunctions.update_state_machine(stateMachineArn=machine, definition=short)
    try:
        name = stack.send(process, "r1")
        stack.wait_for_status(name, "TIMED_OUT")
    finally:
        stack.stepfunctions.update_state_machine(stateMachineArn=machine, definition=definition)
    stack.run_janitor_until(lambda: not stack.holders(process), "the slot to be free")
    assert [run["JobRunState"] for run in stack.runs(name)] == ["STOPPED"]
    assert stack.wait_for_end(process, name, "FAILED").code == "TIMED_OUT"


def test_f15_a_request_whose_starter_died_before_its_start_is_started_by_name(stack: DeployedStack) -> None:
    process = stack.process(limit=0)
    name = stack.send(process, "r1")
    stack.wait_until_queued(process, name)
    stack.dynamodb.update_item(
        TableName=stack.table,
        Key={"process_name": {"S": process}},
        UpdateExpression="SET slot_limit = :one, slots_in_use = :one, holders.#me = :reserved",
        ExpressionAttributeNames={"#me": name},
        ExpressionAttributeValues={
            ":one": {"N": "1"},
            ":reserved": {"M": {"state": {"S": "RESERVED"}, "since": {"N": "1"}}},
        },
    )
    stack.run_janitor_until(lambda: stack.status(name) != "NONE", "the janitor to start it")
    stack.end(process, "r1")
    stack.wait_for_status(name, "SUCCEEDED")
    assert len(stack.runs(name)) == 1
    stack.wait_until_free(process)
