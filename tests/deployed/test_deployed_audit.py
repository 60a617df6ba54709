"""`slotkeeper audit` on the deployed stack: the records of its services show what happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.deployed.deployed_stack import DeployedStack

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
    assert numbers["accounted"]["ends"] == {"succeeded": 8, "redriven": 1}
    assert numbers["order"]["grants"] == numbers["free"]["waits_known"] == 9
    assert audit["not_read"] == []
    assert audit["figures"][process]["executions"] == {"FAILED": 1, "SUCCEEDED": 8}
    assert f"Process {process}" in page.read_text()
