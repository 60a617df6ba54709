"""Operators' changes of a process that free a slot wake the waiting request."""

from __future__ import annotations

import pytest

from slotkeeper.slots.processes import Operations
from slotkeeper.slots.protocol import Candidate
from tests.unit.conftest import NOW, Account


@pytest.fixture
def operations(account: Account) -> Operations:
    """The operators' changes, over a full process with a waiting request."""
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    account.slots.wait(Candidate("p", "p-waits", delivery=account.send()), account.item(), NOW)
    return Operations(account.processes, account.slots, account.queue)


def test_a_raised_limit_wakes_the_waiting_request(account: Account, operations: Operations) -> None:
    assert operations.set_limit("p", 2) is True
    assert len(account.messages(account.queue_url)) == 1


def test_a_lowered_limit_wakes_no_request(account: Account, operations: Operations) -> None:
    assert operations.set_limit("p", 0) is False
    assert account.messages(account.queue_url) == []


def test_a_resumed_process_wakes_the_waiting_request(account: Account, operations: Operations) -> None:
    operations.pause("p")
    account.slots.cancel("p", "p-1")
    assert operations.resume("p") is True
    assert len(account.messages(account.queue_url)) == 1
