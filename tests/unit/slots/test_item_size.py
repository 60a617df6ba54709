"""A process's item: every step fits into the largest one, and requests without a task token need no further call."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.slots.lost_requests import MAX_LOST
from slotkeeper.slots.process import MAX_HOLDERS, MAX_SLOT_LIMIT, MAX_TOKEN_BYTES
from slotkeeper.slots.processes import MAX_CANCELLATIONS
from slotkeeper.slots.protocol import ALWAYS_FIT, Candidate, Granted, Registration, Slots
from slotkeeper.slots.request import MAX_TOKEN_CHARACTERS, PRIORITIES
from slotkeeper_cli.write_units import item_bytes
from tests.support.boundary import Calls
from tests.unit.conftest import FULL, NOW, Account, delivery

LONGEST = "t" * MAX_TOKEN_CHARACTERS
LARGEST_ITEM = 400 * 1024  # DynamoDB guide, "Quotas in Amazon DynamoDB"
CONCURRENT = 4  # requests that may have read the item before another one added its token: one of each message group
A_TIME, A_NUMBER = {"N": "1789999999"}, {"N": str(MAX_SLOT_LIMIT - 1)}
TARGET = {"S": "j" * 255}


def largest_item() -> dict[str, Any]:
    """Each attribute of protocol.py, of its largest size. A character of UTF-8 has up to four bytes."""
    names = [f"{number:080}" for number in range(MAX_HOLDERS)]
    holder = {"state": {"S": "RUNNING"}, "since": A_TIME, "weight": A_NUMBER, "job": TARGET, "quiet_since": A_TIME}
    holders: dict[str, Any] = {name: {"M": holder | {"redriven": {"BOOL": True}}} for name in names}
    tokens = MAX_TOKEN_BYTES + CONCURRENT * MAX_TOKEN_CHARACTERS
    for name in names[: tokens // 600]:  # the shorter a token, the more names of its attribute
        holders[name] = {"M": holders[name]["M"] | {"task_token": {"S": "t" * 600}}}
    registration = {
        "sequence": {"S": "0" * 40},
        "receives": {"N": "1000"},
        "receipt_handle": {"S": "h" * 1024},  # SQS API Reference, ReceiveMessage
        "priority": {"S": "normal"},
        "weight": A_NUMBER,
        "since": A_TIME,
        "execution": {"S": "e" * 80},
        "request_id": {"S": "\U0001f600" * 128},
        "token_bytes": {"N": str(MAX_TOKEN_CHARACTERS)},
        "hidden_until": A_TIME,
        "start_before": A_TIME,
    }
    lost = {name: registration[name] for name in ("request_id", "priority")}
    lost |= dict.fromkeys(("since", "noted", "reported"), A_TIME)
    cancellation = {"since": A_TIME, "by": {"S": "\U0001f600" * 64}}
    return {
        "process_name": {"S": "p" * 47},
        "slot_limit": A_NUMBER,
        "slots_in_use": A_NUMBER,
        "holders": {"M": holders},
        "waiting": {"M": {priority: {"M": registration} for priority in PRIORITIES}},
        "cancelled": {"M": {name: {"M": cancellation} for name in names[:MAX_CANCELLATIONS]}},
        # Each message group may have added one after the same read.
        "lost": {"M": {name: {"M": lost} for name in names[: MAX_LOST + len(PRIORITIES)]}},
        "paused": {"BOOL": True},
        "target": TARGET,
        "run_settings": {"M": {"timeout_minutes": A_NUMBER, "settle_seconds": A_NUMBER}},
        "queue_url": {"S": "u" * 200},
        "default_weight": A_NUMBER,
    }


def test_the_largest_item_fits_into_dynamodb() -> None:
    """With a KB for attributes that a later version may add."""
    assert item_bytes(largest_item()) < LARGEST_ITEM - 1024


def _with_tokens(account: Account, tokens: int, size: int) -> None:
    account.processes.set_limit("p", MAX_HOLDERS)
    entry = {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}, "task_token": {"S": "t" * size}}}
    account.write("holders", {"M": {f"p-{number}": entry for number in range(tokens)}})


def _caller(name: str = "p-late", token: str = LONGEST) -> Candidate:
    return Candidate("p", name, delivery=delivery({}), task_token=token)


def test_a_caller_is_admitted_in_one_call_however_long_its_token_is(account: Account) -> None:
    calls = Calls(account.dynamodb)
    assert account.slots.reserve(_caller(), NOW) == Granted()
    assert calls.made == ["UpdateItem"]


@pytest.mark.parametrize("reads_first", [True, False])
@pytest.mark.parametrize(("token", "outcome"), [("t" * 1001, FULL), ("t" * 1000, Granted())])
def test_a_caller_is_refused_whose_token_does_not_fit(
    account: Account, token: str, outcome: Any, reads_first: bool
) -> None:
    _with_tokens(account, 130, 1000)
    account.slots.reserve(_caller("p-filler", "t" * (MAX_TOKEN_BYTES - 131_000)), NOW)
    slots = Slots(account.dynamodb, account.slot_table, large={"p"} if reads_first else ())
    assert slots.reserve(_caller(token=token), NOW) == outcome


def test_a_caller_that_waits_for_space_is_woken_when_a_token_is_gone(account: Account) -> None:
    _with_tokens(account, ALWAYS_FIT, MAX_TOKEN_CHARACTERS)
    seen = account.item()
    assert account.slots.wait(_caller(), seen, NOW) is Registration.REGISTERED
    assert account.item().to_wake is None
    assert account.slots.release("p", "p-0", seen.holders["p-0"].raw)
    assert account.item().to_wake is not None


def test_a_caller_does_not_register_after_a_token_has_left(account: Account) -> None:
    _with_tokens(account, ALWAYS_FIT, MAX_TOKEN_CHARACTERS)
    seen = account.item()
    account.slots.release("p", "p-0", seen.holders["p-0"].raw)
    assert account.slots.wait(_caller(), seen, NOW) is Registration.RESERVE_AGAIN


def test_a_request_without_a_caller_is_admitted_in_one_call_next_to_the_most_tokens(account: Account) -> None:
    _with_tokens(account, ALWAYS_FIT, MAX_TOKEN_CHARACTERS)
    calls = Calls(account.dynamodb)
    assert account.slots.reserve(Candidate("p", "p-late", delivery=delivery({})), NOW) == Granted()
    assert calls.made == ["UpdateItem"]
