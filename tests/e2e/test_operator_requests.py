"""The operator command on the deployed stack: requests are submitted, cancelled, stopped, and redriven."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.deployed_stack import DeployedStack
from tests.support.waiting import wait_until

Slotkeeper = Callable[..., Any]


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


def test_a_cancelled_waiting_request_is_dead_lettered_and_the_next_one_proceeds(
    stack: DeployedStack, slotkeeper: Slotkeeper, tmp_path: Path
) -> None:
    process = stack.process(limit=1)
    _submit(slotkeeper, tmp_path, process, "abc")
    assert _wait_for(slotkeeper, process, "a", "running")["attempt"] == 1
    _wait_for(slotkeeper, process, "b", "waiting")
    (waiting,) = slotkeeper("explain", "b", "--process", process)["found"]
    assert [each["condition"] for each in waiting["conditions"]] == ["slots"]
    assert [one["request_id"] for one in waiting["holders"]] == ["a"]
    (behind,) = slotkeeper("explain", "c", "--process", process)["queues"]
    assert [one["request_id"] for one in behind["waiting"]] == ["b"]
    assert slotkeeper("request", "cancel", "b", "--process", process)["was_first"] is True
    dead_letter = _wait_for(slotkeeper, process, "b", "dead-lettered")["dead_letter"]
    assert dead_letter["code"] == "Cancelled"
    _wait_for(slotkeeper, process, "c", "waiting")
    stack.end(process, "a", "c", "b")
    _wait_for(slotkeeper, process, "c", "succeeded")
    (redriven,) = slotkeeper("dlq", "redrive", "request", "--id", dead_letter["message_id"])["redriven"]
    assert redriven["attempt"] == 2
    assert _wait_for(slotkeeper, process, "b", "succeeded")["attempt"] == 2
    started = [execution["name"] for execution in stack.executions(process)]
    assert len(started) == 3
    assert redriven["execution"] == started[-1]


def test_a_running_request_is_stopped_kept_and_redriven(
    stack: DeployedStack, slotkeeper: Slotkeeper, tmp_path: Path
) -> None:
    process = stack.process(limit=1)
    _submit(slotkeeper, tmp_path, process, "a")
    name = _wait_for(slotkeeper, process, "a", "running")["execution"]
    wait_until(lambda: stack.alive(process), "its Glue run")
    stopped = slotkeeper("request", "cancel", "a", "--process", process, "--stop")
    assert (stopped["stopped"], stopped["request_id"]) == (name, "a")
    stack.run_janitor_until(lambda: not stack.holders(process), "the slot to be free")
    assert stack.alive(process) == 0
    dead_letter = wait_until(
        lambda: _wait_for(slotkeeper, process, "a", "failed").get("dead_letter"), "its request to be kept"
    )
    assert dead_letter["code"] == "Cancelled"
    stack.end(process, "a")
    assert len(slotkeeper("dlq", "redrive", "failed", "--id", dead_letter["message_id"])["redriven"]) == 1
    assert _wait_for(slotkeeper, process, "a", "succeeded")["attempt"] == 2
