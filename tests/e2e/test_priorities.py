"""Priorities and weights on the deployed stack: the starter, the workflow and the janitor together."""

from __future__ import annotations

import json
import re

from slotkeeper.slots.request import execution_name
from tests.e2e.deployed_stack import DeployedStack


def test_a_freed_slot_goes_to_the_highest_priority_that_waits(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    names = [stack.send(process, "first")]
    stack.wait_until_running(names[0])
    for priority in ("low", "normal", "high"):
        names.append(stack.send(process, priority, priority=priority))
        stack.wait_until_waiting(process, names[-1])
    stack.end(process, "first", "low", "normal", "high")
    stack.wait_for_status(names[1], "SUCCEEDED")
    first, low, normal, high = names
    assert [execution["name"] for execution in stack.executions(process)] == [first, high, normal, low]


def test_a_heavy_request_waits_until_its_weight_fits_and_the_workflow_releases_its_weight(stack: DeployedStack) -> None:
    process = stack.process(limit=10)
    weights = {"six": 6, "four": 4, "seven": 7}
    six, four = (stack.send(process, name, weight=weights[name]) for name in ("six", "four"))
    for name in (six, four):
        stack.wait_until_running(name)
    assert stack.item(process).slots_in_use == 10
    seven = stack.send(process, "seven", weight=7)
    stack.wait_until_waiting(process, seven)
    stack.end(process, "four")
    stack.wait_for_status(four, "SUCCEEDED")
    assert (stack.item(process).slots_in_use, stack.status(seven)) == (6, "NONE")
    stack.end(process, "six")
    stack.wait_until_running(seven)
    assert (stack.item(process).slots_in_use, stack.holders(process)) == (7, {seven})
    stack.end(process, "seven")
    stack.wait_for_status(seven, "SUCCEEDED")
    assert stack.item(process).slots_in_use == 0


def test_a_blocked_request_is_counted_keeps_no_other_waiting_and_starts_after_a_raised_limit(
    stack: DeployedStack,
) -> None:
    process = stack.process(limit=2)
    heavy = stack.send(process, "heavy", priority="high", weight=3)
    stack.wait_until_waiting(process, heavy)
    other = stack.send(process, "other", priority="low")
    stack.wait_until_running(other)
    stack.end(process, "other")
    stack.wait_for_status(other, "SUCCEEDED")
    stack.janitor()
    log = (stack.aws.state_dir / "engine.log").read_text()
    counts = [float(count) for count in re.findall(r'"BlockedRequests":\[([\d.]+)\]', log)]
    assert counts[-1] >= 1
    assert f'"process_name":"{process}","request_id":"heavy"' in log
    assert stack.status(heavy) == "NONE"
    assert stack.operations.set_limit(process, 3)
    stack.wait_until_running(heavy)
    stack.end(process, "heavy")
    stack.wait_for_status(heavy, "SUCCEEDED")


def test_a_returned_request_keeps_its_message_group_and_its_weight(stack: DeployedStack) -> None:
    process = stack.process(limit=5)
    stack.faults.add("ConfirmSlot", "refuse", error="DynamoDB.ConditionalCheckFailedException")
    name = stack.send(process, "r1", priority="high", weight=5)
    stack.wait_for_status(name, "FAILED")
    again = execution_name(process, "r1", 2)
    stack.wait_until_running(again)
    execution = stack.execution(again)
    assert execution is not None
    given = json.loads(execution["input"])
    assert (given["attempt"], given["priority"], given["weight"]) == (2, "high", 5)
    assert (stack.item(process).slots_in_use, stack.holders(process)) == (5, {again})
    stack.end(process, "r1")
    stack.wait_for_status(again, "SUCCEEDED")
    assert stack.dead_letters(process) == []


def test_the_workflows_wake_clears_a_registration_without_a_message_and_wakes_the_next_after_a_turn(
    stack: DeployedStack,
) -> None:
    """As after a purge of the queue. The janitor does not run."""
    process = stack.process(limit=1)
    running = stack.send(process, "running")
    stack.wait_until_running(running)
    gone = stack.send(process, "gone", priority="high")
    stack.wait_until_waiting(process, gone)
    left_over = stack.item(process).waiting["high"]
    stack.sqs.delete_message(QueueUrl=stack.queue_url, ReceiptHandle=left_over.receipt_handle)
    waiting = stack.send(process, "waiting")
    stack.wait_until_waiting(process, waiting)
    stack.end(process, "running", "waiting")
    stack.wait_for_status(waiting, "SUCCEEDED")
    assert stack.states_of(running).count("ClearWaiting") == 1
    assert stack.item(process).tombstones["high"] == (left_over.sequence, left_over.receives)
    assert stack.status(gone) == "NONE"
    execution = stack.execution(waiting)
    assert execution is not None
    assert execution["startDate"].timestamp() >= stack.item(process).turns["high"] / 1000 + 1
