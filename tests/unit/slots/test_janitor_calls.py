"""The calls of a janitor run, and the calls that it saves."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tests.simulation.account.boundary import Calls
from tests.unit.conftest import GRACE, NOW, Account
from tests.unit.janitor_scene import JanitorScene, http

LATER = NOW + GRACE + 1


def test_a_run_without_work_reads_no_single_item(account: Account) -> None:
    """A process costs three queries: of the ends to publish, of its queue, and of the requests that have not ended."""
    account.hold("p-1", "RUNNING")
    account.processes.create("idle", 1, "job")
    made = Calls(account.dynamodb, account.sqs, account.stepfunctions).made
    account.run_at(NOW)
    assert made == ["Scan", *["Query"] * 6, "ListExecutions"]


def test_a_started_request_that_holds_its_slot_costs_no_call_of_its_own(scene: JanitorScene) -> None:
    scene.start()
    made = Calls(scene.account.dynamodb, scene.account.sqs, scene.account.stepfunctions).made
    scene.account.run_at(NOW + 1)
    assert made == ["Scan", *["Query"] * 3, "ListExecutions"]


def test_executions_listed_before_an_error_are_not_described(account: Account) -> None:
    """Otherwise thousands of running executions cost a call each."""
    for name in ("p-listed", "p-beyond"):
        account.hold(name, "RUNNING")
    calls: list[str] = []

    def answer(params: Any, **_: Any) -> Any:
        if "nextToken" in json.loads(params["body"]):
            return http(400), {"Error": {"Code": "ThrottlingException", "Message": "slow down"}}
        runs = {"name": "p-listed", "status": "RUNNING", "startDate": datetime.fromtimestamp(NOW, UTC)}
        return http(200), {"executions": [runs], "nextToken": "more"}

    account.stepfunctions.meta.events.register("before-call.stepfunctions.ListExecutions", answer)
    account.stepfunctions.meta.events.register(
        "provide-client-params.stepfunctions.DescribeExecution",
        lambda params, **_: calls.append(params["executionArn"].rpartition(":")[2]),
    )
    account.run_at(LATER)
    assert calls == ["p-beyond"]
