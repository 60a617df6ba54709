"""The writes of an attempt's owner to its row, and their refusal for every other worker."""

from __future__ import annotations

import json

import pytest

from slotkeeper.retry.ledger import (
    DEAD_LETTERED,
    FAILED,
    MAX_ERROR_CHARACTERS,
    MAX_HISTORY_ENTRIES,
    SUCCEEDED,
    WAITING,
    Claimed,
    ClaimLost,
)
from slotkeeper.retry.message import instant
from tests.unit.ledger_rows import FIRST, ME, OTHER, PLAN, SECOND, claim, claimed, end
from tests.unit.worker_harness import LEASE, NOW, WorkerHarness


def test_a_failed_attempt_is_recorded_with_its_plan(workplace: WorkerHarness) -> None:
    history = workplace.ledger.record(FIRST, claimed(workplace), PLAN, "it failed")
    assert history == ({"attempt": 1, "at": instant(NOW), "error": "it failed"},)
    row = workplace.row()
    assert (row["status"], row["last_error"]) == (FAILED, "it failed")
    assert row["plan"] == '{"when": 1800000060.0, "counted": true}'
    assert len(row["history"]) == 1


def test_a_settled_attempt_has_neither_plan_nor_lease(workplace: WorkerHarness) -> None:
    end(workplace, WAITING)
    row = workplace.row()
    assert (row["status"], row["next_attempt_at"]) == (WAITING, instant(NOW + 60))
    assert not {"plan", "lease_until"} & row.keys()
    end(workplace, DEAD_LETTERED, SECOND)
    row = workplace.row()
    assert row["status"] == DEAD_LETTERED
    assert not {"plan", "lease_until", "next_attempt_at"} & row.keys()
    end(workplace, SUCCEEDED, SECOND.after(NOW))
    row = workplace.row()
    assert (row["status"], row["result"]) == (SUCCEEDED, "{}")
    assert not {"plan", "lease_until"} & row.keys()


def test_a_deferred_attempt_can_be_claimed_immediately_and_failed_once(workplace: WorkerHarness) -> None:
    failure = {"types": ["Retryable"], "reason": "it failed"}
    workplace.ledger.defer(FIRST, claimed(workplace), failure, "it failed")
    assert workplace.row()["last_error"] == "it failed"
    got = claimed(workplace, FIRST, OTHER, NOW + 1)
    assert (got.started_at, got.died, got.plan) == (NOW, False, failure)
    history = workplace.ledger.record(FIRST, got, PLAN, "it failed")
    assert history == got.history == ({"attempt": 1, "at": instant(NOW), "error": "it failed"},)
    assert json.loads(workplace.row()["plan"]) == PLAN


STEPS = {
    "defer": lambda ledger, message, mine: ledger.defer(message, mine, PLAN, "failed"),
    "record": lambda ledger, message, mine: ledger.record(message, mine, PLAN, "failed"),
    "settle_waiting": lambda ledger, message, mine: ledger.settle_waiting(message, mine, NOW + 60),
    "settle_dead_lettered": lambda ledger, message, mine: ledger.settle_dead_lettered(message, mine),
    "settle_succeeded": lambda ledger, message, mine: ledger.settle_succeeded(message, mine, "{}"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_whose_claim_was_taken_over_changes_nothing(workplace: WorkerHarness, step: str) -> None:
    mine = claimed(workplace)
    claim(workplace, FIRST, OTHER, NOW + LEASE)
    before = workplace.row()
    with pytest.raises(ClaimLost, match="has taken over attempt 1 of 'r': its row is RUNNING, attempt 1") as lost:
        STEPS[step](workplace.ledger, FIRST, mine)
    assert lost.type is ClaimLost  # another worker owns the attempt, which is not yet settled
    assert workplace.row() == before


@pytest.mark.parametrize("status", [WAITING, DEAD_LETTERED, SUCCEEDED])
@pytest.mark.parametrize("step", STEPS)
def test_a_settled_row_does_not_change(workplace: WorkerHarness, status: str, step: str) -> None:
    end(workplace, status)
    mine = Claimed(ME, NOW)
    before = workplace.row()
    if step == f"settle_{status.lower()}":
        STEPS[step](workplace.ledger, FIRST, mine)  # repeats its own step after a lost answer
    else:
        with pytest.raises(ClaimLost):
            STEPS[step](workplace.ledger, FIRST, mine)
    assert workplace.row() == before


def test_the_history_keeps_the_first_failed_attempt_and_the_last_ones(workplace: WorkerHarness) -> None:
    message, history = FIRST, ()
    for _ in range(MAX_HISTORY_ENTRIES + 5):
        mine = claimed(workplace, message)
        history = workplace.ledger.record(message, mine, PLAN, f"error {message.attempt}")
        message = message.after(NOW)
    assert [entry["attempt"] for entry in history] == [1, *range(7, MAX_HISTORY_ENTRIES + 6)]
    assert claimed(workplace, message).history == history


def test_a_failed_attempt_has_the_name_of_its_error_type(workplace: WorkerHarness) -> None:
    workplace.ledger.record(FIRST, claimed(workplace), PLAN, "HTTP 503", "Unavailable" * 10)
    assert [entry["type"] for entry in claimed(workplace, SECOND, OTHER).history] == [("Unavailable" * 10)[:64]]


def test_a_row_has_the_downstream_of_its_latest_attempt(workplace: WorkerHarness) -> None:
    for message, downstream in ((FIRST, "crm"), (SECOND, "billing")):
        assert isinstance(
            workplace.ledger.claim(message, ME, NOW + message.attempt * 10 * LEASE, LEASE, downstream), Claimed
        )
        row = workplace.ledger.read("r")
        assert row is not None
        assert row.downstream == downstream


def test_a_long_error_is_cut(workplace: WorkerHarness) -> None:
    history = workplace.ledger.record(FIRST, claimed(workplace), PLAN, "x" * 1000)
    assert history[0]["error"] == workplace.row()["last_error"] == "x" * MAX_ERROR_CHARACTERS


def test_a_waiting_attempt_is_made_due_once(workplace: WorkerHarness) -> None:
    end(workplace, WAITING)
    seen = workplace.ledger.read("r")
    assert seen is not None
    assert workplace.ledger.make_due("r", seen, NOW + 5)
    assert workplace.row()["next_attempt_at"] == instant(NOW + 5)
    claim(workplace, SECOND, "next", NOW + 6)
    assert not workplace.ledger.make_due("r", seen, NOW + 7)
