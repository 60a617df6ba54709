"""The slot protocol, step by step, in one thread. Races are judged on an atomic engine (tests/races)."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.protocol import (
    AlreadyHeld,
    Full,
    Granted,
    Misconfigured,
    Paused,
    Registration,
    UnknownProcess,
    WaitingRequest,
)
from tests.support.boundary import Calls, refuse
from tests.unit.conftest import NOW, Account, delivery


def _confirm(account: Account, execution: str) -> None:
    """As the workflow does it."""
    account.dynamodb.update_item(
        TableName=account.slot_table,
        Key={"process_name": {"S": "p"}},
        UpdateExpression="SET holders.#me.#state = :running, holders.#me.job = job_name",
        ExpressionAttributeNames={"#me": execution, "#state": "state"},
        ExpressionAttributeValues={":running": {"S": "RUNNING"}},
    )


def test_a_granted_slot_is_counted_and_its_holder_named(account: Account) -> None:
    assert account.slots.reserve("p", "p-1", NOW) == Granted()
    assert account.item().slots_in_use == 1
    assert account.item().holders["p-1"].state == "RESERVED"


def test_a_grant_is_one_call(account: Account) -> None:
    calls = Calls(account.dynamodb)
    account.slots.reserve("p", "p-1", NOW)
    assert calls.made == ["UpdateItem"]


def test_nobody_is_admitted_beyond_the_limit(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
    assert account.slots.reserve("p", "p-2", NOW) == Full()
    assert account.item().slots_in_use == 1


@pytest.mark.parametrize("limit", [1, 2], ids=["while full", "while there is room"])
def test_f17_a_reserve_whose_first_answer_was_lost_is_mine_already(account: Account, limit: int) -> None:
    account.processes.set_limit("p", limit)
    account.slots.reserve("p", "p-1", NOW)
    assert account.slots.reserve("p", "p-1", NOW) == AlreadyHeld()
    assert account.item().slots_in_use == 1


def test_f6_a_lowered_limit_admits_nobody_until_below_it(account: Account) -> None:
    account.processes.set_limit("p", 3)
    for n in range(3):
        account.slots.reserve("p", f"p-{n}", NOW)
    account.processes.set_limit("p", 1)
    refusals = []
    for n in range(2):
        refusals.append(account.slots.reserve("p", "p-new", NOW))
        account.slots.cancel("p", f"p-{n}")
    refusals.append(account.slots.reserve("p", "p-new", NOW))
    account.slots.cancel("p", "p-2")
    assert refusals == [Full(), Full(), Full()]
    assert account.slots.reserve("p", "p-new", NOW) == Granted()


def test_f7_a_limit_that_is_a_string_is_reported_and_not_taken_for_full(account: Account) -> None:
    # DynamoDB answers a comparison across types with false; moto cannot compare them at all.
    item = account.raw_item() | {"slot_limit": {"S": "10"}}
    refuse(account.dynamodb, "UpdateItem", "ConditionalCheckFailedException", Item=item)
    outcome = account.slots.reserve("p", "p-1", NOW)
    assert isinstance(outcome, Misconfigured)
    assert "slot_limit must be of DynamoDB type N" in outcome.reason


def test_f7_holders_in_which_nobody_has_a_place_are_reported_and_not_raised(account: Account) -> None:
    account.write("holders", {"L": []})
    refuse(account.dynamodb, "UpdateItem", "ValidationException")
    outcome = account.slots.reserve("p", "p-1", NOW)
    assert isinstance(outcome, Misconfigured)
    assert "holders must be of DynamoDB type M" in outcome.reason


@pytest.mark.parametrize("code", ["ValidationException", "ProvisionedThroughputExceededException"])
def test_what_dynamodb_refuses_of_an_item_that_is_well_formed_is_raised(account: Account, code: str) -> None:
    refuse(account.dynamodb, "UpdateItem", code)
    with pytest.raises(ClientError, match=code):
        account.slots.reserve("p", "p-1", NOW)


@pytest.mark.parametrize("limit", ["10", 10.0, True, -1, 501, None])
def test_f7_a_limit_of_another_type_is_refused_on_write(account: Account, limit: Any) -> None:
    with pytest.raises(ValueError, match="slot limit must be a whole number from 0 to 500"):
        account.processes.set_limit("p", limit)


def test_f19_a_missing_process_is_not_taken_for_full(account: Account) -> None:
    assert account.slots.reserve("nobody", "nobody-1", NOW) == UnknownProcess()


def test_f8_creating_a_process_again_forgets_nobody(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
    assert account.processes.create("p", 9, "job") is False
    assert account.slots.reserve("p", "p-2", NOW) == Full()


def test_a_paused_process_admits_nobody_until_resumed(account: Account) -> None:
    account.processes.pause("p")
    assert account.slots.reserve("p", "p-1", NOW) == Paused()
    account.processes.resume("p")
    assert account.slots.reserve("p", "p-1", NOW) == Granted()


def test_a_pause_that_somebody_set_to_false_is_none(account: Account) -> None:
    account.write("paused", {"BOOL": False})
    assert account.slots.reserve("p", "p-1", NOW) == Granted()


def test_a_counter_below_the_holders_admits_nobody_beyond_the_limit(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
    account.write("slots_in_use", {"N": "0"})
    assert account.slots.reserve("p", "p-2", NOW) == Full()


def test_f5_a_slot_given_back_twice_is_given_back_once(account: Account) -> None:
    account.processes.set_limit("p", 2)
    account.slots.reserve("p", "p-1", NOW)
    account.slots.reserve("p", "p-2", NOW)
    assert [account.slots.cancel("p", "p-1"), account.slots.cancel("p", "p-1")] == [True, False]
    assert account.item().slots_in_use == 1


def test_f13_a_confirmed_slot_cannot_be_cancelled(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
    _confirm(account, "p-1")
    assert account.slots.cancel("p", "p-1") is False
    assert account.item().holders["p-1"].job == "job"


def test_a_release_fails_if_the_holder_changed_since_it_was_seen(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
    seen = account.item().holders["p-1"].raw
    _confirm(account, "p-1")
    assert account.slots.release("p", "p-1", seen) is False
    assert account.slots.release("p", "p-1", account.item().holders["p-1"].raw) is True


@pytest.mark.parametrize("now", [NOW, None], ids=["quiet", "alive"])
def test_a_look_is_noted_on_the_holder_that_was_seen_and_on_no_other(account: Account, now: float | None) -> None:
    account.slots.reserve("p", "p-1", NOW)
    seen = account.item().holders["p-1"].raw
    _confirm(account, "p-1")
    assert account.slots.mark_quiet("p", "p-1", seen, now) is False
    assert account.slots.mark_quiet("p", "p-1", account.item().holders["p-1"].raw, now) is True


def test_registering_says_when_there_is_room_by_now(account: Account) -> None:
    assert account.slots.wait("p", "p-waits", delivery({})) == Registration.RESERVE_AGAIN
    assert "waiting" not in account.raw_item()


def test_registering_with_a_process_that_has_been_removed_asks_to_reserve_again(account: Account) -> None:
    refuse(account.dynamodb, "UpdateItem", "ConditionalCheckFailedException")
    assert account.slots.wait("nobody", "p-waits", delivery({})) == Registration.RESERVE_AGAIN


def test_a_late_duplicate_does_not_replace_a_newer_registration(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
    newer = delivery({}, sequence="100", receives=2, receipt_handle="newer")
    older = [
        delivery({}, sequence="100", receives=1, receipt_handle="older receive"),
        delivery({}, sequence="99", receives=7, receipt_handle="older message, and 99 sorts after 100 as text"),
    ]
    assert account.slots.wait("p", "p-waits", newer) == Registration.REGISTERED
    assert [account.slots.wait("p", "p-waits", late) for late in older] == [
        Registration.SUPERSEDED,
        Registration.SUPERSEDED,
    ]
    assert account.raw_item()["waiting"]["M"]["receipt_handle"]["S"] == "newer"


@pytest.mark.parametrize("newer", [{"sequence": "10", "receives": 1}, {"sequence": "9", "receives": 4}])
def test_a_newer_delivery_replaces_an_older_registration(account: Account, newer: dict[str, Any]) -> None:
    account.slots.reserve("p", "p-1", NOW)
    account.slots.wait("p", "p-waits", delivery({}, sequence="9", receives=3))
    assert account.slots.wait("p", "p-waits", delivery({}, receipt_handle="newer", **newer)) == Registration.REGISTERED
    assert account.raw_item()["waiting"]["M"]["receipt_handle"]["S"] == "newer"


def test_whoever_is_refused_by_a_pause_registers_though_there_are_slots(account: Account) -> None:
    account.processes.pause("p")
    assert account.slots.wait("p", "p-waits", delivery({})) == Registration.REGISTERED


def test_nobody_is_woken_without_room_or_while_paused(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
    account.slots.wait("p", "p-waits", delivery({}))
    assert account.slots.waiting_at_free_slot("p") is None
    account.slots.cancel("p", "p-1")
    account.processes.pause("p")
    assert account.slots.waiting_at_free_slot("p") is None
    account.processes.resume("p")
    assert account.slots.waiting_at_free_slot("p") == WaitingRequest("handle-1", "1".zfill(40), 1)


def test_a_wake_leaves_the_registration_for_the_next_one(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
    account.slots.wait("p", "p-waits", delivery({}))
    account.slots.cancel("p", "p-1")
    account.slots.waiting_at_free_slot("p")
    assert account.slots.waiting_at_free_slot("p") is not None


def test_a_holder_stays_small(account: Account) -> None:
    """500 holders fit an item's 400 KB, and each costs every write of the item its share."""
    name = "p" * 47 + "-" + "a" * 32
    account.slots.reserve("p", name, NOW)
    _confirm(account, name)
    holder = account.item().holders[name]
    account.slots.mark_quiet("p", name, holder.raw, NOW)
    fields = account.raw_item()["holders"]["M"][name]["M"]
    size = len(name) + 3 + sum(len(key) + 1 + len(next(iter(value.values()))) for key, value in fields.items())
    assert size < 150


