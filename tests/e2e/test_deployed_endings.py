"""A request that skips and one that is too late, on the deployed stack: they end, and keep no other request out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.e2e.deployed_stack import DeployedStack
from tests.support.waiting import wait_until


def test_next_to_a_running_request_one_is_skipped_and_one_is_too_late(
    stack: DeployedStack, slotkeeper: Callable[..., Any]
) -> None:
    process = stack.process(limit=1)
    running = stack.send(process, "running")
    stack.wait_until_running(running)

    options = ("--process", process, "--request-id", "skips", "--priority", "high", "--skip-if-busy", "--wait")
    (sent,) = slotkeeper("request", "submit", *options)["sent"]
    assert (sent["status"], sent["reason"].endswith("the process is full")) == ("skipped", True)
    (found,) = slotkeeper("request", "show", "skips", "--process", process)["found"]
    assert found["state"] == "skipped"

    deadline = (datetime.now(UTC) + timedelta(seconds=5)).isoformat()
    late = stack.send(process, "late", start_before=deadline)
    stack.wait_until_waiting(process)
    wait_until(lambda: stack.dead_letters(process), "the request to be too late")
    (dead,) = stack.dead_letters(process)
    assert dead["code"] == "TooLate"
    wait_until(lambda: not stack.item(process).waiting, "its registration to end")

    last = stack.send(process, "last")
    stack.end(process, "running", "last")
    stack.wait_for_status(last, "SUCCEEDED")
    assert stack.status(late) == "NONE"
