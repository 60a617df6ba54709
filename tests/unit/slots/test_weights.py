"""Weights: requests that take more than one unit of a process's limit. tests/races has their races."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.slots.process import MAX_HOLDERS
from slotkeeper.slots.protocol import Candidate, Granted, Registration
from slotkeeper.slots.request import Priority
from tests.support.boundary import Calls, before_write
from tests.unit.conftest import FULL, NOW, Account, delivery

LIMIT = 5


@pytest.fixture
def five(account: Account) -> Account:
    """The process has a limit of 5, and p-other has 2 of it."""
    account.processes.set_limit("p", LIMIT)
    account.slots.reserve(Candidate("p", "p-other", 2), NOW)
    return account


def _set(account: Account, limit: int) -> Callable[[Any], Any]:
    return lambda _: account.write("slot_limit", {"N": str(limit)})


# reserve


@pytest.mark.parametrize(("limit", "outcome", "calls"), [(4, FULL, 2), (9, Granted(), 3)], ids=["lowered", "raised"])
def test_a_limit_that_changes_after_the_read_is_used(five: Account, limit: int, outcome: object, calls: int) -> None:
    made = Calls(five.dynamodb).made
    before_write(five.dynamodb, _set(five, limit))
    assert five.reserve("p-1", 3) == outcome
    assert len(made) == calls + 1  # the change itself


def test_a_limit_that_changes_all_the_time_is_full_in_the_end(five: Account) -> None:
    before_write(five.dynamodb, *(_set(five, limit) for limit in range(9, 15)))
    assert five.reserve("p-1", 3) == FULL
    assert five.item().slots_in_use == 2


def test_a_counter_below_the_holders_admits_no_weight_beyond_the_limit(five: Account) -> None:
    five.write("slots_in_use", {"N": "0"})
    assert not five.item().fits(4)
    assert five.reserve("p-4", 4) == FULL
    before_write(five.dynamodb, lambda _: five.reserve("p-faster", 1))
    assert five.reserve("p-3", 3) == FULL
    assert five.reserve("p-2", 2) == Granted()
    assert five.item().held_weight == LIMIT


def test_a_counter_that_is_lowered_after_the_read_admits_no_more_than_the_holders_leave(account: Account) -> None:
    account.processes.set_limit("p", 4)
    account.reserve("p-1")
    account.reserve("p-2")

    def take_and_lose_count(_: Any) -> None:
        account.reserve("p-3")
        account.write("slots_in_use", {"N": "0"})

    before_write(account.dynamodb, take_and_lose_count)
    assert account.reserve("p-heavy", 2) == FULL


@pytest.mark.parametrize("weight", [1, 2])
def test_a_process_has_a_maximum_of_holders(account: Account, weight: int) -> None:
    entry = {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}}}
    for most, outcome in [(MAX_HOLDERS, FULL), (MAX_HOLDERS - 1, Granted())]:
        account.write("holders", {"M": {f"p-{n}": entry for n in range(most)}})
        account.write("slots_in_use", {"N": str(most)})
        account.write("slot_limit", {"N": "1000"})
        assert account.reserve("p-one-more", weight) == outcome


def test_a_request_beyond_the_maximum_of_holders_waits(account: Account) -> None:
    entry = {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}}}
    account.write("holders", {"M": {f"p-{n}": entry for n in range(MAX_HOLDERS)}})
    account.write("slot_limit", {"N": "1000"})
    assert account.register() == Registration.REGISTERED


@pytest.mark.parametrize("weight", [1, 2])
def test_a_write_alone_keeps_to_the_maximum_of_holders(account: Account, weight: int) -> None:
    """A starter may not have read the process, or before the last holder came."""
    entry = {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}}}
    account.write("slot_limit", {"N": "1000"})

    def fill(_: Any) -> None:
        account.write("holders", {"M": {f"p-{n}": entry for n in range(MAX_HOLDERS)}})

    before_write(account.dynamodb, fill)
    assert account.reserve("p-one-more", weight) == FULL


# default weight


@pytest.fixture
def heavy(account: Account) -> Account:
    """The process q has a default weight of 2."""
    account.processes.create("q", LIMIT, "job", default_weight=2)
    return account


def test_a_default_weight_costs_one_more_call_and_the_first_time_a_refused_write(heavy: Account) -> None:
    made = Calls(heavy.dynamodb).made
    assert heavy.slots.reserve(Candidate("q", "q-1"), NOW) == Granted()
    assert made == ["UpdateItem", "UpdateItem"]
    made.clear()
    assert heavy.slots.reserve(Candidate("q", "q-2"), NOW) == Granted()
    assert made == ["GetItem", "UpdateItem"]
    assert {holder.weight for holder in heavy.item("q").holders.values()} == {2}
    assert heavy.slots.reserve(Candidate("q", "q-3"), NOW) == FULL


def test_a_weight_of_the_request_comes_before_the_default_weight(heavy: Account) -> None:
    made = Calls(heavy.dynamodb).made
    heavy.slots.reserve(Candidate("q", "q-1", 1), NOW)
    assert made == ["UpdateItem"]
    heavy.slots.reserve(Candidate("q", "q-3", 3), NOW)
    assert [holder.weight for holder in heavy.item("q").holders.values()] == [1, 3]


def test_a_default_weight_of_one_is_none(account: Account) -> None:
    account.write("default_weight", {"N": "1"})
    assert account.reserve("p-1", None) == Granted()
    assert account.item().slots_in_use == 1


def test_a_default_weight_that_is_set_after_the_read_is_used(five: Account) -> None:
    """A starter that reads a large process first does not rely on the weight that it read."""
    before_write(five.dynamodb, lambda _: five.write("default_weight", {"N": "2"}))
    assert five.reserve("p-1", None) == Granted()
    assert five.item().holders["p-1"].weight == 2


@pytest.mark.parametrize("default", [1, 3])
def test_a_process_that_was_added_again_with_another_default_weight_after_the_read_uses_that(
    heavy: Account, default: int
) -> None:
    heavy.slots.reserve(Candidate("q", "q-1"), NOW)

    def add_again(_: object) -> None:
        heavy.dynamodb.delete_item(TableName=heavy.slot_table, Key={"process_name": {"S": "q"}})
        heavy.processes.create("q", LIMIT, "job", default_weight=default)

    before_write(heavy.dynamodb, add_again)
    assert heavy.slots.reserve(Candidate("q", "q-2"), NOW) == Granted()
    assert heavy.item("q").holders["q-2"].weight == default


def test_a_request_without_weight_waits_for_the_default_weight(heavy: Account) -> None:
    heavy.slots.reserve(Candidate("q", "q-1", 4), NOW)
    refused = Candidate("q", "q-2", delivery=delivery({}))
    assert heavy.slots.wait(refused, heavy.item("q"), NOW) == Registration.REGISTERED
    assert heavy.item("q").waiting["normal"].weight == 2


# wait and wake


@pytest.mark.parametrize(
    ("weight", "outcome"), [(3, Registration.RESERVE_AGAIN), (4, Registration.REGISTERED)], ids=["fits", "does not"]
)
def test_a_request_registers_if_its_weight_does_not_fit(five: Account, weight: int, outcome: Registration) -> None:
    assert five.register("p-1", weight=weight) == outcome


@pytest.mark.parametrize("limit", [6, 9], ids=["does not fit either", "fits"])
def test_a_limit_that_changes_after_the_refusal_is_read_again(five: Account, limit: int) -> None:
    seen = five.item()
    five.write("slot_limit", {"N": str(limit)})
    refused = Candidate("p", "p-1", 5, "normal", delivery({}))
    assert five.slots.wait(refused, seen, NOW) == Registration.RESERVE_AGAIN
    assert five.item().waiting == {}


def test_a_heavy_request_is_woken_when_it_fits_and_no_lighter_one_before(five: Account) -> None:
    five.register("p-heavy", "high", 4)
    five.register("p-light", "low", 1)
    assert five.slots.to_wake("p", NOW) is None
    five.slots.cancel("p", "p-other")
    woken = five.slots.to_wake("p", NOW)
    assert woken is not None
    assert woken.waiting.execution == "p-heavy"


# release, cancel, adopt, repair


@pytest.mark.parametrize("weight", [1, 3])
def test_each_way_of_freeing_a_slot_frees_its_weight(five: Account, weight: int) -> None:
    five.reserve("p-1", weight)
    assert five.slots.cancel("p", "p-1") is True
    assert five.item().slots_in_use == 2
    five.reserve("p-1", weight)
    five.confirm("p-1")
    five.slots.mark_quiet("p", "p-1", five.item().holders["p-1"].raw, NOW)
    assert five.slots.release("p", "p-1", five.item().holders["p-1"].raw) is True
    assert (five.item().slots_in_use, five.item().holders.keys()) == (2, {"p-other"})


def test_a_counter_is_not_repaired_if_the_holders_have_changed(five: Account) -> None:
    """Their number and the counter are the same again, with other weights."""
    five.write("slots_in_use", {"N": "4"})
    seen = five.item()
    five.slots.cancel("p", "p-other")  # 2
    five.reserve("p-1", 3)
    five.write("slots_in_use", {"N": "4"})
    assert five.processes.repair_counter(seen) is False


# blocked: a weight above the limit


@pytest.fixture
def blocked(five: Account) -> Account:
    """A request of high priority whose weight is above the limit waits."""
    assert five.register("p-blocked", "high", 6) == Registration.REGISTERED
    return five


@pytest.mark.parametrize("priority", ["normal", "low"])
@pytest.mark.parametrize("weight", [1, 3])
def test_a_blocked_request_keeps_no_other_priority_out(blocked: Account, priority: Priority, weight: int) -> None:
    assert blocked.register("p-1", priority, weight) == Registration.RESERVE_AGAIN
    assert blocked.reserve("p-1", weight, priority) == Granted()


def test_a_blocked_request_is_not_woken_but_the_next_one(blocked: Account) -> None:
    blocked.register("p-light", "low", 4)
    blocked.slots.cancel("p", "p-other")
    woken, seen = blocked.slots.to_wake("p", NOW), blocked.item().to_wake
    assert woken is not None
    assert seen is not None
    assert woken.waiting.execution == seen.execution == "p-light"
