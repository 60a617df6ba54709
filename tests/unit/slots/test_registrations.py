"""Registrations of waiting requests, and the tombstones that replace them. tests/races has their races."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.slots.protocol import Candidate, Granted, Registration, Slots
from slotkeeper.slots.request import PRIORITIES, Priority
from tests.support.boundary import Calls
from tests.unit.conftest import FULL, NOW, Account, delivery

FIRST = "1".zfill(40)
in_both_ways = pytest.mark.parametrize("reads_first", [False, True], ids=["by the write", "by the read"])


def _slots(account: Account, reads_first: bool) -> Slots:
    """With `reads_first`, a reserve decides on the item that it has read before it writes."""
    return Slots(account.dynamodb, account.slot_table, large=["p"] if reads_first else [])


@pytest.fixture
def one_waits(account: Account) -> Callable[..., None]:
    """Registers a request while `p` is full. Then one of two slots is free."""

    def register(priority: Priority, **changes: Any) -> None:
        account.fill()
        assert account.register("p-waits", priority, **changes) == Registration.REGISTERED
        account.processes.set_limit("p", 2)

    return register


# register


def test_wait_returns_reserve_again_when_a_slot_is_free(account: Account) -> None:
    assert account.register() == Registration.RESERVE_AGAIN
    assert account.item().waiting == {}


def test_a_late_duplicate_does_not_replace_a_newer_registration(account: Account) -> None:
    account.fill()
    assert account.register("p-newer", sequence="100", receives=2) == Registration.REGISTERED
    older: list[dict[str, Any]] = [
        {"sequence": "100", "receives": 1},
        {"sequence": "99", "receives": 7},  # 99 sorts after 100 as text
    ]
    assert [account.register("p-older", **late) for late in older] == [Registration.SUPERSEDED] * 2
    assert account.item().waiting["normal"].execution == "p-newer"


def test_a_registration_has_what_a_wake_and_an_operator_need(account: Account) -> None:
    account.fill()
    waits = Candidate("p", "p-waits", 2, "low", delivery({}, receives=3, sent_at=NOW - 60.5), "order-1")
    account.slots.wait(waits, account.item(), NOW + 225)
    assert account.raw_item()["waiting"]["M"]["low"]["M"] == {
        "sequence": {"S": FIRST},
        "receives": {"N": "3"},
        "receipt_handle": {"S": "handle-1"},
        "priority": {"S": "low"},
        "weight": {"N": "2"},
        "since": {"N": str(int(NOW - 60.5))},
        "execution": {"S": "p-waits"},
        "request_id": {"S": "order-1"},
        "hidden_until": {"N": str(int(NOW) + 225)},
    }


def test_a_candidate_without_a_message_cannot_register(account: Account) -> None:
    with pytest.raises(ValueError, match="without a message"):
        account.slots.wait(Candidate("p", "p-1"), account.item(), NOW)


# rule 1: a reserve respects the registrations that precede it

EARLIER: list[tuple[Priority, Priority]] = [("high", "normal"), ("high", "low"), ("normal", "low")]


@in_both_ways
@pytest.mark.parametrize(("waits", "asks"), EARLIER)
def test_a_free_slot_is_kept_for_a_waiting_request_of_a_higher_priority(
    account: Account, one_waits: Callable[..., None], waits: Priority, asks: Priority, reads_first: bool
) -> None:
    one_waits(waits)
    assert _slots(account, reads_first).reserve(Candidate("p", "p-asks", 1, asks, delivery({})), NOW) == FULL
    assert account.register("p-asks", asks) == Registration.REGISTERED


@in_both_ways
@pytest.mark.parametrize(("asks", "waits"), EARLIER)
def test_a_waiting_request_of_a_lower_priority_is_overtaken(
    account: Account, one_waits: Callable[..., None], waits: Priority, asks: Priority, reads_first: bool
) -> None:
    one_waits(waits)
    assert account.register("p-asks", asks) == Registration.RESERVE_AGAIN
    assert _slots(account, reads_first).reserve(Candidate("p", "p-asks", 1, asks, delivery({})), NOW) == Granted()
    assert account.item().waiting.keys() == {waits}


@in_both_ways
@pytest.mark.parametrize(
    ("asks", "outcome"),
    [
        ({"sequence": "8", "receives": 7}, FULL),
        ({"sequence": "9", "receives": 1}, FULL),
        ({"sequence": "9", "receives": 2}, Granted()),
        ({"sequence": "10", "receives": 1}, Granted()),
    ],
)
def test_a_free_slot_is_kept_for_a_later_registration_of_the_same_priority(
    account: Account, one_waits: Callable[..., None], asks: dict[str, Any], outcome: object, reads_first: bool
) -> None:
    """A slow starter of an earlier delivery must not replace it: the later delivery is hidden and needs its wake."""
    one_waits("normal", sequence="9", receives=2)
    assert _slots(account, reads_first).reserve(Candidate("p", "p-asks", delivery=delivery({}, **asks)), NOW) == outcome


@in_both_ways
@pytest.mark.parametrize("waits", PRIORITIES)
def test_a_candidate_without_a_message_waits_for_every_registration(
    account: Account, one_waits: Callable[..., None], waits: Priority, reads_first: bool
) -> None:
    one_waits(waits)
    assert _slots(account, reads_first).reserve(Candidate("p", "p-asks", priority="high"), NOW) == FULL


# rule 2: a grant replaces the registration by a tombstone


def test_a_grant_replaces_the_registration_in_the_same_write(account: Account, one_waits: Callable[..., None]) -> None:
    one_waits("high")
    calls = Calls(account.dynamodb)
    assert account.reserve("p-waits", priority="high", receives=2) == Granted()
    assert calls.made == ["UpdateItem"]
    assert account.item().waiting == {}
    assert account.item().tombstones == {"high": (FIRST, 2)}


def test_a_holder_does_not_register_even_by_a_newer_receive(account: Account) -> None:
    account.reserve("p-1")
    assert account.register("p-1", receives=2) == Registration.RESERVE_AGAIN
    assert account.item().waiting == {}


def test_a_tombstone_of_a_replaced_queue_ends_with_the_first_grant(account: Account) -> None:
    """The new queue's sequence numbers may be smaller. Until then its messages return when their hides end."""
    account.reserve("p-1", sequence="9")
    assert account.register("p-2", sequence="1") == Registration.SUPERSEDED
    account.slots.cancel("p", "p-1")
    assert account.reserve("p-2", sequence="1", receives=2) == Granted()
    assert account.register("p-3", sequence="2") == Registration.REGISTERED


# rule 3: the wait of a dead-lettered message ends before the message


@pytest.mark.parametrize("earlier", [{"sequence": "9", "receives": 7}, {"sequence": "10", "receives": 1}])
def test_a_wait_of_a_later_delivery_is_not_ended(
    account: Account, one_waits: Callable[..., None], earlier: dict[str, Any]
) -> None:
    one_waits("normal", sequence="10", receives=2)
    assert account.slots.end_wait(Candidate("p", "p-earlier", delivery=delivery({}, **earlier))) is False
    assert account.item().waiting["normal"].execution == "p-waits"


@pytest.mark.parametrize("candidate", [Candidate("p", "p-1", delivery=delivery({})), Candidate("p", "p-1")])
def test_a_message_that_never_waited_leaves_no_tombstone(account: Account, candidate: Candidate) -> None:
    assert account.slots.end_wait(candidate) is False
    assert account.item().tombstones == {}
