"""The steps of the slot protocol, in one thread. tests/races has its races, on an atomic engine."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.slots.process import MAX_SLOT_LIMIT
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
from tests.support.boundary import Calls, passed_values, refuse
from tests.unit.conftest import FULL, NOW, PAUSED, Account
from tests.workflow.definition import states
from tests.workflow.interpreter import evaluate


@pytest.mark.parametrize("limit", [1, 2], ids=["full", "a slot free"])
def test_f17_a_repeated_reserve_returns_already_held(account: Account, limit: int) -> None:
    account.processes.set_limit("p", limit)
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    assert account.slots.reserve(Candidate("p", "p-1"), NOW) == AlreadyHeld()
    assert account.item().slots_in_use == 1


def test_f6_reserve_is_refused_until_the_process_is_below_a_lowered_limit(account: Account) -> None:
    account.processes.set_limit("p", 3)
    for n in range(3):
        account.slots.reserve(Candidate("p", f"p-{n}"), NOW)
    account.processes.set_limit("p", 1)
    refusals = []
    for n in range(2):
        refusals.append(account.slots.reserve(Candidate("p", "p-new"), NOW))
        account.slots.cancel("p", f"p-{n}")
    refusals.append(account.slots.reserve(Candidate("p", "p-new"), NOW))
    account.slots.cancel("p", "p-2")
    assert refusals == [FULL, FULL, FULL]
    assert account.slots.reserve(Candidate("p", "p-new"), NOW) == Granted()


def test_f7_a_limit_that_is_a_string_is_reported_and_not_taken_for_full(account: Account) -> None:
    # For DynamoDB a comparison across types is false; moto fails on it.
    item = account.raw_item() | {"slot_limit": {"S": "10"}}
    refuse(account.dynamodb, "UpdateItem", "ConditionalCheckFailedException", Item=item)
    outcome = account.slots.reserve(Candidate("p", "p-1"), NOW)
    assert isinstance(outcome, Misconfigured)
    assert "slot_limit must be of DynamoDB type N" in outcome.reason


def test_f7_holders_of_another_type_are_reported_and_not_raised(account: Account) -> None:
    account.write("holders", {"L": []})
    refuse(account.dynamodb, "UpdateItem", "ValidationException")
    outcome = account.slots.reserve(Candidate("p", "p-1"), NOW)
    assert isinstance(outcome, Misconfigured)
    assert "holders must be of DynamoDB type M" in outcome.reason


@pytest.mark.parametrize("code", ["ValidationException", "ProvisionedThroughputExceededException"])
def test_an_error_of_dynamodb_for_a_well_formed_item_is_raised(account: Account, code: str) -> None:
    refuse(account.dynamodb, "UpdateItem", code)
    with pytest.raises(ClientError, match=code):
        account.slots.reserve(Candidate("p", "p-1"), NOW)


@pytest.mark.parametrize("limit", ["10", 10.0, True, -1, MAX_SLOT_LIMIT + 1, None])
def test_f7_a_limit_of_another_type_is_refused_on_write(account: Account, limit: Any) -> None:
    with pytest.raises(ValueError, match="slot limit must be a whole number from 0 to 100000"):
        account.processes.set_limit("p", limit)


def test_f19_a_missing_process_is_not_taken_for_full(account: Account) -> None:
    assert account.slots.reserve(Candidate("unknown", "unknown-1"), NOW) == UnknownProcess()


def test_f8_creating_a_process_again_keeps_its_holders(account: Account) -> None:
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    assert account.processes.create("p", 9, "job") is False
    assert account.slots.reserve(Candidate("p", "p-2"), NOW) == FULL


def test_reserve_is_refused_when_only_the_holders_reach_the_limit(account: Account) -> None:
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    account.write("slots_in_use", {"N": "0"})
    assert account.slots.reserve(Candidate("p", "p-2"), NOW) == FULL


def test_f13_a_confirmed_slot_cannot_be_cancelled(account: Account) -> None:
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    account.confirm("p-1")
    assert account.slots.cancel("p", "p-1") is False
    assert account.item().holders["p-1"].target == "job"


def test_a_release_fails_if_the_holder_changed_since_it_was_seen(account: Account) -> None:
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    seen = account.item().holders["p-1"].raw
    account.confirm("p-1")
    assert account.slots.release("p", "p-1", seen) is False
    assert account.slots.release("p", "p-1", account.item().holders["p-1"].raw) is True


@pytest.mark.parametrize("now", [NOW, None], ids=["quiet", "alive"])
def test_a_check_is_recorded_only_on_an_unchanged_holder(account: Account, now: float | None) -> None:
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    seen = account.item().holders["p-1"].raw
    account.confirm("p-1")
    assert account.slots.mark_quiet("p", "p-1", seen, now) is False
    assert account.slots.mark_quiet("p", "p-1", account.item().holders["p-1"].raw, now) is True


def test_a_holder_is_below_150_bytes(account: Account) -> None:
    """500 holders fit an item of 400 KB, and the write units of each write grow with the item."""
    name = "p" * 47 + "-" + "a" * 32
    account.slots.reserve(Candidate("p", name), NOW)
    account.confirm(name)
    holder = account.item().holders[name]
    account.slots.mark_quiet("p", name, holder.raw, NOW)
    fields = account.raw_item()["holders"]["M"][name]["M"]
    size = len(name) + 3 + sum(len(key) + 1 + len(next(iter(value.values()))) for key, value in fields.items())
    assert size < 150


def test_a_change_of_an_unknown_process_is_refused(account: Account) -> None:
    with pytest.raises(LookupError, match="process 'unknown' does not exist"):
        account.processes.set_limit("unknown", 1)


def test_a_drifted_counter_is_repaired_only_if_it_is_unchanged(account: Account) -> None:
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    account.write("slots_in_use", {"N": "7"})
    seen = account.item()
    account.write("slots_in_use", {"N": "8"})
    assert account.processes.repair_counter(seen) is False
    assert account.processes.repair_counter(account.item()) is True
    assert account.item().slots_in_use == 1


def test_a_wake_reads_consistently(account: Account) -> None:
    reads = passed_values(account.dynamodb, "GetItem", "ConsistentRead")
    account.slots.to_wake("p", NOW)
    account.slots.can_proceed(Candidate("p", "p-1"), NOW)
    assert reads == [True, True]


# The precheck: reserve first reads a process with many holders, and returns the same answers as the write


def test_a_full_large_process_is_read_and_not_written(account: Account) -> None:
    """A refused write costs as much as a successful one, by the item's size. A read costs a twentieth."""
    account.processes.set_limit("p", PRECHECK_FROM_HOLDERS)
    for n in range(PRECHECK_FROM_HOLDERS):
        account.slots.reserve(Candidate("p", f"p-{n}"), NOW)
    account.slots.reserve(Candidate("p", "p-late"), NOW)
    calls = Calls(account.dynamodb)
    assert account.slots.reserve(Candidate("p", "p-later"), NOW) == FULL
    assert calls.made == ["GetItem"]


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


