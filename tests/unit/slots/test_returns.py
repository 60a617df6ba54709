"""The transactions that queue a request again, and each write that may come between their reads and them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.aws.dynamodb import Item, number
from slotkeeper.slots import returns
from slotkeeper.slots.queued import place_of
from slotkeeper.slots.request import Request, caller_of, execution_name
from slotkeeper.slots.request_table import ENDED_WITHOUT_START, Leaving, State
from slotkeeper.slots.returns import MAX_READS, MAX_REDRIVES, NotRequeued, Requeued
from tests.simulation.account.boundary import before_write, passed_values
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene, reserved

LIMIT = 2
LATER = NOW + 60
SOON = "2027-01-15T08:10:00Z"
FIRST, SECOND = (execution_name("p", "a", attempt) for attempt in (1, 2))
ENDED_OTHERWISE = "it has no row, or has ended otherwise"
UNPUBLISHED = "its end is not published yet: try again in a minute"
NO_CONTENT = "its row has no content: it was discarded, or too large, or used another one's id"
DAY = 86400
Act = Callable[[QueueScene], object]


def remove_process(scene: QueueScene) -> None:
    scene.dynamodb.delete_item(TableName="slots", Key={"process_name": {"S": "p"}})


def change_grants(scene: QueueScene) -> None:
    scene.change(grants=number(scene.process.grants + 1))


def redriven(scene: QueueScene, execution: str, **more: Any) -> Requeued | NotRequeued:
    return scene.requeues.redrive("p", [execution], LATER, **more)[execution]


def meanwhile(scene: QueueScene, act: Act) -> None:
    """Call `act` between the reads and the transaction."""
    before_write(scene.dynamodb, lambda _: act(scene), operation="TransactWriteItems")


# RETURNED


def test_a_returned_request_is_its_next_attempt_at_its_old_place(scene: QueueScene) -> None:
    request = Request(
        "p", {"--day": "1"}, "a", weight=2, priority="high", task_token="token", start_before=SOON, key="acme"
    )
    scene.accept(request, "m1")
    scene.requests.mark_started("p", request.execution_name, "8#00", NOW)
    before = scene.row(request.execution_name)

    requeued = scene.requeues.give_back("p", request.execution_name, LATER)

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
    assert old["expires"] == number(int(LATER) + 30 * DAY)
    assert not old.keys() & {"place", "deadline", "open", "body", "task_token"}


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("QUEUED", "RETURNED"),
        ("STARTED", "RETURNED"),
        ("FAILED", "REDRIVEN"),
        ("SUCCEEDED", ""),
        ("CANCELLED", ""),
        ("RETURNED", ""),
    ],
)
def test_only_what_has_no_other_end_is_given_back(state: State, end: str, scene: QueueScene) -> None:
    """FAILED: an operator has redriven its execution, which has found no slot."""
    scene.queue("a")
    scene.end(FIRST, state)
    again = scene.requeues.give_back("p", FIRST, LATER)
    assert again == (Requeued(SECOND) if end else NotRequeued(ENDED_OTHERWISE, state))
    assert scene.row(FIRST)["state"] == {"S": end or state}


def hold(scene: QueueScene) -> None:
    scene.hold({FIRST: reserved()})


@pytest.mark.parametrize(
    ("before", "act", "refused"),
    [
        (hold, lambda _: None, NotRequeued("it holds a slot", "QUEUED", is_temporary=True)),
        (lambda _: None, hold, NotRequeued("it holds a slot", "QUEUED", is_temporary=True)),
        (lambda _: None, lambda at: at.record(FIRST, "SUCCEEDED"), NotRequeued(ENDED_OTHERWISE, "SUCCEEDED")),
    ],
    ids=["it holds a slot", "it gets a slot meanwhile", "an outcome is recorded meanwhile"],
)
def test_what_holds_a_slot_or_ends_meanwhile_stays(
    before: Act, act: Act, refused: NotRequeued, scene: QueueScene
) -> None:
    scene.queue("a")
    before(scene)
    meanwhile(scene, act)
    assert scene.requeues.give_back("p", FIRST, LATER) == refused
    assert scene.states == {"a": refused.state}


@pytest.mark.parametrize(
    ("act", "put_back"),
    [
        pytest.param(change_grants, 9, id="a plan was granted"),
        pytest.param(remove_process, 0, id="the process was removed"),
        pytest.param(lambda scene: scene.end(FIRST, "STARTED"), 8, id="its start was marked"),
    ],
)
def test_after_another_write_the_transaction_is_made_again(act: Act, put_back: int, scene: QueueScene) -> None:
    """Otherwise a plan that was made before could be granted, and its order would be wrong."""
    scene.queue("a")
    meanwhile(scene, act)
    assert scene.requeues.give_back("p", FIRST, LATER) == Requeued(SECOND)
    assert scene.row(SECOND)["put_back"] == number(put_back)
    assert scene.item.get("grants", number(0)) == number(put_back)


def test_a_process_that_is_added_again_meanwhile_gets_its_grants(scene: QueueScene) -> None:
    scene.queue("a")
    remove_process(scene)
    meanwhile(scene, lambda scene: scene.put_process(grants=number(100)))
    assert scene.requeues.give_back("p", FIRST, LATER) == Requeued(SECOND)
    assert (scene.row(SECOND)["put_back"], scene.process.grants) == (number(101), 101)


def test_a_next_attempt_that_exists_is_not_overwritten(scene: QueueScene) -> None:
    scene.queue("a")
    scene.accept(Request("p", {"--day": "2"}, "a", attempt=2))
    before = scene.row(SECOND)
    assert scene.requeues.give_back("p", FIRST, LATER) == NotRequeued("its next attempt exists", "QUEUED")
    assert (scene.row(SECOND), scene.process.grants) == (before, 7)


def test_a_process_whose_item_changes_all_the_time_raises(scene: QueueScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returns, "MAX_TRIES", 3)
    scene.queue("a")
    before_write(scene.dynamodb, *[lambda _: change_grants(scene)] * 3, operation="TransactWriteItems")
    with pytest.raises(TimeoutError, match="'p' changed during 3 transactions"):
        scene.requeues.give_back("p", FIRST, LATER)
    assert scene.states == {"a": "QUEUED"}


# REDRIVEN


@pytest.mark.parametrize("state", ["FAILED", *ENDED_WITHOUT_START])
def test_a_redriven_request_is_placed_as_if_it_was_sent_now(state: State, scene: QueueScene) -> None:
    scene.queue("a", when_busy="skip", start_before="2027-01-15T08:00:30Z", key="acme")
    scene.end(FIRST, state)

    assert redriven(scene, FIRST, start_before=(SOON, NOW + 600)) == Requeued(SECOND)

    row, old = scene.row(SECOND), scene.row(FIRST)
    assert (old["state"], old["ended"]) == ({"S": "REDRIVEN"}, number(NOW))
    # The name of an attempt that has started is kept by Step Functions, that of another one only by its row.
    assert old["expires"] == number(int(LATER) + (30 if state == "FAILED" else 90) * DAY)
    assert not old.keys() & {"body", "failed", "open"}
    assert row["place"] == row["placed"] == {"S": place_of(1, LATER, "0", "acme")}
    assert (row["sent"], row["open"]) == (number(LATER), number(LATER))
    # It skips: it may have to leave from now on.
    assert (row["start_before"], row["deadline"], row["skips"]) == (number(NOW + 600), number(LATER), {"BOOL": True})
    body = json.loads(row["body"]["S"])
    assert (body["start_before"], body["key"]) == (SOON, "acme")
    assert not row.keys() & {"put_back", "failed", "code", "reason", "cause"}


@pytest.mark.parametrize(
    ("state", "changes", "reason"),
    [
        ("QUEUED", {}, "it is QUEUED"),
        ("SUCCEEDED", {}, "it is SUCCEEDED"),
        ("REDRIVEN", {}, "it is REDRIVEN"),
        ("TOO_LATE", {}, "its start_before has passed: state a new one"),
        ("REJECTED", {"body": None}, NO_CONTENT),
    ],
)
def test_what_cannot_run_again_is_not_redriven(
    state: State, changes: dict[str, Any], reason: str, scene: QueueScene
) -> None:
    scene.queue("a")
    scene.end(FIRST, state)
    row: Item = {name: value for name, value in (scene.row(FIRST) | changes).items() if value}
    scene.aws.tables.put("requests", row)
    assert redriven(scene, FIRST) == NotRequeued(reason, state)
    assert (scene.row(FIRST), scene.row(SECOND)) == (row, {})


@pytest.mark.parametrize(
    ("act", "reason", "state"),
    [
        (lambda scene: scene.record(FIRST, "SUCCEEDED"), "it has changed meanwhile", "SUCCEEDED"),
        (lambda scene: redriven(scene, FIRST), "its next attempt exists", "QUEUED"),
        (lambda scene: scene.requeues.give_back("p", FIRST, LATER), "its next attempt exists", "QUEUED"),
        (lambda scene: scene.requeues.discard("p", FIRST), "it has changed meanwhile", "FAILED"),
    ],
    ids=["a success is recorded", "redriven", "given back", "discarded"],
)
def test_what_changes_meanwhile_is_left_and_the_rest_redriven(
    act: Act, reason: str, state: str, scene: QueueScene
) -> None:
    scene.queue("a", "b")
    other = execution_name("p", "b", 1)
    for name in (FIRST, other):
        scene.end(name, "FAILED")
    meanwhile(scene, act)
    done = scene.requeues.redrive("p", [FIRST, other], LATER)
    assert done == {FIRST: NotRequeued(reason, "FAILED"), other: Requeued(execution_name("p", "b", 2))}
    assert scene.states == {"a": state, "b": "QUEUED"}


def test_many_requests_are_redriven_in_batches_in_their_order_and_without_their_times(scene: QueueScene) -> None:
    """DynamoDB takes 100 keys in one read and 4 MB in a transaction (API Reference)."""
    names = scene.queue(*(f"{at:03}" for at in range(MAX_READS + MAX_REDRIVES + 1)), start_before=SOON)
    for name in names:
        scene.end(name, "FAILED")
    scene.aws.unread_once = {names[1]}
    reads = passed_values(scene.dynamodb, "BatchGetItem", "RequestItems")
    writes = passed_values(scene.dynamodb, "TransactWriteItems", "TransactItems")

    done = scene.requeues.redrive("p", [*names, names[-1]], LATER)

    assert ([*done], {type(each) for each in done.values()}) == (names, {Requeued})
    assert max(len(each["requests"]["Keys"]) for each in reads) <= 100
    assert {len(each) for each in writes} <= {2 * MAX_REDRIVES, 2}
    rows = [scene.row(each.execution) for each in scene.requests.queue("p", 9).requests]
    ids = [row["request_id"]["S"] for row in rows]
    assert (len(ids), ids) == (len(names), sorted(ids))
    assert not any(row.keys() & {"start_before", "deadline"} or SOON in row["body"]["S"] for row in rows)


def test_requests_whose_next_attempt_is_the_same_row_do_not_keep_the_others_back(scene: QueueScene) -> None:
    """A transaction has one operation on an item. A caller's own Retry has the id of the request before it."""
    of_callers = [Request("p", {}, "a", task_token=token) for token in ("one", "two")]
    resent = [Request("p", {}, "b", attempt) for attempt in (1, 2)]
    for request in [*of_callers, *resent, Request("p", {}, "c")]:
        scene.accept(request)
        scene.end(request.execution_name, "FAILED")
    names = [request.execution_name for request in [*of_callers, *resent]]
    exists = NotRequeued("its next attempt exists", "FAILED")
    assert scene.requeues.redrive("p", [*names, "p-none", execution_name("p", "c", 1)], LATER) == {
        names[0]: Requeued(SECOND),
        names[1]: exists,
        names[2]: exists,
        names[3]: Requeued(execution_name("p", "b", 3)),
        "p-none": NotRequeued("it has no row"),
        execution_name("p", "c", 1): Requeued(execution_name("p", "c", 2)),
    }


