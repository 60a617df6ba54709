"""Registrations of waiting requests, and the tombstones that replace them. tests/races has their races."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.slots.protocol import Candidate, Registration
from tests.support.boundary import refuse
from tests.unit.conftest import Account, delivery, registration


def test_wait_returns_reserve_again_when_a_slot_is_free(account: Account) -> None:
    assert account.register() == Registration.RESERVE_AGAIN
    assert account.item().waiting == {}


def test_wait_returns_reserve_again_when_the_process_was_removed(account: Account) -> None:
    seen = account.item()
    refuse(account.dynamodb, "UpdateItem", "ConditionalCheckFailedException")
    refused = Candidate("unknown", "p-waits", delivery=delivery({}))
    assert account.slots.wait(refused, seen) == Registration.RESERVE_AGAIN


def test_a_late_duplicate_does_not_replace_a_newer_registration(account: Account) -> None:
    account.fill()
    assert account.register("p-newer", sequence="100", receives=2) == Registration.REGISTERED
    older: list[dict[str, Any]] = [
        {"sequence": "100", "receives": 1},
        {"sequence": "99", "receives": 7},  # 99 sorts after 100 as text
    ]
    assert [account.register("p-older", **late) for late in older] == [Registration.SUPERSEDED] * 2
    assert account.item().waiting["normal"].execution == "p-newer"


@pytest.mark.parametrize("newer", [{"sequence": "10", "receives": 1}, {"sequence": "9", "receives": 4}])
def test_a_newer_delivery_replaces_an_older_registration(account: Account, newer: dict[str, Any]) -> None:
    account.fill()
    account.register("p-older", sequence="9", receives=3)
    assert account.register("p-newer", **newer) == Registration.REGISTERED
    assert account.item().waiting["normal"].execution == "p-newer"


def test_a_request_refused_by_a_pause_is_registered_although_a_slot_is_free(account: Account) -> None:
    account.processes.pause("p")
    assert account.register() == Registration.REGISTERED


def test_no_request_is_woken_without_a_free_slot_or_while_paused(account: Account) -> None:
    account.fill()
    account.register()
    assert account.slots.to_wake("p") is None
    account.slots.cancel("p", "p-other")
    account.processes.pause("p")
    assert account.slots.to_wake("p") is None
    account.processes.resume("p")
    assert account.slots.to_wake("p") == registration()


def test_a_wake_leaves_the_registration_for_the_next_one(account: Account) -> None:
    account.fill()
    account.register()
    account.slots.cancel("p", "p-other")
    account.slots.to_wake("p")
    assert account.slots.to_wake("p") is not None