# The workflow's writes, from its definition


def _do(account: Account, state: str, execution: str) -> dict[str, Any]:
    """Make a state's call, as an execution of this name."""
    known = {"context": {"Execution": {"Name": execution, "Input": {"process": "p"}}}}
    arguments = evaluate(states()[state]["Arguments"], known)
    answer: dict[str, Any] = account.dynamodb.update_item(**arguments | {"TableName": account.slot_table})
    return answer


def _refusal(account: Account, state: str, execution: str) -> str:
    """The error code of a state's call, or an empty text."""
    try:
        _do(account, state, execution)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def test_f13_a_cancelled_reservation_is_not_confirmed(account: Account) -> None:
    """The janitor cancelled the reservation of a slow starter, whose execution starts later."""
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    account.slots.cancel("p", "p-1")
    account.slots.reserve(Candidate("p", "p-2"), NOW)
    assert _refusal(account, "ConfirmSlot", "p-1") == "ConditionalCheckFailedException"
    assert account.item().holders.keys() == {"p-2"}


@pytest.mark.parametrize("confirmed", [True, False])
def test_f5_a_slot_that_is_released_twice_is_released_once(account: Account, confirmed: bool) -> None:
    account.processes.set_limit("p", 2)
    for name in ("p-1", "p-2"):
        account.slots.reserve(Candidate("p", name), NOW)
    if confirmed:
        _do(account, "ConfirmSlot", "p-1")
    refusals = [_refusal(account, "ReleaseSlot", "p-1") for _ in range(2)]
    assert refusals == ["", "ConditionalCheckFailedException"]
    assert (account.item().slots_in_use, account.item().holders.keys()) == (1, {"p-2"})