def test_changing_a_process_that_is_not_there_says_so(account: Account) -> None:
    with pytest.raises(LookupError, match="process 'nobody' does not exist"):
        account.processes.set_limit("nobody", 1)


def test_a_drifted_counter_is_repaired_only_as_it_was_seen(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
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
    reads: list[bool] = []
    account.dynamodb.meta.events.register(
        "provide-client-params.dynamodb.GetItem", lambda params, **_: reads.append(params["ConsistentRead"])
    )
    account.slots.waiting_at_free_slot("p")
    account.slots.can_proceed("p", "p-1")
    assert reads == [True, True]


WAITING = {
    "receipt_handle": {"S": "handle"},
    "sequence": {"S": "1"},
    "receives": {"N": "1"},
    "since": {"N": "1"},
}


@pytest.mark.parametrize("attribute", ["receipt_handle", "sequence"])
def test_whoever_makes_room_does_not_fail_over_a_registration_that_is_malformed(
    account: Account, attribute: str
) -> None:
    account.write("waiting", {"M": {**WAITING, attribute: {"N": "1"}}})
    assert account.slots.waiting_at_free_slot("p") is None


@pytest.mark.parametrize("without", [("slot_limit",), ("slot_limit", "slots_in_use")], ids=" and ".join)
def test_nor_over_counters_that_are_not_there(account: Account, without: tuple[str, ...]) -> None:
    item = account.raw_item() | {"waiting": {"M": WAITING}}
    left = {name: value for name, value in item.items() if name not in without}
    account.dynamodb.put_item(TableName=account.slot_table, Item=left)
    assert account.slots.waiting_at_free_slot("p") is None


def test_nor_over_a_process_that_is_not_there(account: Account) -> None:
    assert account.slots.waiting_at_free_slot("nobody") is None


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("slot_limit", {"N": "2.5"}),
        ("slots_in_use", {"N": "0.5"}),
        ("holders", {"M": {"p-1": {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1.5"}}}}}),
        ("holders", {"M": {"p-1": {"M": {"since": {"N": "1"}}}}}),
        ("holders", {"M": {"p-1": {"S": "RUNNING"}}}),
        ("waiting", {"S": "somebody"}),
        ("waiting", {"M": {"sequence": {"S": "1"}}}),
        ("waiting", {"M": {**WAITING, "receipt_handle": {"N": "1"}}}),
        ("waiting", {"M": {**WAITING, "sequence": {"N": "1"}}}),
        ("waiting", {"M": {**WAITING, "receives": {"S": "1"}}}),
        ("paused", {"S": "yes"}),
    ],
)
def test_an_item_that_somebody_wrote_by_hand_is_reported_with_its_attribute(
    account: Account, attribute: str, value: dict[str, Any]
) -> None:
    account.write(attribute, value)
    with pytest.raises(MalformedProcess, match=attribute):
        account.item()
    assert account.round_at(NOW).counts["MalformedProcesses"] == 1
