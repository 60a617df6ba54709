"""`slotkeeper audit` and `what-if` on the deployed stack: the records of its services show what happened."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.slots.work import MARKER
from tests.deployed.deployed_stack import JOB, DeployedStack
from tests.waiting import wait_until

Slotkeeper = Callable[..., Any]


def _results(audit: dict[str, Any]) -> dict[str, str]:
    return {check["id"]: check["result"] for check in audit["checks"]}


def test_a_burst_passes_the_slots_in_order_and_never_above_the_limit(
    stack: DeployedStack, slotkeeper: Slotkeeper, tmp_path: Path
) -> None:
    """One of its requests fails, and is redriven after the limit was lowered. The audit judges all records."""
    process = stack.process(limit=2)
    fails, *ids = (f"r{n}" for n in range(8))
    names = [stack.send(process, request_id) for request_id in (fails, *ids)]
    stack.wait_until_running(names[1])
    stack.end(process, fails, how="fail")
    for earlier, name in zip(ids, names[2:], strict=False):
        stack.wait_until_running(name)  # while the earlier one runs
        stack.end(process, earlier)
    stack.wait_for_end(process, names[0], "FAILED")
    slotkeeper("process", "set-limit", process, "1")
    stack.close_gate(process, fails)
    (redriven,) = slotkeeper("failed", "redrive", names[0])["redriven"]
    stack.wait_until_queued(process, redriven["next"])
    stack.end(process, ids[-1], fails)
    stack.wait_for_status(redriven["next"], "SUCCEEDED")
    assert [execution["name"] for execution in stack.executions(process)] == [*names, redriven["next"]]
    assert stack.item(process).slots_in_use == 0

    page = tmp_path / "audit.html"
    audit = slotkeeper("audit", process, "--since", "1h", "--html", str(page), exit_code=0)

    assert _results(audit) == {
        "limit": "holds",
        "accounted": "holds",
        "once": "holds",
        "freed": "not shown",  # no execution was aborted
        "order": "holds",
        "free": "holds",
    }
    numbers = {check["id"]: check["numbers"] for check in audit["checks"]}
    peak = numbers["limit"]["processes"][process]["Glue run"]
    assert (peak["weight"], peak["limit"]) == (2, 2)
    assert numbers["accounted"]["ends"] == {"succeeded": 8, "redriven": 1}
    assert numbers["once"] == {"succeeded": 8, "further_runs": 0}
    assert numbers["order"]["grants"] == numbers["free"]["waits_known"] == 9
    assert audit["not_read"] == []
    assert audit["figures"][process]["executions"] == {"FAILED": 1, "SUCCEEDED": 8}
    assert f"Process {process}" in page.read_text()


def test_control_a_further_run_of_an_ended_execution_in_a_full_process_fails_the_limit_only(
    stack: DeployedStack, slotkeeper: Slotkeeper
) -> None:
    process = stack.process(limit=1)
    ended, running = stack.send(process, "ended"), stack.send(process, "running")
    stack.end(process, "ended", how="fail")
    stack.wait_until_running(running)
    stack.glue.start_job_run(JobName=JOB, Arguments={MARKER: ended, "--gate": f"{process}/running"})
    wait_until(lambda: stack.alive(process) == 2, "a run without a slot")

    audit = slotkeeper("audit", process, "--since", "1h", exit_code=5)

    assert [check for check, result in _results(audit).items() if result == "fails"] == ["limit"]
    limit = audit["checks"][0]
    peak = limit["numbers"]["processes"][process]["Glue run"]
    assert (peak["weight"], peak["limit"]) == (2, 1)
    assert ended in limit["examples"][0]
    stack.end(process, "running")
    stack.wait_for_status(running, "SUCCEEDED")


def test_a_replay_of_a_burst_at_its_own_limit_has_its_waits(stack: DeployedStack, slotkeeper: Slotkeeper) -> None:
    """Twenty requests of five seconds each pass four slots. At twenty slots none would have waited for one."""
    definition = {"StartAt": "Work", "States": {"Work": {"Type": "Wait", "Seconds": 5, "End": True}}}
    role = "arn:aws:iam::000000000000:role/any"
    machine = stack.stepfunctions.create_state_machine(
        name="child-what-if", definition=json.dumps(definition), roleArn=role
    )["stateMachineArn"]
    process = stack.process(4, machine)
    names = [stack.send(process, f"r{number}", arguments={}) for number in range(20)]
    for name in names:
        stack.wait_for_status(name, "SUCCEEDED")

    same = slotkeeper("what-if", process, "--limit", "4", "--since", "1h", exit_code=0)
    more = slotkeeper("what-if", process, "--limit", "20", "--since", "1h", exit_code=0)

    recorded = same["recorded"]["wait"]["p99"]
    assert same["requests"]["samples"] == 20
    # The last four requests wait for four others each, and for hand-offs, whose time depends on the machine.
    for course in ("check", "replayed"):
        assert same[course]["wait"]["p99"] == pytest.approx(recorded, rel=0.15, abs=1)
    assert more["replayed"]["wait"]["p99"] < recorded / 2
