"""Claims and takeovers in the request ledger, and the results of refused claims."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.retry import ledger as protocol
from slotkeeper.retry.ledger import (
    DEAD_LETTERED,
    FAILED,
    RUNNING,
    SUCCEEDED,
    WAITING,
    AlreadySettled,
    Claim,
    Claimed,
    InProgress,
    MalformedRow,
    RequestIdReused,
)
from slotkeeper.retry.message import instant
from tests.simulation.account.boundary import refuse
from tests.unit.ledger_rows import FIRST, ME, OTHER, OTHER_PAYLOAD, PLAN, SECOND, claim, claimed, end
from tests.unit.worker_harness import LEASE, NOW, WorkerHarness

HISTORY = ({"attempt": 1, "at": instant(NOW), "error": "failed"},)


def test_the_first_claim_creates_the_row(workplace: WorkerHarness) -> None:
    assert claim(workplace) == Claimed(ME, NOW)
    assert workplace.row() == {
        "request_id": "r",
        "status": RUNNING,
        "attempts": "1",
        "claim": ME,
        "lease_until": str(int(NOW + LEASE)),
        "first_attempt_at": instant(NOW),
        "last_attempt_at": instant(NOW),
        "payload_hash": FIRST.payload_hash,
        "expires_at": str(int(NOW) + protocol.RETENTION_SECONDS),
    }


def test_a_request_without_a_row_starts_at_the_attempt_of_its_message(workplace: WorkerHarness) -> None:
    claim(workplace, SECOND, now=NOW + 60)
    row = workplace.row()
    assert (row["attempts"], row["first_attempt_at"]) == ("2", instant(NOW))
    assert row["last_attempt_at"] == instant(NOW + 60)


@pytest.mark.parametrize("status", [FAILED, WAITING, DEAD_LETTERED])
def test_the_next_attempt_can_be_claimed_after_any_outcome(workplace: WorkerHarness, status: str) -> None:
    end(workplace, status)
    got = claimed(workplace, SECOND, "next", NOW + 60)
    assert (got.token, got.started_at, got.died, got.plan) == ("next", NOW + 60, False, None)
    row = workplace.row()
    assert (row["status"], row["attempts"], row["claim"]) == (RUNNING, "2", "next")
    assert row["first_attempt_at"] == instant(NOW)
    assert row["expires_at"] == str(int(NOW) + 60 + protocol.RETENTION_SECONDS)
    assert not {"plan", "next_attempt_at", "result"} & row.keys()


def test_the_next_attempt_is_not_claimed_during_the_lease_of_the_one_before(workplace: WorkerHarness) -> None:
    """No worker sends such a message, but a manually written `retries` does."""
    claim(workplace)
    before = workplace.row()
    assert {claim(workplace, SECOND, "next", now) for now in (NOW + 1, NOW + LEASE)} == {InProgress(NOW + LEASE)}
    assert workplace.row() == before
    assert claimed(workplace, SECOND, "next", NOW + LEASE + 1).token == "next"


def test_f24_a_succeeded_request_cannot_be_claimed(workplace: WorkerHarness) -> None:
    end(workplace, SUCCEEDED)
    assert claim(workplace, FIRST, "later") == AlreadySettled(SUCCEEDED, 1)
    assert claim(workplace, SECOND, "later") == AlreadySettled(SUCCEEDED, 1)
    assert claim(workplace, SECOND.after(NOW), "later", NOW + 10**6) == AlreadySettled(SUCCEEDED, 1)


@pytest.mark.parametrize(
    ("status", "now", "got"),
    [
        (RUNNING, NOW + LEASE - 0.001, InProgress(NOW + LEASE)),
        (FAILED, NOW + LEASE - 0.001, InProgress(NOW + LEASE)),
        (FAILED, NOW + LEASE, Claimed(OTHER, NOW, plan=PLAN, history=HISTORY)),
        (WAITING, NOW + 10**6, AlreadySettled(WAITING, 1)),
        (DEAD_LETTERED, NOW + 10**6, AlreadySettled(DEAD_LETTERED, 1)),
    ],
)
def test_another_delivery_of_an_attempt_waits_for_its_lease_continues_it_or_finds_it_settled(
    workplace: WorkerHarness, status: str, now: float, got: Claim
) -> None:
    end(workplace, status)
    assert claim(workplace, FIRST, OTHER, now) == got


@pytest.mark.parametrize("meanwhile", ["takeover", "record", "settle"])
def test_a_lease_that_changed_since_the_read_is_not_taken_over(workplace: WorkerHarness, meanwhile: str) -> None:
    """Another worker takes over, or the owner records or settles, between the read and the takeover."""
    mine = claimed(workplace)

    def change() -> None:
        with workplace.unnoted():
            if meanwhile == "takeover":
                claim(workplace, FIRST, "quicker", NOW + LEASE)
            elif meanwhile == "record":
                workplace.ledger.record(FIRST, mine, PLAN, "failed")
            else:
                workplace.ledger.settle_succeeded(FIRST, mine, "{}")

    workplace.strike(2, "before", change)
    got = claim(workplace, FIRST, "slower", NOW + LEASE)
    if meanwhile == "record":  # the claim stays the owner's, so the takeover returns the plan and no death
        assert isinstance(got, Claimed)
        assert (got.died, got.plan) == (False, PLAN)
    else:
        assert isinstance(got, InProgress)


@pytest.mark.parametrize("status", [RUNNING, FAILED, WAITING, DEAD_LETTERED, SUCCEEDED])
def test_another_payload_under_the_same_id_is_reported(workplace: WorkerHarness, status: str) -> None:
    end(workplace, status)
    assert claim(workplace, OTHER_PAYLOAD, OTHER, NOW + 10**6) == RequestIdReused(status, 1)
    if status == SUCCEEDED:
        assert claim(workplace, OTHER_PAYLOAD.after(NOW), OTHER) == RequestIdReused(SUCCEEDED, 1)


def test_a_dead_lettered_request_with_a_corrected_payload_is_the_next_attempt(workplace: WorkerHarness) -> None:
    end(workplace, DEAD_LETTERED)
    corrected = OTHER_PAYLOAD.after(NOW)
    claimed(workplace, corrected, "next")
    assert workplace.row()["payload_hash"] == corrected.payload_hash


def test_the_item_is_read_if_a_failed_condition_does_not_return_it(workplace: WorkerHarness) -> None:
    end(workplace, SUCCEEDED)
    refuse(workplace.dynamodb, "UpdateItem", "ConditionalCheckFailedException")
    assert claim(workplace, FIRST, "later") == AlreadySettled(SUCCEEDED, 1)
    assert workplace.calls[-1] == "GetItem"


COMPLETE: dict[str, Any] = {
    "status": {"S": RUNNING},
    "attempts": {"N": "1"},
    "claim": {"S": OTHER},
    "lease_until": {"N": "1"},
    "last_attempt_at": {"S": instant(NOW)},
    "payload_hash": {"S": FIRST.payload_hash},
}


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("status", None),
        ("status", {"S": "PAUSED"}),
        ("status", {"S": FAILED}),  # without a plan
        ("attempts", None),
        ("attempts", {"N": "1.5"}),
        ("claim", None),
        ("claim", {"N": "7"}),
        ("lease_until", {"S": "soon"}),
        ("last_attempt_at", {"S": "yesterday"}),
        ("payload_hash", None),
        ("plan", {"S": "not JSON"}),
        ("plan", {"S": "[1]"}),
        ("history", {"S": "none"}),
        ("history", {"L": [{"S": "failed"}]}),
        ("next_attempt_at", {"S": "tomorrow"}),
        ("last_error", {"N": "7"}),
    ],
)
def test_a_malformed_row_is_reported_and_not_changed(workplace: WorkerHarness, attribute: str, value: Any) -> None:
    row = {**COMPLETE, attribute: value}
    workplace.put_row(**{name: value for name, value in row.items() if value})
    named = "plan" if value == {"S": FAILED} else attribute
    before = workplace.row()
    with pytest.raises(MalformedRow, match=rf"item 'r' of the request ledger: {named}(\.0)? is missing or not"):
        claim(workplace, FIRST, ME, 0)
    assert workplace.row() == before
