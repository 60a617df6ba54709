"""Wakes pick the waiting request whose turn it is, and clear registrations whose receipt handles are outdated."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.slots.process import Wake
from slotkeeper.slots.processes import Operations
from slotkeeper.slots.protocol import Candidate, Registration
from slotkeeper.slots.queues import MAX_WAKES, wake_next
from slotkeeper.slots.request import PRIORITIES, Priority, message_group
from tests.support.boundary import Calls, passed_values, refuse
from tests.unit.conftest import HIDDEN_UNTIL, NOW, Account, delivery, registration

FIRST = "1".zfill(40)


# rules 5 and 6: a wake picks the highest priority, or clears it


def test_no_request_is_woken_without_a_free_slot_or_while_paused(account: Account) -> None:
    account.fill()
    account.register()
    assert account.slots.to_wake("p", NOW) is None
    account.slots.cancel("p", "p-other")
    account.processes.pause("p")
    assert account.slots.to_wake("p", NOW) is None
    account.processes.resume("p")
    assert account.slots.to_wake("p", NOW) == Wake(registration(), 0)


def test_the_waiting_request_of_the_highest_priority_has_its_turn(account: Account) -> None:
    account.fill()
    for priority in ("low", "high", "normal"):
        account.register(f"p-{priority}", priority)
    account.slots.cancel("p", "p-other")
    for priority in PRIORITIES:
        woken = account.slots.to_wake("p", NOW)
        assert woken is not None
        assert woken.waiting == account.item().first == registration(f"p-{priority}", priority)
        assert account.slots.clear("p", woken.waiting, NOW) is True
    assert account.slots.to_wake("p", NOW) is None


def test_a_cleared_registration_leaves_the_tombstone_of_its_receive(account: Account) -> None:
    """A late or repeated `wait` of the same receive would register its outdated handle again."""
    account.fill()
    account.register(receives=3)
    assert account.slots.clear("p", account.item().waiting["normal"], NOW) is True
    assert account.item().tombstones == {"normal": (FIRST, 3)}
    assert account.register(receives=3) == Registration.SPENT
    assert account.register(receives=2) == Registration.SUPERSEDED
    assert account.register(receives=4) == Registration.REGISTERED


# the check after a hide


def _check(account: Account, **changes: Any) -> bool:
    return account.slots.can_proceed(Candidate("p", "p-waits", delivery=delivery({}, **changes)), HIDDEN_UNTIL)


@pytest.mark.parametrize(("receives", "proceeds"), [(2, False), (3, True), (4, True)])
def test_a_request_whose_registration_was_cleared_reserves_again(
    account: Account, receives: int, proceeds: bool
) -> None:
    """A waker found the message visible before its starter hid it. A later receive registers for itself."""
    account.fill()
    account.register(receives=3)
    account.slots.clear("p", account.item().waiting["normal"], NOW)
    assert _check(account, receives=receives) is proceeds


# Wakes in the queue


@pytest.mark.parametrize("outdated", [1, 2, 3])
def test_outdated_registrations_are_cleared_until_one_request_is_woken(account: Account, outdated: int) -> None:
    account.fill()
    account.write("turn_seconds", {"N": "0"})
    sent = {priority: account.wait_in_queue(f"p-{priority}", priority) for priority in PRIORITIES}
    for priority in PRIORITIES[:outdated]:
        account.sqs.delete_message(QueueUrl=account.queue_url, ReceiptHandle=sent[priority].receipt_handle)
    account.slots.cancel("p", "p-other")
    assert wake_next(account.slots, account.queue, "p", NOW) is (outdated < 3)
    assert account.item().waiting.keys() == set(PRIORITIES[outdated:])
    woken = [each["Body"] for each in account.messages(account.queue_url)]
    assert woken == [f"p-{priority}" for priority in PRIORITIES[outdated : outdated + 1]]


def test_a_wake_ends_although_requests_register_all_the_time(account: Account) -> None:
    account.lose_wake()
    calls = Calls(account.dynamodb)
    refuse(account.sqs, "ChangeMessageVisibility", "MessageNotInflight", times=100)
    refuse(account.dynamodb, "UpdateItem", "ConditionalCheckFailedException", times=100)
    assert wake_next(account.slots, account.queue, "p", NOW) is False
    assert calls.made == ["GetItem"] * MAX_WAKES


# Turns: the wakes of lower priorities are delayed


@pytest.mark.parametrize(
    ("priority", "receives", "sent_at", "begins"),
    [
        ("high", 2, NOW, True),
        ("normal", 2, NOW, True),
        ("high", 1, NOW - 1, True),
        ("high", 1, NOW - 0.9, False),  # it found a free slot, as do others that come now and then
        ("normal", 1, NOW, False),
    ],
)
def test_the_grant_of_a_request_that_has_waited_begins_a_turn(
    account: Account, priority: Priority, receives: int, sent_at: float, begins: bool
) -> None:
    sent = delivery({}, message_group("p", priority), receives=receives, sent_at=sent_at)
    account.slots.reserve(Candidate("p", "p-1", priority=priority, delivery=sent), NOW)
    assert account.item().turns == ({priority: NOW * 1000} if begins else {})


def test_a_waker_that_clears_a_registration_begins_a_turn(account: Account) -> None:
    account.fill()
    account.register("p-high", "high")
    account.slots.clear("p", account.item().waiting["high"], NOW + 0.25)
    assert account.item().turns == {"high": NOW * 1000 + 250}


def _turn_of_high(account: Account) -> None:
    """A request of each priority is hidden, a slot is free, and the registration of high has just been cleared."""
    account.fill()
    sent = {priority: account.wait_in_queue(f"p-{priority}", priority) for priority in PRIORITIES}
    account.sqs.delete_message(QueueUrl=account.queue_url, ReceiptHandle=sent["high"].receipt_handle)
    account.write("turn_seconds", {"N": "9"})
    account.slots.cancel("p", "p-other")
    account.slots.clear("p", account.item().waiting["high"], NOW)


@pytest.mark.parametrize(("after", "delay"), [(0, 9), (0.1, 9), (5, 4), (9, 0), (60, 0), (-60, 9)])
def test_a_wake_of_a_lower_priority_comes_at_the_end_of_a_turn(account: Account, after: float, delay: int) -> None:
    """The last: the clock of the turn is a minute ahead."""
    _turn_of_high(account)
    set_to = passed_values(account.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    assert wake_next(account.slots, account.queue, "p", NOW + after) is True
    assert set_to == [delay]
    assert account.item().waiting.keys() == {"normal", "low"}


def test_the_janitor_wakes_a_lower_priority_at_the_end_of_a_turn(account: Account) -> None:
    _turn_of_high(account)
    entries = passed_values(account.sqs, "ChangeMessageVisibilityBatch", "Entries")
    account.run_at(NOW + 5)
    assert [entry["VisibilityTimeout"] for entry in entries[0]] == [4]


# Operators' changes, and wakes by name, whether or not the request has its turn


@pytest.fixture
def operations(account: Account) -> Operations:
    """The operators' changes, over a full process with a waiting request of each priority."""
    account.fill()
    for priority in PRIORITIES:
        account.wait_in_queue(f"p-{priority}", priority)
    return Operations(account.processes, account.slots, account.queue, lambda: NOW)


@pytest.mark.parametrize(("limit", "woken"), [(2, ["p-high"]), (0, [])], ids=["raised", "lowered"])
def test_a_raised_limit_wakes_the_waiting_request(
    account: Account, operations: Operations, limit: int, woken: list[str]
) -> None:
    assert operations.set_limit("p", limit) is bool(woken)
    assert [each["Body"] for each in account.messages(account.queue_url)] == woken


def test_a_resumed_process_wakes_the_waiting_request(account: Account, operations: Operations) -> None:
    operations.pause("p")
    account.slots.cancel("p", "p-other")
    assert operations.resume("p") is True
    assert [each["Body"] for each in account.messages(account.queue_url)] == ["p-high"]


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
