"""The queue: its order, leases, skips, deadlines, repeated messages, lost rings, and messages that are no requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from slotkeeper.slots.leases import SlotUnavailable
from tests.deployed.deployed_stack import DeployedStack
from tests.waiting import wait_until


def test_requests_of_any_message_group_start_by_priority_and_past_a_blocked_one(stack: DeployedStack) -> None:
    process = stack.process(limit=0)
    low, normal, high = (stack.send(process, priority, priority=priority) for priority in ("low", "normal", "high"))
    blocked = stack.send(process, "blocked", priority="high", weight=2)
    body = {"process": process, "request_id": "other", "arguments": {"--gate": f"{process}/other"}}
    stack.send_raw(json.dumps(body), "any-group")
    wait_until(lambda: len(stack.queued(process)) == 5, "all requests to be queued")
    other = next(name for name in stack.queued(process) if name not in (low, normal, high, blocked))
    stack.wait_until_queued(process, high, blocked, normal, other, low)
    stack.end(process, "low", "normal", "high", "other")
    stack.operations.set_limit(process, 1)
    stack.wait_for_status(low, "SUCCEEDED")
    ended = [high, normal, other, low]
    assert sorted(ended, key=lambda name: stack.row(process, name).granted) == ended
    assert stack.queued(process) == [blocked]
    stack.operations.set_limit(process, 2)
    stack.end(process, "blocked")
    stack.wait_for_status(blocked, "SUCCEEDED")


def test_next_to_a_running_request_one_is_skipped_and_one_is_too_late(
    stack: DeployedStack, slotkeeper: Callable[..., Any]
) -> None:
    process = stack.process(limit=1)
    running = stack.send(process, "running")
    stack.wait_until_running(running)
    first = stack.send(process, "first", priority="high")

    options = ("--process", process, "--request-id", "skips", "--skip-if-busy", "--wait")
    (sent,) = slotkeeper("request", "submit", *options)["sent"]
    assert sent["state"] == "skipped"

    deadline = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    late = stack.send(process, "late", start_before=deadline)  # behind another, in a full process
    row = stack.wait_for_end(process, late, "TOO_LATE")
    assert row.ended is not None
    assert row.ended >= datetime.fromisoformat(deadline).timestamp()

    assert stack.queued(process) == [first]
    stack.end(process, "running", "first")
    stack.wait_for_status(first, "SUCCEEDED")
    assert stack.status(late) == "NONE"


def test_a_waiting_request_keeps_leases_out_and_starts_after_the_end_of_one(stack: DeployedStack) -> None:
    process = stack.process(limit=2)
    leases = stack.leases
    with leases.lease(process, seconds=60):
        name = stack.send(process, "r1", weight=2)
        stack.wait_until_queued(process, name)
        with ThreadPoolExecutor(1) as other, pytest.raises(SlotUnavailable):
            other.submit(leases.lease(process, seconds=60).__enter__).result()
    stack.wait_until_running(name)
    assert stack.holders(process) == {name}
    stack.end(process, "r1")
    stack.wait_for_status(name, "SUCCEEDED")


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


def test_a_ring_that_is_lost_is_made_up_for_by_the_next_one_or_by_the_janitor(stack: DeployedStack) -> None:
    process = stack.process(limit=2)
    names = [stack.send(process, f"r{n}") for n in range(4)]
    for name in names[:2]:
        stack.wait_until_running(name)
    stack.wait_until_queued(process, *names[2:])
    lost = [stack.faults.add("Ring", "refuse", execution=name, times=0) for name in names[:2]]
    stack.end(process, "r0")
    stack.wait_for_status(names[0], "SUCCEEDED")
    assert stack.faults.fired(lost[0])
    assert stack.status(names[2]) == "NONE"
    counts = stack.janitor()
    assert counts["StartsOverdue"] >= 1
    stack.wait_until_running(names[2])
    stack.end(process, "r1", "r2")
    stack.wait_until_running(names[3])
    stack.end(process, "r3")
    stack.wait_for_status(names[3], "SUCCEEDED")


# ------------------------------------------------------------------------------ bad messages and rejected requests

# A body with PROCESS for the process it is sent for, and what its reason must name.
BAD = {
    "not JSON": ("{", "not JSON"),
    "unknown field": ('{"process": "PROCESS", "priority": 1}', "priority"),
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


def test_f19_requests_without_a_process_and_with_a_used_id_are_rejected_rows_which_run_once_corrected(
    stack: DeployedStack,
) -> None:
    name = stack.send("unknown", "r1")
    row = stack.wait_for_end("unknown", name, "REJECTED")
    assert (row.code, "'unknown' does not exist" in row.reason) == ("UnknownProcess", True)

    process = stack.process()
    first = stack.send(process, "same")
    stack.end(process, "same")
    stack.wait_for_status(first, "SUCCEEDED")
    stack.send(process, "same", weight=1)
    wait_until(
        lambda: [row.code for row in stack.requests.rows(process, ["REJECTED"]).rows] == ["RequestIdReused"],
        "the other request of this id to be rejected",
    )

    late = stack.send(process, "again", start_before="2026-01-01T00:00:00Z")
    stack.wait_for_end(process, late, "TOO_LATE")
    stack.send(process, "again")  # corrected
    stack.end(process, "again")
    wait_until(lambda: len(stack.executions(process)) == 2, "the corrected request to run")
    attempts = [row.attempt for row in stack.requests.rows(process).rows if row.request_id == "again"]
    assert sorted(attempts) == [1, 2]
