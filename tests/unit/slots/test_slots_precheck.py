"""The precheck: reserve first reads a process with many holders, and returns the same answers as the write."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.slots.protocol import (
    PRECHECK_FROM_HOLDERS,
    AlreadyHeld,
    Cancelled,
    Candidate,
    Granted,
    HeldByAnother,
    Misconfigured,
    Reservation,
    Slots,
    UnknownProcess,
)
from tests.support.boundary import Calls
from tests.unit.conftest import FULL, NOW, PAUSED, Account


def test_a_full_large_process_is_read_and_not_written(account: Account) -> None:
    """A refused write costs as much as a successful one, by the item's size. A read costs a twentieth."""
    account.processes.set_limit("p", PRECHECK_FROM_HOLDERS)
    for n in range(PRECHECK_FROM_HOLDERS):
        account.slots.reserve(Candidate("p", f"p-{n}"), NOW)
    account.slots.reserve(Candidate("p", "p-late"), NOW)
    calls = Calls(account.dynamodb)
    assert account.slots.reserve(Candidate("p", "p-later"), NOW) == FULL
    assert calls.made == ["GetItem"]


def test_a_process_that_is_no_longer_large_is_written_without_a_read(account: Account) -> None:
    account.processes.set_limit("p", 1)
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    slots = Slots(account.dynamodb, account.slot_table, large={"p"})
    slots.reserve(Candidate("p", "p-2"), NOW)
    calls = Calls(account.dynamodb)
    slots.reserve(Candidate("p", "p-2"), NOW)
    assert calls.made[0] == "UpdateItem"


@pytest.mark.parametrize(
    ("attribute", "value", "answer"),
    [
        ("slot_limit", {"N": "2"}, Granted()),
        ("paused", {"BOOL": True}, PAUSED),
        ("holders", {"M": {"p-2": {"M": {"state": {"S": "RESERVED"}, "since": {"N": "1"}}}}}, AlreadyHeld()),
        (
            "holders",
            {"M": {"p-2": {"M": {"state": {"S": "RESERVED"}, "since": {"N": "1"}, "weight": {"N": "2"}}}}},
            HeldByAnother(2),
        ),
        ("cancelled", {"M": {"p-2": {"M": {"since": {"N": "1"}, "by": {"S": "me"}}}}}, Cancelled(1, "me")),
        ("holders", {"S": "p-1"}, Misconfigured("holders must be of DynamoDB type M, got {'S': 'p-1'}")),
    ],
)
def test_the_precheck_returns_the_answer_of_the_write(
    account: Account, attribute: str, value: dict[str, Any], answer: Reservation
) -> None:
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    account.write(attribute, value)
    assert Slots(account.dynamodb, account.slot_table, large={"p"}).reserve(Candidate("p", "p-2"), NOW) == answer


def test_the_precheck_reports_an_unknown_process(account: Account) -> None:
    slots = Slots(account.dynamodb, account.slot_table, large={"unknown"})
    assert slots.reserve(Candidate("unknown", "unknown-1"), NOW) == UnknownProcess()
