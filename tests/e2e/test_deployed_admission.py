"""Admission: never above the limit, in order, woken immediately, without starvation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.slots.request import execution_name
from tests.e2e.deployed_stack import DeployedStack
from tests.support.waiting import wait_until


def test_f6_after_a_limit_is_lowered_under_load_no_request_is_admitted_above_it(stack: DeployedStack) -> None:
    process = stack.process(limit=3)
    names = [stack.send(process, f"r{n}") for n in range(5)]
    for name in names[:3]:
        stack.wait_until_running(name)
    stack.wait_until_waiting(process)
    stack.operations.set_limit(process, 1)
    for n in range(2):
        stack.end(process, f"r{n}")
        stack.wait_for_status(names[n], "SUCCEEDED")
        refused = _receives(stack, process)
        _wake(stack, process)
        wait_until(lambda seen=refused: _receives(stack, process) > seen, "the next request to be refused again")
    assert stack.status(names[3]) == "NONE"
    assert stack.holders(process) == {names[2]}
    stack.end(process, "r2", "r3", "r4")
    stack.wait_for_status(names[4], "SUCCEEDED")


def test_f7_a_limit_stored_as_a_string_admits_and_loses_no_request(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    key = {"process_name": {"S": process}}
    update = {"UpdateExpression": "SET slot_limit = :l", "ExpressionAttributeValues": {":l": {"S": "10"}}}
    stack.dynamodb.update_item(TableName=stack.table, Key=key, **update)
    refusals = stack.starter_errors()
    name = stack.send(process, "r1")
    wait_until(lambda: stack.starter_errors() > refusals, "the starter to leave the message on the queue")
    assert stack.janitor()["MalformedProcesses"] == 1
    assert stack.status(name) == "NONE"
    assert stack.dead_letters(process) == []
    stack.processes.set_limit(process, 1)


def test_a_raised_limit_wakes_the_waiting_request(stack: DeployedStack) -> None:
    process = stack.process(limit=0)
    name = stack.send(process, "r1")
    stack.wait_until_waiting(process)
    stack.operations.set_limit(process, 1)
    stack.wait_until_running(name)
    stack.end(process, "r1")
    stack.wait_for_status(name, "SUCCEEDED")


def test_a_paused_process_admits_no_request_until_it_is_resumed(stack: DeployedStack) -> None:
    process = stack.process(limit=2)
    first = stack.send(process, "r1")
    stack.wait_until_running(first)
    stack.operations.pause(process)
    second = stack.send(process, "r2")
    stack.wait_until_waiting(process)
    stack.end(process, "r1")
    stack.wait_for_status(first, "SUCCEEDED")
    assert stack.status(second) == "NONE"
    stack.operations.resume(process)
    stack.wait_until_running(second)
    stack.end(process, "r2")
    stack.wait_for_status(second, "SUCCEEDED")


def test_a_full_process_does_not_delay_another(stack: DeployedStack) -> None:
    full, free = stack.process(limit=0), stack.process(limit=1)
    stack.send(full, "r1")
    stack.wait_until_waiting(full)
    for n in range(3):
        name = stack.send(free, f"r{n}")
        stack.end(free, f"r{n}")
        stack.wait_for_status(name, "SUCCEEDED")
    assert stack.executions(full) == []


def test_one_at_a_time_a_process_goes_in_order_past_a_failure_and_past_a_busy_process(
    stack: DeployedStack, slotkeeper: Callable[..., Any]
) -> None:
    ordered, other = stack.process(limit=1), stack.process(limit=1)
    ids = [f"r{n}" for n in range(4)]
    names = [stack.send(ordered, request_id) for request_id in ids]
    stack.wait_until_running(names[0])
    aside = stack.send(other, "aside")
    stack.end(other, "aside")
    stack.wait_for_status(aside, "SUCCEEDED")
    stack.end(ordered, "r1", how="fail")
    stack.end(ordered, "r0", "r2", "r3")
    stack.wait_for_status(names[-1], "SUCCEEDED")
    assert [stack.status(name) for name in names] == ["SUCCEEDED", "FAILED", "SUCCEEDED", "SUCCEEDED"]
    assert [execution["name"] for execution in stack.executions(ordered)] == names
    limit = slotkeeper("audit", ordered, "--since", "1h", exit_code=0)["checks"][0]
    assert (limit["result"], limit["numbers"]["processes"][ordered]["Glue run"]["count"]) == ("holds", 1)


def test_two_processes_may_use_the_same_request_id(stack: DeployedStack) -> None:
    """By the same deduplication id: SQS must keep one per message group."""
    one, other = stack.process(), stack.process()
    for process in (one, other):
        body = {"process": process, "request_id": "same", "arguments": {"--gate": f"{process}/same"}}
        stack.send_raw(json.dumps(body), process, "same")
        stack.end(process, "same")
    for process in (one, other):
        stack.wait_for_status(execution_name(process, "same", 1), "SUCCEEDED")


def test_f21_a_request_that_is_refused_twenty_times_is_not_dead_lettered(stack: DeployedStack) -> None:
    process = stack.process(limit=0)
    name = stack.send(process, "r1")
    stack.wait_until_waiting(process)
    for refusals in range(1, 20):
        _wake(stack, process)
        wait_until(lambda seen=refusals: _receives(stack, process) > seen, f"refusal {refusals + 1}", interval=0.01)
    stack.operations.set_limit(process, 1)
    stack.wait_until_running(name)
    stack.end(process, "r1")
    stack.wait_for_status(name, "SUCCEEDED")
    assert stack.dead_letters(process) == []


def _wake(stack: DeployedStack, process: str) -> None:
    """Wake the waiting request although no slot is free."""
    stack.queue.make_visible(stack.item(process).waiting["normal"].receipt_handle)


def _receives(stack: DeployedStack, process: str) -> int:
    return stack.item(process).waiting["normal"].receives


def test_f24_a_message_that_is_sent_a_hundred_times_runs_once(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    names = {stack.send(process, "same") for _ in range(100)}
    stack.end(process, "same")
    last = stack.send(process, "last")
    stack.end(process, "last")
    wait_until(lambda: stack.status(last) == "SUCCEEDED", "the message behind the hundred")
    assert [execution["name"] for execution in stack.executions(process)] == [*names, last]
    assert [len(stack.runs(name)) for name in names] == [1]
    stack.wait_until_free(process)


@pytest.mark.parametrize("how", ["release's wake is lost", "workflow aborted between release and wake"])
def test_a_lost_wake_is_repeated_by_the_next_release(stack: DeployedStack, how: str) -> None:
    process = stack.process(limit=2)
    names = [stack.send(process, f"r{n}") for n in range(3)]
    for name in names[:2]:
        stack.wait_until_running(name)
    stack.wait_until_waiting(process)
    state, action = ("WakeWaiting", "refuse") if how.startswith("release") else ("ReadWaiting", "abort_before")
    rule = stack.faults.add(state, action, execution=names[0])
    stack.end(process, "r0")
    wait_until(lambda: stack.faults.fired(rule), "the wake to be lost")
    stack.wait_for_status(names[0], "SUCCEEDED", "ABORTED")
    assert stack.status(names[2]) == "NONE"
    stack.end(process, "r1", "r2")
    stack.wait_for_status(names[2], "SUCCEEDED")


def test_a_lost_wake_is_repeated_by_the_janitor(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    names = [stack.send(process, f"r{n}") for n in range(2)]
    stack.wait_until_running(names[0])
    stack.wait_until_waiting(process)
    rule = stack.faults.add("WakeWaiting", "refuse", execution=names[0])
    stack.end(process, "r0", "r1")
    wait_until(lambda: stack.faults.fired(rule), "the wake to be lost")
    stack.wait_for_status(names[0], "SUCCEEDED")
    assert stack.janitor()["WaitingWoken"] >= 1
    stack.wait_for_status(names[1], "SUCCEEDED")
