"""The calls of a janitor run, the calls that it saves, and the lease by which one run takes place at a time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.janitor import RunLease
from slotkeeper.slots.settlement import HORIZON_SECONDS
from tests.support.boundary import Calls, lose_answer, refuse
from tests.unit.conftest import GRACE, NOW, Account
from tests.unit.janitor_scene import JanitorScene, http

LATER = NOW + GRACE + 1


def test_a_run_without_work_reads_no_single_item(account: Account) -> None:
    """A process costs a query of the ends that must be published, and one of its queue."""
    account.hold("p-1", "RUNNING")
    account.processes.create("idle", 1, "job")
    account.run_at(NOW)  # a container's first run also reads and writes the settled time
    made = Calls(account.dynamodb, account.sqs).made
    account.run_at(NOW)
    assert made == ["Scan", *["Query"] * 4]


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


@pytest.fixture
def listed_after(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time from which each list of unsuccessful executions was read."""
    listed: list[float] = []
    unsuccessful = Workflow.unsuccessful

    def listing(self: Workflow, stopped_after: float) -> Any:
        listed.append(stopped_after)
        return unsuccessful(self, stopped_after)

    monkeypatch.setattr(Workflow, "unsuccessful", listing)
    return listed


def test_settled_executions_are_not_listed_again(aborted: JanitorScene, listed_after: list[float]) -> None:
    """A million requests a day with one failure in a hundred fill a hundred pages, which each run would read."""
    aborted.account.free(aborted.execution)
    refuse(aborted.account.sqs, "SendMessage", "InternalError", times=1)
    for seconds in (0, 60, 120):
        aborted.account.run_at(LATER + seconds)
    # From the horizon until all are settled, then from an hour before the grace time.
    assert listed_after == [LATER - HORIZON_SECONDS, LATER + 60 - HORIZON_SECONDS, LATER + 60 - GRACE - 3600]
    assert len(aborted.account.messages(aborted.account.failed_url)) == 1


def test_s3_a_failed_list_settles_nothing_beyond_it(aborted: JanitorScene) -> None:
    aborted.account.free(aborted.execution)
    refuse(aborted.account.stepfunctions, "ListExecutions", "ThrottlingException")
    aborted.account.run_at(LATER + 2 * 3600)
    aborted.account.new_janitor()
    aborted.account.run_at(LATER + 2 * 3600 + 60)
    assert len(aborted.account.messages(aborted.account.failed_url)) == 1


def test_a_new_container_lists_from_the_stored_settled_time(scene: JanitorScene, listed_after: list[float]) -> None:
    scene.account.run_at(LATER)
    scene.account.new_janitor()
    scene.account.run_at(LATER + 86400)
    assert listed_after == [LATER - HORIZON_SECONDS, LATER - GRACE - 3600]


# The lease of a run


class Runs:
    """Creates leases over one table with one clock."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.now = NOW

    def new(self) -> RunLease:
        return RunLease(self.account.dynamodb, self.account.settled_table, lambda: self.now)


@pytest.fixture
def runs(account: Account) -> Runs:
    return Runs(account)


def test_a_run_that_was_killed_keeps_the_lease_until_lambda_would_have_stopped_it(runs: Runs) -> None:
    assert runs.new().take(120)
    runs.now = NOW + 120 + CLOCK_SKEW_SECONDS
    assert not runs.new().take(120)
    runs.now += 1
    assert runs.new().take(120)


def test_a_late_run_does_not_release_the_next_runs_lease(runs: Runs) -> None:
    late = runs.new()
    assert late.take(1)
    runs.now = NOW + 60
    assert runs.new().take(120)
    late.release()
    assert not runs.new().take(120)


def test_a_lease_whose_answer_was_lost_is_held_by_the_call_that_the_sdk_repeats(runs: Runs) -> None:
    """The repeated write finds the item of the first, and is refused."""
    lease = RunLease(runs.account.dynamodb, runs.account.settled_table, lambda: NOW, lambda: "code")
    lose_answer(runs.account.dynamodb, "PutItem")
    with pytest.raises(Exception, match="Read timeout"):
        lease.take(120)
    assert lease.take(120)
