"""Writes of a dispatch to a process's item that met another write, or whose answers were lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotkeeper.aws import dynamodb
from slotkeeper.aws.dynamodb import Item, number
from slotkeeper.slots.grants import GrantMade, GrantRefused, Removed
from slotkeeper.slots.plan import PlannedStart
from slotkeeper.slots.process import MAX_HOLDERS
from slotkeeper.slots.rate import Rate
from tests.simulation.account.boundary import passed_values, refuse
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene, leased, reserved, running

LIMIT = 3
A, B = PlannedStart("p-a", 1), PlannedStart("p-b", 2)
REFUSED = "ConditionalCheckFailedException"


def test_f17_a_repeated_grant_whose_first_answer_was_lost_is_found_as_its_own(scene: QueueScene) -> None:
    seen = scene.process
    scene.grants.grant(seen, [A, B], 0, NOW)
    refuse(scene.dynamodb, "UpdateItem", REFUSED, retry_attempts=1, Item=scene.item)
    assert scene.grants.grant(seen, [A, B], 0, NOW) == GrantMade(seen.grants + 1)


def test_after_another_write_it_is_not_known_whether_a_repeated_grant_was_made(scene: QueueScene) -> None:
    seen = scene.process
    scene.grants.grant(seen, [A, B], 0, NOW)
    scene.change(grants={"N": "9"})
    refuse(scene.dynamodb, "UpdateItem", REFUSED, retry_attempts=1, Item=scene.item)
    assert scene.grants.grant(seen, [A, B], 0, NOW) == GrantRefused(scene.process, ("p-a", "p-b"))


@pytest.mark.parametrize("retries", [0, 1])
def test_a_grant_of_another_dispatch_is_not_found_as_its_own(retries: int, scene: QueueScene) -> None:
    seen = scene.process
    scene.grants.grant(seen, [A] if retries else [A, B], 0, NOW)
    refuse(scene.dynamodb, "UpdateItem", REFUSED, retry_attempts=retries, Item=scene.item)
    assert scene.grants.grant(seen, [A, B], 0, NOW) == GrantRefused(scene.process)


def test_a_grant_that_is_repeated_after_a_conflict_may_have_been_made_before_it(
    scene: QueueScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. botocore's first try grants, and its answer is lost. 2. Its second one meets a transaction."""
    monkeypatch.setattr(dynamodb, "CONFLICT_WAITS", (0,))
    seen = scene.process
    scene.grants.grant(seen, [A], 0, NOW)
    refuse(scene.dynamodb, "UpdateItem", "TransactionConflictException", retry_attempts=1)
    assert scene.grants.grant(seen, [A], 0, NOW) == GrantMade(seen.grants + 1)


def test_a_grant_without_keys_writes_nothing_of_keys(scene: QueueScene) -> None:
    """As before there were keys: its text and its values are paid for, and parsed."""
    updates = passed_values(scene.dynamodb, "UpdateItem", "UpdateExpression")
    values = passed_values(scene.dynamodb, "UpdateItem", "ExpressionAttributeValues")
    seen = scene.process
    assert isinstance(scene.grants.grant(seen, [A], 0, NOW, {}), GrantMade)
    assert updates == ["SET grants = grants + :one, slots_in_use = slots_in_use + :weight, holders.#n0 = :h0"]
    assert values[0].keys() == {":one", ":weight", ":seen", ":limit", ":counted", ":room", ":false", ":h0"}
    assert values[0][":h0"] == {"M": {"state": {"S": "RESERVED"}, "since": number(NOW)}}
    assert "after_keys" not in scene.item


def test_a_grant_notes_the_key_of_each_holder_and_whose_turn_was_last(scene: QueueScene) -> None:
    starts = [PlannedStart("p-a", 1, "acme"), PlannedStart("p-b", 2, "\u00e9#/~ ")]
    for after, kept in ({"1": "acme"}, {"1": "acme"}), (None, {"1": "acme"}), ({"0": "b", "1": "c"},) * 2, ({}, {}):
        scene.change(holders={"M": {}}, slots_in_use=number(0))
        assert isinstance(scene.grants.grant(scene.process, starts, 0, NOW, after), GrantMade)
        assert (scene.process.held_by_key, scene.process.after_keys) == ({"acme": 1, "\u00e9#/~ ": 2}, kept)


FULL_OF_HOLDERS = {f"p-{at}": {"M": running()} for at in range(MAX_HOLDERS - 1)}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"grants": number(8)}, id="another plan was granted"),
        pytest.param({"slot_limit": number(2)}, id="the limit was lowered"),
        pytest.param({"slot_limit": number(1000)}, id="the limit was raised, so that no request is blocked any more"),
        pytest.param({"paused": {"BOOL": True}}, id="it was paused"),
        pytest.param({"slots_in_use": number(1)}, id="the counter has risen"),
        pytest.param(
            {"holders": {"M": {f"p-{at}": {"M": running()} for at in (1, 2)}}}, id="only the holders reach the limit"
        ),
        pytest.param({"rate": Rate(1, 60).item, "next_start": number(0)}, id="it has a rate"),
    ],
)
def test_f6_what_has_changed_since_the_read_refuses_the_grant(changes: Item, scene: QueueScene) -> None:
    """The limit rests on the write alone, and on no plan."""
    seen = scene.process
    scene.change(**changes)
    before = scene.item
    assert scene.grants.grant(seen, [A, B], 0, NOW) == GrantRefused(scene.process)
    assert scene.item == before


