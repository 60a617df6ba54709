"""Admission: never above the limit, in order, without starvation. Bad messages are dead-lettered and delay no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

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


# ------------------------------------------------------------------------------------------------------- bad messages

# A body with PROCESS for the process it is sent for, and what its reason must name.
BAD = {
    "not JSON": ("{", "not JSON"),
    "unknown field": ('{"process": "PROCESS", "priority": 1}', "priority"),
    "wrong type": ('{"process": "PROCESS", "arguments": {"--a": 1}}', "body.arguments.--a"),
    "process too long": (json.dumps({"process": "p" * 48}), "body.process"),
    "another process's group": ('{"process": "PROCESS-other"}', "MessageGroupId"),
    "an argument of Glue's": (
        '{"process": "PROCESS", "arguments": {"--extra-py-files": "s3://x"}}',
        "--extra-py-files",
    ),
    "our own marker": (
        '{"process": "PROCESS", "arguments": {"--slotkeeper-execution": "x"}}',
        "--slotkeeper-execution",
    ),
    "junk of the maximum size": ("x" * 66560, "not JSON"),
}


def test_f22_bad_messages_are_dead_lettered_with_a_reason_and_delay_no_other(stack: DeployedStack) -> None:
    process = stack.process(limit=1)
    before = stack.item(process)
    for n, (body, _) in enumerate(BAD.values()):
        stack.send_raw(body.replace("PROCESS", process), process, f"bad-{n}")
    good = stack.send(process, "good")
    stack.end(process, "good")
    stack.wait_for_status(good, "SUCCEEDED")
    wait_until(lambda: len(stack.dead_letters(process)) == len(BAD), "every bad message to be dead-lettered")
    reasons = [dead_letter["reason"] for dead_letter in stack.dead_letters(process)]
    assert [names in reason for (_, names), reason in zip(BAD.values(), reasons, strict=True)] == [True] * len(BAD)
    stack.wait_until_free(process)
    after = stack.item(process)
    assert (after.slot_limit, after.slots_in_use, after.holders) == (before.slot_limit, 0, {})
    assert [execution["name"] for execution in stack.executions(process)] == [good]


def test_f19_a_message_of_an_unknown_process_is_dead_lettered(stack: DeployedStack) -> None:
    stack.send("unknown", "r1")
    (dead_letter,) = wait_until(lambda: stack.dead_letters("unknown"), "the message of an unknown process")
    assert dead_letter["code"] == "UnknownProcess"
    assert "'unknown' does not exist" in dead_letter["reason"]


def test_a_message_above_the_queues_maximum_size_is_refused_to_its_sender(stack: DeployedStack) -> None:
    process = stack.process()
    with pytest.raises(stack.sqs.exceptions.ClientError, match="66560"):
        stack.send_raw("x" * 66561, process)
