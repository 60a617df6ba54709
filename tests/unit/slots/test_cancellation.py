"""A request that an operator cancels while it is queued never starts, and is dead-lettered."""

from __future__ import annotations

import json

import pytest

from slotkeeper.slots.admission import Admitted, DeadLettered
from slotkeeper.slots.process import KEEP_SECONDS
from slotkeeper.slots.processes import MAX_CANCELLATIONS, CancelOutcome, Operations
from slotkeeper.slots.protocol import Cancelled, Candidate, Granted
from slotkeeper.slots.request import Request, execution_name
from tests.unit.conftest import NOW, Account, delivery

REQUEST = {"process": "p", "request_id": "order-1"}
EXECUTION = execution_name("p", "order-1", 1)


@pytest.fixture
def operations(account: Account) -> Operations:
    return Operations(account.processes, account.slots, account.queue)


def test_a_cancelled_request_is_refused_although_a_slot_is_free(account: Account, operations: Operations) -> None:
    assert operations.cancel_request("p", EXECUTION, NOW, "anna") is CancelOutcome.CANCELLED
    assert account.slots.reserve(Candidate("p", EXECUTION), NOW) == Cancelled(int(NOW), "anna")
    assert account.item().slots_in_use == 0
    assert account.slots.reserve(Candidate("p", "p-another"), NOW) == Granted()


@pytest.mark.parametrize("is_full", [False, True])
def test_its_message_is_dead_lettered_with_operator_and_time(
    account: Account, operations: Operations, is_full: bool
) -> None:
    if is_full:
        account.fill()
    operations.cancel_request("p", EXECUTION, NOW, "anna")
    outcome = account.starter.admit(delivery(REQUEST), NOW)
    assert outcome == DeadLettered("Cancelled", "cancelled by anna at 2027-01-15T08:00:00Z")
    (message,) = account.messages(account.dead_letter_url)
    assert message["MessageAttributes"]["code"]["StringValue"] == "Cancelled"
    assert json.loads(message["Body"]) == REQUEST
    assert account.executions() == []


def test_a_holder_cannot_be_cancelled(account: Account, operations: Operations) -> None:
    account.starter.admit(delivery(REQUEST), NOW)
    assert operations.cancel_request("p", EXECUTION, NOW) is CancelOutcome.HOLDS_SLOT
    assert account.item().cancelled == {}
    assert account.starter.admit(delivery(REQUEST, receives=2), NOW) == Admitted(Request("p", {}, "order-1"))


def test_cancellations_have_a_maximum(account: Account, operations: Operations) -> None:
    account.write("cancelled", {"M": {f"p-{n}": {"M": {"since": {"N": "1"}}} for n in range(MAX_CANCELLATIONS - 1)}})
    assert operations.cancel_request("p", "p-last", NOW) is CancelOutcome.CANCELLED
    assert operations.cancel_request("p", "p-more", NOW) is CancelOutcome.TOO_MANY
    assert operations.cancel_request("p", "p-0", NOW) is CancelOutcome.CANCELLED
    assert len(account.item().cancelled) == MAX_CANCELLATIONS


@pytest.mark.parametrize(("later", "left"), [(KEEP_SECONDS - 1, {EXECUTION}), (KEEP_SECONDS, set[str]())])
def test_the_janitor_drops_a_cancellation_after_the_queues_retention(
    account: Account, operations: Operations, later: int, left: set[str]
) -> None:
    operations.cancel_request("p", EXECUTION, NOW)
    account.run_at(NOW + later)
    assert account.item().cancelled.keys() == left


def test_a_renewed_cancellation_is_not_dropped(account: Account, operations: Operations) -> None:
    operations.cancel_request("p", EXECUTION, NOW)
    seen = account.item().cancelled[EXECUTION]
    operations.cancel_request("p", EXECUTION, NOW + 1)
    assert account.processes.cancellations.drop("p", EXECUTION, seen) is False
    assert account.item().cancelled.keys() == {EXECUTION}


def test_a_cancellation_in_an_unknown_process_is_refused(operations: Operations) -> None:
    with pytest.raises(LookupError, match="process 'unknown' does not exist"):
        operations.cancel_request("unknown", "unknown-1", NOW)


def test_a_cancellation_is_below_200_bytes(account: Account, operations: Operations) -> None:
    """The write units of each write grow with the item. The operator's name may be long."""
    name = "p" * 47 + "-" + "a" * 32
    operations.cancel_request("p", name, NOW, "anna" * 100)
    fields = account.raw_item()["cancelled"]["M"][name]["M"]
    assert len(name) + 3 + sum(len(key) + 1 + len(next(iter(value.values()))) for key, value in fields.items()) < 200
