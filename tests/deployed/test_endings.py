"""Every end is published once it is recorded: the caller's answer, the event and the notification, in this order.

The function of endings publishes; where it cannot, or dies in between, the janitor's next run does the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.deployed.deployed_machines import Machines
from tests.deployed.deployed_stack import kill_containers
from tests.deployed.receivers import Inbox
from tests.waiting import wait_until

PAST = "2026-01-01T00:00:00Z"


def _name(machines: Machines, process: str) -> str:
    """The execution of the only request of a process, once the workflow has started."""
    (execution,) = wait_until(lambda: machines.stack.executions(process), "the workflow")
    return str(execution["name"])


def test_the_caller_of_a_success_receives_the_childs_output(machines: Machines) -> None:
    process = machines.process()
    ended = machines.end_of(machines.call(process, "a"))
    assert (ended["status"], json.loads(ended["output"])) == ("SUCCEEDED", [{"item": "a", "rows": [7]}])
    row = machines.stack.wait_for_end(process, _name(machines, process), "SUCCEEDED")
    assert (row.answer, row.task_token) == ("", "")


def test_the_caller_of_a_failure_receives_the_childs_error(machines: Machines) -> None:
    process = machines.process()
    ended = machines.end_of(machines.call(process, "wrong"))
    name = _name(machines, process)
    child = machines.of(name)["executionArn"]
    row = machines.stack.wait_for_end(process, name, "FAILED")
    assert (ended["status"], ended["error"], ended["cause"]) == ("FAILED", row.code, row.reason)
    assert row.code == "StateMachine.ExecutionNotSucceeded"
    assert row.reason == f"{child} ended as FAILED: NoRows: the month is empty"
    assert "task_token" not in json.loads(row.body)
    assert row.task_token == ""


@pytest.mark.parametrize(
    ("fields", "state", "code"),
    [
        ({"when_busy": "skip"}, "SKIPPED", "Skipped"),
        ({"start_before": PAST}, "TOO_LATE", "TooLate"),
        ({}, "CANCELLED", "Cancelled"),
        ({"weight": "much"}, "", "InvalidRequest"),
    ],
)
def test_the_caller_of_a_request_that_is_not_started_receives_its_code(
    machines: Machines, slotkeeper: Callable[..., Any], fields: dict[str, Any], state: str, code: str
) -> None:
    stack, process = machines.stack, machines.process(limit=0)
    caller = machines.call(process, "a", **fields)
    if state == "CANCELLED":
        wait_until(lambda: stack.queued(process), "the request to be queued")
        slotkeeper("request", "cancel", "--process", process, "--all")
    ended = machines.end_of(caller)
    assert (ended["status"], ended["error"]) == ("FAILED", code)
    if state:
        (row,) = stack.requests.rows(process).rows
        assert stack.wait_for_end(process, row.execution, state).task_token == ""
    else:
        (message,) = wait_until(lambda: stack.dead_letters(process), "the message to be dead-lettered")
        assert ended["cause"] == message["reason"]


@pytest.mark.parametrize("call", ["SendTaskFailure", "PutEvents", "Publish", "UpdateItem"])
def test_what_a_killed_function_has_left_undone_the_janitor_does(
    machines: Machines, producer: Inbox, notices: Inbox, call: str
) -> None:
    """It is killed before its answer, its event, its notification, or its mark, which is its next write after that."""
    stack, process = machines.stack, machines.process()
    held = stack.faults.add("Publish" if call == "UpdateItem" else call, "hold")
    caller = machines.call(process, "wrong")
    wait_until(lambda: stack.faults.fired(held), f"the call before or at {call}")
    if call == "UpdateItem":
        mark = stack.faults.add(call, "hold")
        stack.faults.remove(held)
        wait_until(lambda: stack.faults.fired(mark), "the mark")
    kill_containers(stack.aws)
    name = _name(machines, process)
    assert (stack.row(process, name).open or 0) < 0

    stack.run_janitor_until(lambda: stack.row(process, name).open is None, "the end to be published")

    ended = machines.end_of(caller)
    assert ended["error"] == "StateMachine.ExecutionNotSucceeded"
    assert producer.receives(execution_name=name)[0]["error"] == ended["error"]
    assert notices.receives(execution=stack.arn(name))[0]["reason"] == ended["cause"]


def test_without_the_event_source_of_endings_the_janitor_alone_publishes(machines: Machines) -> None:
    stack, process, closed = machines.stack, machines.process(limit=2), machines.process(limit=0)
    with stack.without_event_source("EndingQueue"):
        callers = [machines.call(process, "a"), machines.call(process, "wrong")]
        callers.append(machines.call(closed, "late", start_before=PAST))

        def recorded() -> bool:
            return all(len(stack.requests.unpublished(each).rows) == ends for each, ends in ((process, 2), (closed, 1)))

        wait_until(recorded, "all ends to be recorded")
        assert all(machines.status(caller) == "RUNNING" for caller in callers)
        stack.janitor()
        assert [machines.end_of(caller)["status"] for caller in callers] == ["SUCCEEDED", "FAILED", "FAILED"]
        assert not [*stack.requests.unpublished(process).rows, *stack.requests.unpublished(closed).rows]
