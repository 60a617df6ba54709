"""Reads of the queue, and the transactions that end requests without a start."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.aws import dynamodb
from slotkeeper.aws.dynamodb import number
from slotkeeper.slots.queued import QUEUE_END, QUEUE_START
from slotkeeper.slots.request import MAX_BODY_BYTES, MAX_TOKEN_CHARACTERS, Request
from slotkeeper.slots.request_table import MAX_LEAVES, Leaving, QueuedBody
from tests.simulation.account.boundary import before_write, passed_values, refuse
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene, reserved

LIMIT = 2
CANCELLED = "TransactionCanceledException"
BUSY = [{"Code": "None"}, {"Code": "TransactionConflict"}]


def cancelled(*names: str) -> list[Leaving]:
    return [Leaving(name, "CANCELLED", "Cancelled", "by an operator") for name in names]


# Reads


def test_the_queue_is_read_in_its_order_and_without_what_is_above_the_limit(scene: QueueScene) -> None:
    (low,) = scene.queue("low", priority="low")
    (default,) = scene.queue("default")
    scene.queue("heavy", weight=3)
    (fits,) = scene.queue("fits", weight=2)
    (high,) = scene.queue("high", priority="high", when_busy="skip")
    reads = passed_values(scene.dynamodb, "Query", "ConsistentRead")

    first = scene.requests.queue("p", 2, most=2)
    second = scene.requests.queue("p", 2, first.until)

    pages = [first.requests, second.requests]
    assert [[each.execution for each in page] for page in pages] == [[high, default], [fits, low]]
    assert [each.place for page in pages for each in page] == sorted(each.place for page in pages for each in page)
    assert (first.requests[0].skips, first.requests[1].skips) == (True, False)
    assert [each.weight for page in pages for each in page] == [None, None, 2, None]
    assert (first.after, first.until, second.until) == (QUEUE_START, first.requests[-1].place, QUEUE_END)
    assert reads == [True, True]


def test_due_are_the_first_that_skip_or_have_a_time_that_comes(scene: QueueScene) -> None:
    scene.queue("waits")
    (later,) = scene.queue("later", start_before="2027-01-15T08:10:00Z")
    scene.queue("far", start_before="2027-01-15T08:10:01Z")
    (skips,) = scene.queue("skips", when_busy="skip")
    due = scene.requests.due("p", NOW + 600)
    assert [(each.execution, each.skips, each.start_before) for each in due] == [
        (skips, True, None),
        (later, False, NOW + 600),
    ]


def test_a_body_is_read_with_its_state_and_a_missing_row_is_none(scene: QueueScene) -> None:
    request = Request("p", {}, "a", priority="high")
    scene.accept(request, at=NOW - 1)
    queued, (ended, unread) = request.execution_name, scene.queue("b", "c")
    scene.record(ended, "SUCCEEDED")
    scene.aws.unread = {unread}
    text = request.to_json()

    found = scene.requests.bodies("p", [queued, ended, "p-none", unread])

    assert found == {
        queued: QueuedBody("QUEUED", text, NOW - 1, "high", NOW),
        ended: QueuedBody("SUCCEEDED", "", NOW, "normal", -NOW),
        "p-none": None,
    }


def test_a_start_is_marked_once_while_the_request_is_queued(scene: QueueScene) -> None:
    (name,) = scene.queue("a", when_busy="skip")
    assert scene.requests.mark_started("p", name, "8#1", NOW) is True
    row = scene.row(name)
    assert (row["state"], row["started"], row["granted"]) == ({"S": "STARTED"}, number(NOW), {"S": "8#1"})
    assert not row.keys() & {"place", "deadline"}
    assert scene.requests.mark_started("p", name, "9#1", NOW) is False
    scene.end(name, "SUCCEEDED")
    assert scene.requests.mark_started("p", name, "9#1", NOW) is False
    assert scene.row(name)["state"] == {"S": "SUCCEEDED"}


# Exits without a start


def test_requests_leave_together_and_a_plan_made_before_is_outdated(scene: QueueScene) -> None:
    names = scene.queue("a", "b", when_busy="skip")
    placed = scene.row(names[0])["place"]
    seen = scene.process

    assert scene.requests.leave("p", cancelled(*names), NOW) == cancelled(*names)

    row = scene.row(names[0])
    assert [row[name]["S"] for name in ("state", "code", "reason")] == ["CANCELLED", "Cancelled", "by an operator"]
    assert (row["ended"], row["placed"], row["open"]) == (number(NOW), placed, number(-NOW))  # it must be published
    assert not row.keys() & {"place", "deadline", "expires"}
    assert scene.process.grants == seen.grants + 1


def test_who_holds_a_slot_or_has_ended_stays_and_the_others_leave(scene: QueueScene) -> None:
    holds, ended, first, second = scene.queue("holds", "ended", "a", "b")
    scene.hold({holds: reserved()})
    scene.end(ended, "SUCCEEDED")

    left = scene.requests.leave("p", cancelled(holds, first, ended, second), NOW)

    assert left == cancelled(first, second)
    assert scene.states == {"holds": "QUEUED", "ended": "SUCCEEDED", "a": "CANCELLED", "b": "CANCELLED"}


def test_an_exit_and_a_write_that_meet_another_transaction_are_repeated(
    scene: QueueScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamodb, "CONFLICT_WAITS", (0, 0))
    first, second = scene.queue("a", "b")
    refuse(scene.dynamodb, "TransactWriteItems", CANCELLED, times=2, CancellationReasons=BUSY)
    refuse(scene.dynamodb, "UpdateItem", "TransactionConflictException", times=5)
    assert scene.requests.leave("p", cancelled(first), NOW) == cancelled(first)
    with pytest.raises(ClientError, match="TransactionConflictException"):  # the third time
        scene.grants.note_ring("p", NOW)
    assert scene.requests.mark_started("p", second, "8#1", NOW) is True


@pytest.mark.parametrize(("reason", "calls"), [("TransactionConflict", 3), ("ThrottlingError", 1)])
def test_a_busy_transaction_is_no_refusal(
    reason: str, calls: int, scene: QueueScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamodb, "CONFLICT_WAITS", (0, 0))
    (name,) = scene.queue("a")
    refuse(scene.dynamodb, "TransactWriteItems", CANCELLED, times=9, CancellationReasons=[{"Code": reason}])
    made = passed_values(scene.dynamodb, "TransactWriteItems", "TransactItems")
    with pytest.raises(ClientError, match=CANCELLED):
        scene.requests.leave("p", cancelled(name), NOW)
    with pytest.raises(ClientError, match=CANCELLED):
        scene.requests.refuse("p", cancelled(name)[0], NOW)
    assert len(made) == 2 * calls


def test_more_requests_than_a_transaction_takes_leave_in_parts(scene: QueueScene) -> None:
    """DynamoDB: 100 parts and 4 MB of items in a transaction, 4 KB of an expression (guide, "Quotas")."""
    names = scene.queue(*(str(number) for number in range(MAX_LEAVES + 1)))
    parts = passed_values(scene.dynamodb, "TransactWriteItems", "TransactItems")

    assert scene.requests.leave("p", cancelled(*names), NOW) == cancelled(*names[:MAX_LEAVES])

    ((*_, holders),) = parts
    assert len(parts[0]) == MAX_LEAVES + 1 <= 100
    assert len(holders["Update"]["ConditionExpression"]) <= 4096
    (name,) = scene.queue("large", input={"text": "x" * MAX_BODY_BYTES}, task_token="x" * MAX_TOKEN_CHARACTERS)
    large = scene.row(name)
    size = sum(len(name) + len(str(next(iter(value.values())))) for name, value in large.items())
    assert MAX_LEAVES * size + 400 * 1024 < 4_000_000


@pytest.mark.parametrize("exists", [True, False])
def test_without_a_process_that_runs_them_requests_end(exists: bool, scene: QueueScene) -> None:
    names = scene.queue("a", "b")
    if exists:
        scene.change(target={"S": "none"})
        before_write(scene.dynamodb, lambda _: scene.change(target={"S": "job"}), operation="TransactWriteItems")
    else:
        item = scene.item
        scene.dynamodb.delete_item(TableName="slots", Key={"process_name": {"S": "p"}})
        before_write(scene.dynamodb, lambda _: scene.aws.tables.put("slots", item), operation="TransactWriteItems")

    assert scene.requests.end_homeless("p", cancelled(*names), NOW, exists=exists) == []  # it has just got a target
    assert set(scene.states.values()) == {"QUEUED"}
    scene.change(target={"S": "none"})
    assert scene.requests.end_homeless("p", cancelled(*names), NOW, exists=True) == cancelled(*names)
    assert scene.process.grants == 8


@pytest.mark.parametrize("held", [{}, {"state": {"S": "RUNNING"}}, reserved()], ids=["freed", "confirmed", "ended"])
def test_a_request_is_not_refused_after_its_slot_or_its_state_has_changed(
    held: dict[str, Any], scene: QueueScene
) -> None:
    (name,) = scene.queue("a")
    if held:
        scene.hold({name: reserved() | held})
    if held == reserved():
        scene.end(name, "SUCCEEDED")
    before = scene.item, scene.row(name)
    assert scene.requests.refuse("p", Leaving(name, "REJECTED", "InvalidExecution", "why"), NOW) is False
    assert (scene.item, scene.row(name)) == before


def test_a_reservation_that_was_put_back_is_noted_only_in_a_queued_row(scene: QueueScene) -> None:
    queued, started = scene.queue("a", "b")
    scene.requests.mark_started("p", started, "8#1", NOW)
    for name in (queued, started, "p-none"):
        scene.requests.note_put_back("p", name, 9)
    assert [scene.row(name).get("put_back") for name in (queued, started, "p-none")] == [number(9), None, None]
