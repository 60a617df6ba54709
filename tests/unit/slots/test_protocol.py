"""The steps of the slot protocol, in one thread. tests/races has its races, on an atomic engine."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.slots.process import MAX_SLOT_LIMIT, MalformedProcess
from slotkeeper.slots.protocol import AlreadyHeld, Candidate, Granted, Misconfigured, UnknownProcess
from tests.support.boundary import Calls, passed_values, refuse
from tests.unit.conftest import FULL, NOW, PAUSED, Account


def test_a_granted_slot_is_counted_with_its_holder_in_one_call(account: Account) -> None:
    calls = Calls(account.dynamodb)
    assert account.slots.reserve(Candidate("p", "p-1"), NOW) == Granted()
    assert calls.made == ["UpdateItem"]
    assert account.item().slots_in_use == 1
    assert account.item().holders["p-1"].state == "RESERVED"


def test_reserve_is_refused_when_the_limit_is_reached(account: Account) -> None:
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    assert account.slots.reserve(Candidate("p", "p-2"), NOW) == FULL
    assert account.item().slots_in_use == 1


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


def test_reserve_is_refused_until_a_paused_process_is_resumed(account: Account) -> None:
    account.processes.pause("p")
    assert account.slots.reserve(Candidate("p", "p-1"), NOW) == PAUSED
    account.processes.resume("p")
    assert account.slots.reserve(Candidate("p", "p-1"), NOW) == Granted()


def test_a_pause_set_to_false_has_no_effect(account: Account) -> None:
    account.write("paused", {"BOOL": False})
    assert account.slots.reserve(Candidate("p", "p-1"), NOW) == Granted()


def test_reserve_is_refused_when_only_the_holders_reach_the_limit(account: Account) -> None:
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    account.write("slots_in_use", {"N": "0"})
    assert account.slots.reserve(Candidate("p", "p-2"), NOW) == FULL


def test_f5_a_second_cancel_frees_no_slot(account: Account) -> None:
    account.processes.set_limit("p", 2)
    account.slots.reserve(Candidate("p", "p-1"), NOW)
    account.slots.reserve(Candidate("p", "p-2"), NOW)
    assert [account.slots.cancel("p", "p-1"), account.slots.cancel("p", "p-1")] == [True, False]
    assert account.item().slots_in_use == 1


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


def test_a_counter_is_not_repaired_by_an_old_count_of_holders(account: Account) -> None:
    account.write("slots_in_use", {"N": "7"})
    seen = account.item()
    entry = {"M": {"state": {"S": "RESERVED"}, "since": {"N": "1"}}}
    account.write("holders", {"M": {"p-1": entry}})
    assert account.processes.repair_counter(seen) is False
    assert account.item().slots_in_use == 7


def test_a_wake_reads_consistently(account: Account) -> None:
    reads = passed_values(account.dynamodb, "GetItem", "ConsistentRead")
    account.slots.to_wake("p", NOW)
    account.slots.can_proceed(Candidate("p", "p-1"))
    assert reads == [True, True]


WAITING = {
    "receipt_handle": {"S": "handle"},
    "sequence": {"S": "1"},
    "receives": {"N": "1"},
    "weight": {"N": "1"},
    "since": {"N": "1"},
    "execution": {"S": "p-waits"},
}


def _waiting(**changes: Any) -> dict[str, Any]:
    return {"M": {"low": {"M": WAITING | changes}}}


@pytest.mark.parametrize(
    ("removed", "added"),
    [
        ([], {"waiting": _waiting(receipt_handle={"N": "1"})}),
        ([], {"waiting": _waiting(sequence={"N": "1"})}),
        ([], {"waiting": _waiting(weight={"N": "0"})}),
        ([], {"waiting": {"M": {"low": {"S": "p-waits"}}}}),
        (["waiting"], {}),
        (["slot_limit"], {}),
        (["slot_limit", "slots_in_use"], {}),
        (["process_name"], {"process_name": {"S": "another"}}),
        ([], {"turn_high": {"S": "1"}}),
    ],
    ids=[
        "receipt handle",
        "sequence",
        "weight",
        "registration",
        "no map",
        "no limit",
        "no counters",
        "no process",
        "turn",
    ],
)
def test_a_malformed_or_missing_process_wakes_no_request(
    account: Account, removed: list[str], added: dict[str, Any]
) -> None:
    item = account.raw_item() | {"waiting": _waiting()}
    account.dynamodb.delete_item(TableName=account.slot_table, Key={"process_name": {"S": "p"}})
    kept = {name: value for name, value in item.items() if name not in removed}
    account.dynamodb.put_item(TableName=account.slot_table, Item=kept | added)
    assert account.slots.to_wake("p", NOW) is None


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("slot_limit", {"N": "2.5"}),
        ("slots_in_use", {"N": "0.5"}),
        ("holders", {"M": {"p-1": {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1.5"}}}}}),
        ("holders", {"M": {"p-1": {"M": {"since": {"N": "1"}}}}}),
        ("holders", {"M": {"p-1": {"S": "RUNNING"}}}),
        ("waiting", {"S": "p-waits"}),
        ("waiting", {"M": {"high": {"S": "p-waits"}}}),
        ("waiting", {"M": {"high": {"M": {"sequence": {"S": "1"}}}}}),
        ("waiting", _waiting(receipt_handle={"N": "1"})),
        ("waiting", _waiting(sequence={"N": "1"})),
        ("waiting", _waiting(receives={"S": "1"})),
        ("waiting", _waiting(weight={"N": "100001"})),
        ("waiting", _waiting(execution={"N": "1"})),
        ("holders", {"M": {"p-1": {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}, "weight": {"N": "1.5"}}}}}),
        ("default_weight", {"N": "0"}),
        ("turn_high", {"S": "1"}),
        ("turn_normal", {"N": "1.5"}),
        ("turn_seconds", {"N": "61"}),
        ("paused", {"S": "yes"}),
    ],
)
def test_a_malformed_item_is_reported_with_its_attribute(
    account: Account, attribute: str, value: dict[str, Any]
) -> None:
    account.write(attribute, value)
    with pytest.raises(MalformedProcess, match=attribute):
        account.item()
    assert account.run_at(NOW).counts["MalformedProcesses"] == 1