# Callers


def test_a_returned_request_keeps_its_caller_and_a_redriven_one_has_none(scene: QueueScene) -> None:
    """The caller of an ended request has its answer: the workflow would start nothing for it (state AskCaller)."""
    request = Request("p", {}, "a", task_token="token")
    scene.accept(request)
    returned = scene.requeues.give_back("p", request.execution_name, LATER)
    assert returned == Requeued(execution_name("p", "a", 2, caller_of("token")))
    scene.requests.leave("p", [Leaving(returned.execution, "CANCELLED", "Cancelled", "why")], LATER)
    assert redriven(scene, returned.execution) == NotRequeued(UNPUBLISHED, "CANCELLED")
    scene.endings.publish("p", [returned.execution])
    third = execution_name("p", "a", 3)
    assert redriven(scene, returned.execution) == Requeued(third)
    assert ("task_token" in scene.row(third), "caller" in json.loads(scene.row(third)["body"]["S"])) == (False, False)


@pytest.mark.parametrize("step", ["redrive", "give_back"])
def test_while_a_failure_is_not_published_its_request_stays(step: str, scene: QueueScene) -> None:
    """Otherwise its caller would have the answer of one attempt, while another one runs."""
    scene.queue("a", task_token="token")
    (name,) = scene.names
    scene.record(name, "FAILED")
    before = scene.row(name)
    refused = redriven(scene, name) if step == "redrive" else scene.requeues.give_back("p", name, LATER)
    assert refused == NotRequeued(UNPUBLISHED, "FAILED", is_temporary=step == "give_back")
    assert scene.row(name) == before


# Discarded


@pytest.mark.parametrize(
    ("state", "changes", "is_discarded"),
    [
        ("FAILED", {}, True),
        ("REJECTED", {"body": None}, True),
        ("FAILED", {"open": number(-NOW)}, False),
        ("FAILED", {"failed": None}, False),
        ("REDRIVEN", {}, False),
        ("SUCCEEDED", {}, False),
    ],
    ids=["failed", "without content", "not published", "discarded before", "redriven", "succeeded"],
)
def test_only_a_published_failure_is_discarded(
    state: State, changes: dict[str, Any], is_discarded: bool, scene: QueueScene
) -> None:
    scene.queue("a")
    scene.end(FIRST, state)
    row: Item = {name: value for name, value in (scene.row(FIRST) | changes).items() if value}
    scene.aws.tables.put("requests", row)
    assert scene.requeues.discard("p", FIRST) is is_discarded
    left = {name: value for name, value in row.items() if name not in ("failed", "body")}
    assert scene.row(FIRST) == (left if is_discarded else row)
