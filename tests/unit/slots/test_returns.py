"""The transactions that queue a request again, and each write that may come between their reads and them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.aws.dynamodb import Item, number
from slotkeeper.slots import returns
from slotkeeper.slots.request import Request, caller_of, execution_name
from slotkeeper.slots.request_table import ENDED_WITHOUT_START, RETENTION_SECONDS, Leaving, State, place_of
from slotkeeper.slots.returns import NotRequeued, Requeued, Requeues
from tests.support.boundary import before_write
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene, reserved

LATER = NOW + 60
SOON = "2027-01-15T08:10:00Z"
FIRST, SECOND = (execution_name("p", "a", attempt) for attempt in (1, 2))
Act = Callable[[QueueScene], object]


@pytest.fixture
def scene() -> QueueScene:
    return QueueScene(limit=2)


@pytest.fixture
def requeues(scene: QueueScene) -> Requeues:
    return Requeues(scene.dynamodb, "requests", "slots")


def remove_process(scene: QueueScene) -> None:
    scene.dynamodb.delete_item(TableName="slots", Key={"process_name": {"S": "p"}})


def change_grants(scene: QueueScene) -> None:
    scene.change(grants=number(scene.process.grants + 1))


def meanwhile(scene: QueueScene, act: Act) -> None:
    """Call `act` between the reads and the transaction."""
    before_write(scene.dynamodb, lambda _: act(scene), operation="TransactWriteItems")


# RETURNED


def test_a_returned_request_is_its_next_attempt_at_its_old_place(scene: QueueScene, requeues: Requeues) -> None:
    request = Request("p", {"--day": "1"}, "a", weight=2, priority="high", task_token="token", start_before=SOON)
    scene.accept(request, "m1")
    scene.rows.mark_started("p", request.execution_name, "8#00", NOW)
    before = scene.row(request.execution_name)

    requeued = requeues.give_back("p", request.execution_name, LATER)

    name = execution_name("p", "a", 2, caller_of("token"))
    assert requeued == Requeued(name)
    row, old = scene.row(name), scene.row(request.execution_name)
    same = ("sent", "placed", "message_id", "digest", "priority", "weight", "task_token", "start_before", "request_id")
    assert {key: row[key] for key in same} == {key: before[key] for key in same}
    assert (row["state"], row["place"], row["deadline"]) == ({"S": "QUEUED"}, before["placed"], row["start_before"])
    assert json.loads(row["body"]["S"]) == json.loads(before["body"]["S"]) | {"attempt": 2}
    # Its order counts from this value of `grants` on.
    assert row["put_back"] == number(scene.process.grants) == number(8)
    assert (old["state"], old["ended"]) == ({"S": "RETURNED"}, number(LATER))
    assert old["expires"] == number(int(LATER) + RETENTION_SECONDS)
    assert not old.keys() & {"place", "deadline", "open"}


@pytest.mark.parametrize(
    ("state", "end"),
    [("QUEUED", "RETURNED"), ("STARTED", "RETURNED"), ("FAILED", "REDRIVEN"), ("SUCCEEDED", ""), ("CANCELLED", "")],
)
def test_only_what_has_no_other_end_is_given_back(
    state: State, end: str, scene: QueueScene, requeues: Requeues
) -> None:
    """FAILED: an operator has redriven its execution."""
    scene.queue("a")
    scene.end(FIRST, state)
    again = requeues.give_back("p", FIRST, LATER)
    assert again == (Requeued(SECOND) if end else NotRequeued("it has no row, or has ended otherwise", state))
    assert scene.row(FIRST)["state"] == {"S": end or state}


def test_giving_back_is_safe_to_repeat(scene: QueueScene, requeues: Requeues) -> None:
    scene.queue("a")
    requeues.give_back("p", FIRST, LATER)
    before = scene.row(SECOND), scene.item
    assert requeues.give_back("p", FIRST, LATER) == NotRequeued("it has no row, or has ended otherwise", "RETURNED")
    assert requeues.give_back("p", "p-none", LATER) == NotRequeued("it has no row, or has ended otherwise")
    assert (scene.row(SECOND), scene.item) == before


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_what_holds_a_slot_stays(when: str, scene: QueueScene, requeues: Requeues) -> None:
    scene.queue("a")

    def hold(scene: QueueScene) -> None:
        scene.hold({FIRST: reserved()})

    if when == "before":
        hold(scene)
    else:
        meanwhile(scene, hold)
    assert requeues.give_back("p", FIRST, LATER) == NotRequeued("it holds a slot", "QUEUED", holds_slot=True)
    assert scene.states == {"a": "QUEUED"}


@pytest.mark.parametrize(
    ("act", "put_back"),
    [
        pytest.param(change_grants, 9, id="a plan was granted"),
        pytest.param(remove_process, 0, id="the process was removed"),
        pytest.param(lambda scene: scene.end(FIRST, "STARTED"), 8, id="its start was marked"),
    ],
)
def test_after_another_write_the_transaction_is_made_again(
    act: Act, put_back: int, scene: QueueScene, requeues: Requeues
) -> None:
    """Otherwise a plan that was made before could be granted, and its order would be wrong."""
    scene.queue("a")
    meanwhile(scene, act)
    assert requeues.give_back("p", FIRST, LATER) == Requeued(SECOND)
    assert scene.row(SECOND)["put_back"] == number(put_back)
    assert scene.item.get("grants", number(0)) == number(put_back)


def test_an_outcome_that_is_recorded_meanwhile_counts(scene: QueueScene, requeues: Requeues) -> None:
    scene.queue("a")
    meanwhile(scene, lambda scene: scene.rows.record("p", FIRST, "SUCCEEDED", NOW))
    refused = requeues.give_back("p", FIRST, LATER)
    assert (refused, scene.states) == (
        NotRequeued("it has no row, or has ended otherwise", "SUCCEEDED"),
        {"a": "SUCCEEDED"},
    )


def test_a_process_that_is_added_again_meanwhile_gets_its_grants(scene: QueueScene, requeues: Requeues) -> None:
    scene.queue("a")
    remove_process(scene)
    meanwhile(scene, lambda scene: scene.put_process(grants=number(100)))
    assert requeues.give_back("p", FIRST, LATER) == Requeued(SECOND)
    assert (scene.row(SECOND)["put_back"], scene.process.grants) == (number(101), 101)


def test_a_next_attempt_that_exists_is_not_overwritten(scene: QueueScene, requeues: Requeues) -> None:
    scene.queue("a")
    scene.accept(Request("p", {"--day": "2"}, "a", attempt=2))
    before = scene.row(SECOND)
    assert requeues.give_back("p", FIRST, LATER) == NotRequeued("its next attempt exists", "QUEUED")
    scene.end(FIRST, "FAILED")
    assert requeues.redrive("p", FIRST, LATER) == NotRequeued("its next attempt exists", "FAILED")
    assert (scene.row(SECOND), scene.process.grants) == (before, 7)


def test_a_process_whose_item_changes_all_the_time_raises(
    scene: QueueScene, requeues: Requeues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(returns, "MAX_TRIES", 3)
    scene.queue("a")
    before_write(scene.dynamodb, *[lambda _: change_grants(scene)] * 3, operation="TransactWriteItems")
    with pytest.raises(TimeoutError, match="'p' changed during 3 transactions"):
        requeues.give_back("p", FIRST, LATER)
    assert scene.states == {"a": "QUEUED"}


# REDRIVEN


@pytest.mark.parametrize("state", ["FAILED", *ENDED_WITHOUT_START])
def test_a_redriven_request_is_placed_as_if_it_was_sent_now(
    state: State, scene: QueueScene, requeues: Requeues
) -> None:
    scene.queue("a", when_busy="skip", start_before="2027-01-15T08:00:30Z")
    scene.end(FIRST, state)

    assert requeues.redrive("p", FIRST, LATER, start_before=(SOON, NOW + 600)) == Requeued(SECOND)

    row = scene.row(SECOND)
    assert scene.row(FIRST)["state"] == {"S": "REDRIVEN"}
    assert row["place"] == row["placed"] == {"S": place_of(1, LATER, "0")}
    assert (row["sent"], row["open"]) == (number(LATER), number(LATER))
    # It skips: it may have to leave from now on.
    assert (row["start_before"], row["deadline"], row["skips"]) == (number(NOW + 600), number(LATER), {"BOOL": True})
    assert json.loads(row["body"]["S"])["start_before"] == SOON
    assert "put_back" not in row


def test_a_redriven_request_has_no_time_unless_a_new_one_is_stated(scene: QueueScene, requeues: Requeues) -> None:
    scene.queue("a", start_before=SOON)
    scene.end(FIRST, "FAILED")
    assert requeues.redrive("p", FIRST, LATER) == Requeued(SECOND)
    assert "start_before" not in json.loads(scene.row(SECOND)["body"]["S"])
    assert not scene.row(SECOND).keys() & {"start_before", "deadline"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"state": {"S": "QUEUED"}}, "it is QUEUED"),
        ({"state": {"S": "SUCCEEDED"}}, "it is SUCCEEDED"),
        ({"state": {"S": "REDRIVEN"}}, "it is REDRIVEN"),
        ({"state": {"S": "TOO_LATE"}}, "its start_before has passed: state a new one"),
        (
            {"state": {"S": "REJECTED"}, "body": None},
            "its row has no content: it was too large, or used the id of another request",
        ),
    ],
)
def test_what_cannot_run_again_is_not_redriven(
    changes: dict[str, Any], reason: str, scene: QueueScene, requeues: Requeues
) -> None:
    scene.queue("a")
    row: Item = {name: value for name, value in (scene.row(FIRST) | changes).items() if value}
    scene.aws.tables.put("requests", row)
    assert requeues.redrive("p", FIRST, LATER) == NotRequeued(reason, row["state"]["S"])
    assert scene.row(SECOND) == {}


def test_without_a_row_nothing_is_redriven(requeues: Requeues) -> None:
    assert requeues.redrive("p", "p-none", NOW) == NotRequeued("it has no row")


def test_of_two_redrives_one_has_an_effect(scene: QueueScene, requeues: Requeues) -> None:
    scene.queue("a")
    scene.end(FIRST, "FAILED")
    meanwhile(scene, lambda _: requeues.redrive("p", FIRST, LATER))
    assert requeues.redrive("p", FIRST, LATER) == NotRequeued("its next attempt exists", "FAILED")
    assert (scene.row(FIRST)["state"], scene.states) == ({"S": "REDRIVEN"}, {"a": "QUEUED"})


def test_a_success_that_is_recorded_meanwhile_is_not_redriven(scene: QueueScene, requeues: Requeues) -> None:
    scene.queue("a")
    scene.end(FIRST, "FAILED")
    meanwhile(scene, lambda scene: scene.rows.record("p", FIRST, "SUCCEEDED", NOW))
    assert requeues.redrive("p", FIRST, LATER) == NotRequeued("it has changed meanwhile", "FAILED")
    assert scene.states == {"a": "SUCCEEDED"}


# Callers


@pytest.mark.parametrize("is_published", [True, False])
def test_only_a_caller_that_was_not_published_waits_for_the_next_attempt(
    is_published: bool, scene: QueueScene, requeues: Requeues
) -> None:
    """The workflow starts nothing for a caller that has an answer (state CallerGone)."""
    request = Request("p", {}, "a", task_token="token")
    scene.accept(request)
    scene.rows.leave("p", [Leaving(request.execution_name, "CANCELLED", "Cancelled", "why")], NOW)
    if is_published:
        scene.endings.publish("p", [request.execution_name])
    again = requeues.redrive("p", request.execution_name, LATER)
    name = execution_name("p", "a", 2, "" if is_published else caller_of("token"))
    assert again == Requeued(name)
    assert ("task_token" in scene.row(name), "caller" in json.loads(scene.row(name)["body"]["S"])) == (
        not is_published,
        not is_published,
    )


@pytest.mark.parametrize(
    ("step", "more", "waits"),
    [("redrive", {}, False), ("give_back", {"is_answered": True}, False), ("give_back", {}, True)],
    ids=["redriven", "given back", "given back before the answer"],
)
def test_a_request_that_has_failed_runs_again_for_a_caller_without_an_answer(
    step: str, more: dict[str, Any], waits: bool, scene: QueueScene, requeues: Requeues
) -> None:
    """Of a redriven one the workflow answers the caller with the failure."""
    request = Request("p", {}, "a", task_token="token")
    scene.accept(request)
    scene.rows.record("p", request.execution_name, "FAILED", NOW)
    again = getattr(requeues, step)("p", request.execution_name, LATER, **more)
    assert isinstance(again, Requeued)
    assert ("task_token" in scene.row(again.execution)) is waits
    assert ("caller" in json.loads(scene.row(again.execution)["body"]["S"])) is waits
