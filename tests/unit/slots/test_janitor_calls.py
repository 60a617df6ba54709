"""The calls of a janitor run, the calls that it saves, and the lease by which one run takes place at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.janitor import RunLease
from slotkeeper.slots.protocol import Candidate
from slotkeeper.slots.settlement import HORIZON_SECONDS
from tests.support.boundary import lose_answer, refuse
from tests.unit.conftest import GRACE, NOW, Account, registration
from tests.unit.janitor_scene import JanitorScene, http

LATER = NOW + GRACE + 1


def test_a_run_without_work_reads_no_single_process(account: Account) -> None:
    """Otherwise a thousand processes cost a thousand calls in each run."""
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    account.slots.wait(Candidate("p", "p-waits", delivery=account.send()), account.item(), NOW)
    account.processes.create("idle", 1, "job")
    account.run_at(NOW)  # a container's first run also reads and writes the settled time
    calls: list[str] = []
    for client in (account.dynamodb, account.sqs):
        client.meta.events.register("before-call", lambda model, **_: calls.append(model.name))
    account.run_at(NOW)
    assert calls == ["Scan"]


def test_a_registration_of_a_deleted_message_is_tried_once_and_removed(account: Account) -> None:
    """Each process that had a waiting request leaves a registration, and each container would try all of them."""
    deleted = account.lose_wake()
    account.sqs.delete_message(QueueUrl=account.queue_url, ReceiptHandle=deleted.receipt_handle)
    tried: list[str] = []
    account.sqs.meta.events.register(
        "provide-client-params.sqs.ChangeMessageVisibilityBatch",
        lambda params, **_: tried.extend(entry["ReceiptHandle"] for entry in params["Entries"]),
    )
    for seconds in (0, 60, 120):
        account.new_janitor()
        account.run_at(NOW + seconds)
    assert tried == [deleted.receipt_handle]
    assert account.item().waiting == {}


def test_s6_a_registration_that_is_newer_than_the_spent_handle_stays(account: Account) -> None:
    """The message was received again after the janitor's read, and is hidden with a new handle."""
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    account.register(receives=2)
    outdated = replace(registration(), receipt_handle="the handle of its first receive")
    assert not account.slots.clear("p", outdated, NOW)
    assert account.item().waiting["normal"].receives == 2


def test_requests_of_more_processes_than_a_batch_holds_are_all_woken(account: Account) -> None:
    for number in range(12):
        name = f"q{number}"
        account.processes.create(name, 1, "job")
        account.slots.reserve(Candidate(name, f"{name}-1"), NOW)
        account.slots.wait(Candidate(name, f"{name}-2", delivery=account.send(group=name)), account.item(name), NOW)
        account.slots.cancel(name, f"{name}-1")
    calls: list[str] = []
    account.sqs.meta.events.register("before-call.sqs", lambda model, **_: calls.append(model.name))
    assert account.run_at(NOW).counts["WaitingWoken"] == 12
    assert calls == ["ChangeMessageVisibilityBatch"] * 2


def test_executions_listed_before_an_error_are_not_described(account: Account) -> None:
    """Otherwise thousands of running executions cost a call each."""
    account.processes.set_limit("p", 2)
    for name in ("p-listed", "p-beyond"):
        account.slots.reserve(Candidate("p", name), NOW)
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
    refuse(aborted.account.sqs, "SendMessage", "InternalError", times=1)
    for seconds in (0, 60, 120):
        aborted.account.run_at(LATER + seconds)
    # From the horizon until all are settled, then from an hour before the grace time.
    assert listed_after == [LATER - HORIZON_SECONDS, LATER + 60 - HORIZON_SECONDS, LATER + 60 - GRACE - 3600]
    assert len(aborted.account.messages(aborted.account.failed_url)) == 1


def test_s3_a_failed_list_settles_nothing_beyond_it(aborted: JanitorScene) -> None:
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