def test_a_request_that_has_a_holder_is_not_granted_again(scene: QueueScene) -> None:
    seen = scene.process
    scene.hold({"p-a": running()})
    assert isinstance(scene.grants.grant(seen, [A], 0, NOW), GrantRefused)
    assert scene.holders == {"p-a": "RUNNING"}


@pytest.mark.parametrize("changes", [{"rate": Rate(2, 60).item}, {"next_start": number(1)}, {"rate": None}])
def test_a_rate_or_a_start_that_has_changed_since_the_read_refuses_the_grant(changes: Item, scene: QueueScene) -> None:
    scene.change(rate=Rate(1, 60).item, next_start=number(0))
    seen = scene.process
    item = {name: value for name, value in (scene.item | changes).items() if value}
    scene.aws.tables.put("slots", item)
    assert isinstance(scene.grants.grant(seen, [A], 1, NOW), GrantRefused)


def test_a_grant_keeps_to_the_maximum_of_holders(scene: QueueScene) -> None:
    scene.change(slot_limit=number(1000), slots_in_use=number(MAX_HOLDERS - 2))
    seen = scene.process
    scene.change(holders={"M": FULL_OF_HOLDERS})
    assert isinstance(scene.grants.grant(seen, [A, B], 0, NOW), GrantRefused)
    assert isinstance(scene.grants.grant(seen, [A], 0, NOW), GrantMade)


def test_a_counter_below_the_holders_admits_no_weight_beyond_the_limit(scene: QueueScene) -> None:
    scene.hold({"p-x": running(2)})
    scene.change(slots_in_use=number(0))
    seen = scene.process
    assert isinstance(scene.grants.grant(seen, [B], 0, NOW), GrantRefused)
    assert isinstance(scene.grants.grant(seen, [A], 0, NOW), GrantMade)
    assert scene.process.held_weight == 3


@pytest.mark.parametrize("name", ["put_back", "drop"])
def test_of_several_reservations_those_that_are_still_as_granted_are_removed(name: str, scene: QueueScene) -> None:
    scene.hold({"p-a": reserved(), "p-b": running(), "p-d": reserved(weight=2), "p-e": reserved(weight=3)})
    grants = scene.process.grants

    removed = getattr(scene.grants, name)("p", {"p-a": 1, "p-b": 1, "p-c": 1, "p-d": 1, "p-e": 3})

    assert removed == Removed({"p-a": 1, "p-e": 3}, grants + 1 if name == "put_back" else 0)
    assert (scene.process.holders.keys(), scene.process.slots_in_use) == ({"p-b", "p-d"}, 3)
    assert scene.process.grants == grants + (name == "put_back")


@pytest.mark.parametrize(("held", "given"), [(2, 1), (1, 2)])
def test_a_reservation_that_was_granted_again_with_another_weight_stays(
    held: int, given: int, scene: QueueScene
) -> None:
    """1. An operator frees it. 2. The default weight is changed. 3. Another dispatch grants it."""
    scene.hold({"p-a": reserved(weight=held)})
    assert scene.grants.put_back("p", {"p-a": given}) == Removed({})
    assert scene.process.slots_in_use == held


def test_a_weight_of_one_that_an_operator_wrote_is_put_back(scene: QueueScene) -> None:
    scene.hold({"p-a": reserved() | {"weight": {"N": "1"}}})
    assert scene.grants.put_back("p", {"p-a": 1}).weights == {"p-a": 1}


def test_reservations_that_are_all_gone_are_not_removed_again(scene: QueueScene) -> None:
    assert scene.grants.put_back("p", {"p-a": 1}) == Removed({})
    assert scene.grants.put_back("gone", {"p-a": 1}) == Removed({})


def test_an_expired_lease_frees_the_weight_that_it_has(scene: QueueScene) -> None:
    scene.hold({"lease": leased(NOW - 10) | {"weight": {"N": "2"}}, "p-a": running()})
    seen = scene.process
    outdated = replace(seen, holders=seen.holders | {"lease": replace(seen.holders["lease"], weight=1)})
    assert scene.grants.expire(outdated, "lease") is True
    assert (scene.process.slots_in_use, scene.process.grants) == (1, seen.grants)


def test_a_ring_of_a_process_that_is_gone_is_not_noted(scene: QueueScene) -> None:
    scene.grants.note_ring("gone", NOW)
    scene.grants.note_ring("p", NOW + 0.5)
    assert (scene.grants.read("gone"), scene.process.ring_at) == (None, NOW + 0.5)
