"""Wakes pick the waiting request whose turn it is, and clear registrations whose receipt handles are outdated."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.slots.operations import Operations
from slotkeeper.slots.queues import MAX_WAKES, wake_next
from slotkeeper.slots.request import PRIORITIES, Priority, message_group
from slotkeeper.slots.reservation import Candidate, Registration
from tests.support.boundary import Calls, refuse
from tests.unit.conftest import NOW, Account, delivery, registration

FIRST = "1".zfill(40)


# rules 5 and 6: a wake picks the highest priority, or clears it


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


def test_the_waiting_request_of_the_highest_priority_has_its_turn(account: Account) -> None:
    account.fill()
    for priority in ("low", "high", "normal"):
        account.register(f"p-{priority}", priority)
    account.slots.cancel("p", "p-other")
    for priority in PRIORITIES:
        woken = account.slots.to_wake("p")
        assert woken == account.item().first == registration(f"p-{priority}", priority)
        assert account.slots.clear("p", woken) is True
    assert account.slots.to_wake("p") is None


def test_a_cleared_registration_leaves_the_tombstone_of_its_receive(account: Account) -> None:
    """A late or repeated `wait` of the same receive would register its outdated handle again."""
    account.fill()
    account.register(receives=3)
    assert account.slots.clear("p", account.item().waiting["normal"]) is True
    assert account.item().tombstones == {"normal": (FIRST, 3)}
    assert account.register(receives=3) == Registration.SPENT
    assert account.register(receives=2) == Registration.SUPERSEDED
    assert account.register(receives=4) == Registration.REGISTERED


# the check after a hide


def _check(account: Account, **changes: Any) -> bool:
    return account.slots.can_proceed(Candidate("p", "p-waits", delivery=delivery({}, **changes)))


def test_a_registered_request_stays_hidden_while_none_of_its_conditions_changes(
    account: Account,
) -> None:
    account.fill()
    account.register()
    assert _check(account) is False
    account.processes.set_limit("p", 2)
    assert _check(account) is True
    account.processes.pause("p")
    assert _check(account) is False


def test_a_registered_request_stays_hidden_while_a_higher_priority_waits(account: Account) -> None:
    account.fill()
    account.register()
    account.register("p-high", "high")
    account.processes.set_limit("p", 2)
    assert _check(account) is False


def test_a_request_without_registration_reserves_again(account: Account) -> None:
    """The process was removed and added again before the hide."""
    account.fill()
    assert _check(account) is True


@pytest.mark.parametrize(("receives", "proceeds"), [(2, False), (3, True), (4, True)])
def test_a_request_whose_registration_was_cleared_reserves_again(
    account: Account, receives: int, proceeds: bool
) -> None:
    """A waker found the message visible before its starter hid it. A later receive registers for itself."""
    account.fill()
    account.register(receives=3)
    account.slots.clear("p", account.item().waiting["normal"])
    assert _check(account, receives=receives) is proceeds


# Wakes in the queue


@pytest.mark.parametrize("outdated", [1, 2, 3])
def test_outdated_registrations_are_cleared_until_one_request_is_woken(account: Account, outdated: int) -> None:
    account.fill()
    sent = {priority: account.wait_in_queue(f"p-{priority}", priority) for priority in PRIORITIES}
    for priority in PRIORITIES[:outdated]:
        account.sqs.delete_message(QueueUrl=account.queue_url, ReceiptHandle=sent[priority].receipt_handle)
    account.slots.cancel("p", "p-other")
    assert wake_next(account.slots, account.queue, "p") is (outdated < 3)
    assert account.item().waiting.keys() == set(PRIORITIES[outdated:])
    woken = [each["Body"] for each in account.messages(account.queue_url)]
    assert woken == [f"p-{priority}" for priority in PRIORITIES[outdated : outdated + 1]]


def test_a_wake_ends_although_requests_register_all_the_time(account: Account) -> None:
    account.lose_wake()
    calls = Calls(account.dynamodb)
    refuse(account.sqs, "ChangeMessageVisibility", "MessageNotInflight", times=100)
    refuse(account.dynamodb, "UpdateItem", "ConditionalCheckFailedException", times=100)
    assert wake_next(account.slots, account.queue, "p") is False
    assert calls.made == ["GetItem"] * MAX_WAKES


# Wakes by name, whether or not the request has its turn


@pytest.fixture
def operations(account: Account) -> Operations:
    """The operators' changes, over a full process with a waiting request of each priority."""
    account.fill()
    for priority in PRIORITIES:
        account.wait_in_queue(f"p-{priority}", priority)
    return Operations(account.processes, account.slots, account.queue)


@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_cancelled_head_is_woken_although_others_wait_before_it(
    account: Account, operations: Operations, priority: Priority
) -> None:
    operations.cancel_request("p", f"p-{priority}", NOW)
    assert [each["Body"] for each in account.messages(account.queue_url)] == [f"p-{priority}"]


def test_a_removed_process_wakes_every_head(account: Account, operations: Operations) -> None:
    account.slots.cancel("p", "p-other")
    operations.pause("p")
    assert operations.remove("p") is True
    groups = {each["Attributes"]["MessageGroupId"] for each in _visible(account)}
    assert groups == {message_group("p", priority) for priority in PRIORITIES}


def _visible(account: Account) -> list[dict[str, Any]]:
    answer = account.sqs.receive_message(QueueUrl=account.queue_url, MaxNumberOfMessages=10, AttributeNames=["All"])
    return list(answer.get("Messages", []))


@pytest.mark.parametrize("priority", PRIORITIES)
def test_the_janitor_wakes_a_cancelled_head_whose_wake_was_lost(
    account: Account, operations: Operations, priority: Priority
) -> None:
    """It keeps lower priorities out although it never starts, and no release may come that wakes it."""
    account.processes.cancellations.add("p", f"p-{priority}", NOW)
    assert account.run_at(NOW).counts["WaitingWoken"] == 1
    assert [each["Body"] for each in account.messages(account.queue_url)] == [f"p-{priority}"]


def test_the_janitor_clears_a_cancelled_head_whose_message_is_deleted(account: Account, operations: Operations) -> None:
    outdated = account.item().waiting["high"].receipt_handle
    account.sqs.delete_message(QueueUrl=account.queue_url, ReceiptHandle=outdated)
    account.processes.cancellations.add("p", "p-high", NOW)
    account.run_at(NOW)
    assert account.item().waiting.keys() == {"normal", "low"}


def test_the_janitor_clears_an_outdated_registration_and_wakes_the_next(account: Account) -> None:
    account.fill()
    deleted = account.wait_in_queue("p-high", "high")
    account.wait_in_queue("p-low", "low")
    account.sqs.delete_message(QueueUrl=account.queue_url, ReceiptHandle=deleted.receipt_handle)
    account.slots.cancel("p", "p-other")
    assert account.run_at(NOW).counts["WaitingWoken"] == 1
    assert account.item().waiting.keys() == {"low"}
    assert [each["Body"] for each in account.messages(account.queue_url)] == ["p-low"]
