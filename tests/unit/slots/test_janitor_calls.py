"""The janitor: what a round calls, one call after the other, and what it need not call."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.queues import wake_next
from slotkeeper.slots.settlement_table import HORIZON_SECONDS
from tests.support.boundary import refuse
from tests.unit.conftest import GRACE, NOW, Account
from tests.unit.janitor_scene import JanitorScene, http

LATER = NOW + GRACE + 1


@pytest.fixture
def scene(account: Account) -> JanitorScene:
    return JanitorScene(account)


def test_a_run_without_work_reads_no_single_process(account: Account) -> None:
    """A thousand processes would be a thousand calls, one after the other, in every round."""
    account.slots.reserve("p", "p-1", NOW)
    account.slots.wait("p", "p-waits", account.send())
    account.processes.create("idle", 1, "job")
    account.run_at(NOW)  # a container's first run reads, and notes, where all was settled
    asked: list[str] = []
    for client in (account.dynamodb, account.sqs):
        client.meta.events.register("before-call", lambda model, **_: asked.append(model.name))
    account.run_at(NOW)
    assert asked == ["Scan"]


def test_a_registration_of_a_deleted_message_is_tried_once_and_removed(account: Account) -> None:
    """Every process that has ever had a request wait leaves one, and every container would try each of them again."""
    account.slots.reserve("p", "p-1", NOW)
    gone = account.send()
    account.slots.wait("p", "p-waits", gone)
    account.slots.cancel("p", "p-1")
    account.sqs.delete_message(QueueUrl=account.queue_url, ReceiptHandle=gone.receipt_handle)
    tried: list[str] = []
    account.sqs.meta.events.register(
        "provide-client-params.sqs.ChangeMessageVisibilityBatch",
        lambda params, **_: tried.extend(entry["ReceiptHandle"] for entry in params["Entries"]),
    )
    for seconds in (0, 60, 120):
        account.new_janitor()
        account.run_at(NOW + seconds)
    assert tried == [gone.receipt_handle]
    assert account.item().waiting_handle is None


def test_s6_a_registration_that_is_newer_than_the_spent_handle_stays(account: Account) -> None:
    """The message was received again between the janitor's read and its removal, and is hidden under a new handle."""
    account.slots.reserve("p", "p-1", NOW)
    account.slots.wait("p", "p-waits", replace(account.send(), receives=2))
    assert not account.slots.remove_registration("p", "the handle of its first receive")
    assert account.item().waiting_execution == "p-waits"


def test_every_wake_removes_a_spent_registration(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
    gone = account.send()
    account.slots.wait("p", "p-waits", gone)
    account.slots.cancel("p", "p-1")
    account.sqs.delete_message(QueueUrl=account.queue_url, ReceiptHandle=gone.receipt_handle)
    assert not wake_next(account.slots, account.queue, "p")
    assert account.item().waiting_handle is None


def test_requests_of_more_processes_than_a_batch_holds_are_all_woken(account: Account) -> None:
    for number in range(23):
        name = f"q{number}"
        account.processes.create(name, 1, "job")
        account.slots.reserve(name, f"{name}-1", NOW)
        account.slots.wait(name, f"{name}-2", account.send(group=name))
        account.slots.cancel(name, f"{name}-1")
    calls: list[str] = []
    account.sqs.meta.events.register("before-call.sqs", lambda model, **_: calls.append(model.name))
    assert account.run_at(NOW).counts["WaitingWoken"] == 23
    assert calls == ["ChangeMessageVisibilityBatch"] * 3


def test_executions_listed_before_an_error_are_not_described(account: Account) -> None:
    """Else each of thousands that run would be asked for, one after the other."""
    account.processes.set_limit("p", 2)
    for name in ("p-listed", "p-beyond"):
        account.slots.reserve("p", name, NOW)
    asked: list[str] = []

    def answer(params: Any, **_: Any) -> Any:
        if "nextToken" in json.loads(params["body"]):
            return http(400), {"Error": {"Code": "ThrottlingException", "Message": "slow down"}}
        runs = {"name": "p-listed", "status": "RUNNING", "startDate": datetime.fromtimestamp(NOW, UTC)}
        return http(200), {"executions": [runs], "nextToken": "more"}

    account.stepfunctions.meta.events.register("before-call.stepfunctions.ListExecutions", answer)
    account.stepfunctions.meta.events.register(
        "provide-client-params.stepfunctions.DescribeExecution",
        lambda params, **_: asked.append(params["executionArn"].rpartition(":")[2]),
    )
    account.run_at(LATER)
    assert asked == ["p-beyond"]


@pytest.fixture
def listed_after(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How far back each list of unsuccessful executions went."""
    listed: list[float] = []
    unsuccessful = Workflow.unsuccessful

    def listing(self: Workflow, stopped_after: float) -> Any:
        listed.append(stopped_after)
        return unsuccessful(self, stopped_after)

    monkeypatch.setattr(Workflow, "unsuccessful", listing)
    return listed


def test_settled_executions_are_not_listed_again(scene: JanitorScene, listed_after: list[float]) -> None:
    """At one failure in a hundred, a million requests a day leave a hundred pages; every round would read them."""
    scene.start()
    scene.abort()
    refuse(scene.account.sqs, "SendMessage", "InternalError", times=1)
    for seconds in (0, 60, 120):
        scene.account.run_at(LATER + seconds)
    # As far as ever until all is settled, and then an hour back from what was too young to be looked at.
    assert listed_after == [LATER - HORIZON_SECONDS, LATER + 60 - HORIZON_SECONDS, LATER + 60 - GRACE - 3600]
    assert len(scene.account.messages(scene.account.failed_url)) == 1


def test_s3_a_failed_list_settles_nothing_beyond_it(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    refuse(scene.account.stepfunctions, "ListExecutions", "ThrottlingException")
    scene.account.run_at(LATER + 2 * 3600)
    scene.account.new_janitor()
    scene.account.run_at(LATER + 2 * 3600 + 60)
    assert len(scene.account.messages(scene.account.failed_url)) == 1


def test_a_new_container_lists_from_the_stored_settled_time(scene: JanitorScene, listed_after: list[float]) -> None:
    scene.account.run_at(LATER)
    scene.account.new_janitor()
    scene.account.run_at(LATER + 86400)
    assert listed_after == [LATER - HORIZON_SECONDS, LATER - GRACE - 3600]
