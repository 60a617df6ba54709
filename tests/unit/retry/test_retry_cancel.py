"""An operator cancels a waiting retry, with concurrent claims and with an interruption at every call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.retry.ledger import DEAD_LETTERED, RUNNING, SUCCEEDED
from slotkeeper.retry.message import instant
from slotkeeper.retry.operations import (
    NoRetryWaiting,
    PayloadMismatch,
    RetryCancelled,
    RetryOperations,
    is_cancelled,
)
from tests.support.boundary import Killed
from tests.unit.waiting_retries import (
    MADE,
    SOON,
    attribute_text,
    fail_once,
    killed,
    meanwhile,
    only_dead_letter,
    put_long_row,
)
from tests.unit.worker_harness import NOW, WorkerHarness


def test_a_cancelled_attempt_with_a_schedule_is_dead_lettered_immediately(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
    fail_once(workplace)
    assert operator.cancel("r", "no longer wanted") == RetryCancelled(2, sent=True)
    assert workplace.schedules() == []
    workplace.live()
    queued = only_dead_letter(workplace)
    assert (attribute_text(queued, "code"), workplace.row()["status"]) == ("Cancelled", DEAD_LETTERED)
    assert attribute_text(queued, "reason") == "attempt 2 was cancelled before it started: no longer wanted"
    assert workplace.performed == [("r", 1)]


def test_r4_the_dead_letter_message_of_a_cancelled_attempt_has_the_whole_history(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
    fail_once(workplace)
    operator.cancel("r", "no longer wanted")
    workplace.live()
    queued = only_dead_letter(workplace)
    history = [
        {"attempt": 1, "at": instant(NOW), "error": "not now", "type": "Retryable"},
        {"attempt": 2, "at": instant(NOW + 60), "error": "Cancelled: no longer wanted", "type": "Cancelled"},
    ]
    assert json.loads(attribute_text(queued, "history")) == history
    assert json.loads(queued.body)["retries"] == [entry["at"] for entry in history]
    assert attribute_text(queued, "retry_count") == "2"


def test_a_cancelled_attempt_that_the_queue_delays_is_dead_lettered_when_it_is_received(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
    fail_once(workplace, SOON)
    assert operator.cancel("r", "no longer wanted") == RetryCancelled(2, sent=False, due=NOW + 300)
    assert is_cancelled(workplace.ledger.read("r"))  # type: ignore[arg-type]
    workplace.live()
    assert attribute_text(only_dead_letter(workplace), "code") == "Cancelled"
    assert workplace.performed == [("r", 1)]


def test_a_worker_with_a_slow_clock_carries_out_a_cancel(workplace: WorkerHarness, operator: RetryOperations) -> None:
    """With a lease that ends only now, the worker would leave the message for another twelve minutes."""
    fail_once(workplace, SOON)
    operator.cancel("r", "no longer wanted")
    workplace.now -= 3600
    workplace.queue[0].visible_at = workplace.now
    workplace.deliver(workplace.queue[0])
    assert attribute_text(only_dead_letter(workplace), "code") == "Cancelled"


def test_a_cancelled_request_that_is_redriven_has_one_more_attempt(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
    fail_once(workplace)
    operator.cancel("r", "too early")
    workplace.live()
    workplace.redrive(only_dead_letter(workplace))
    workplace.live()
    assert workplace.effects == [("r", 3)]
    assert workplace.row()["status"] == SUCCEEDED


def test_an_attempt_that_a_worker_has_claimed_is_not_cancelled(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
    fail_once(workplace)
    workplace.fire(workplace.schedules()[0])
    outcomes: list[Any] = []
    # The worker has claimed the attempt and is about to do the work.
    workplace.strike(
        2, "before", lambda: outcomes.append(meanwhile(workplace, lambda: operator.cancel("r", "too late")))
    )
    workplace.live()
    assert isinstance(outcomes[0], NoRetryWaiting)
    assert (outcomes[0].row.status, outcomes[0].row.attempts) == (RUNNING, 2)
    assert (workplace.effects, workplace.dead_letters) == ([("r", 2)], [])


def test_a_claim_before_a_concurrent_cancel_wins(workplace: WorkerHarness, operator: RetryOperations) -> None:
    """The worker claims the attempt and does the work between the operator's read and write."""
    fail_once(workplace)
    queued = workplace.fire(workplace.schedules()[0])
    workplace.strike(2, "before", lambda: meanwhile(workplace, lambda: workplace.deliver(queued)))
    outcome = operator.cancel("r", "too late")
    assert isinstance(outcome, NoRetryWaiting)
    assert outcome.row is not None
    assert outcome.row.status == SUCCEEDED
    assert workplace.effects == [("r", 2)]


def test_a_cancel_before_a_concurrent_claim_wins(workplace: WorkerHarness, operator: RetryOperations) -> None:
    fail_once(workplace)
    queued = workplace.fire(workplace.schedules()[0])
    workplace.strike(1, "before", lambda: meanwhile(workplace, lambda: operator.cancel("r", "in time")))
    workplace.deliver(queued)
    assert workplace.effects == []
    assert attribute_text(only_dead_letter(workplace), "code") == "Cancelled"


@pytest.mark.parametrize("call", [1, 2, 3, 4, 5])  # interrupted after this call
def test_r1_a_cancel_interrupted_at_any_call_loses_nothing_and_can_be_repeated(
    workplace: WorkerHarness, operator: RetryOperations, call: int
) -> None:
    """Read, decide, read the schedule, send, delete."""
    fail_once(workplace)
    workplace.strike(call, "after", killed)
    with pytest.raises(Killed):
        operator.cancel("r", "no longer wanted")
    outcome = operator.cancel("r", "no longer wanted")
    assert isinstance(outcome, RetryCancelled)
    assert outcome.sent == (call != 5)
    workplace.live()
    assert {attribute_text(dead_letter, "code") for dead_letter in workplace.dead_letters} == {"Cancelled"}
    assert (workplace.performed, workplace.schedules()) == ([("r", 1)], [])
    assert len(json.loads(attribute_text(workplace.dead_letters[0], "history"))) == 2


@pytest.mark.parametrize("call", [2, 3, 4])
def test_r1_an_interrupted_cancel_is_carried_out_when_its_message_is_received(
    workplace: WorkerHarness, operator: RetryOperations, call: int
) -> None:
    fail_once(workplace)
    workplace.strike(call, "after", killed)
    with pytest.raises(Killed):
        operator.cancel("r", "no longer wanted")
    workplace.live()
    assert attribute_text(only_dead_letter(workplace), "code") == "Cancelled"
    assert workplace.performed == [("r", 1)]


def test_two_concurrent_cancels_cancel_once(workplace: WorkerHarness, operator: RetryOperations) -> None:
    fail_once(workplace)
    workplace.strike(2, "before", lambda: meanwhile(workplace, lambda: operator.cancel("r", "I was first")))
    assert operator.cancel("r", "no longer wanted") == RetryCancelled(2, sent=False, due=NOW + 3000)
    workplace.live()
    assert (
        attribute_text(only_dead_letter(workplace), "reason")
        == "attempt 2 was cancelled before it started: I was first"
    )


def test_a_long_history_keeps_the_first_attempt_and_the_last_ones(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
    put_long_row(workplace)
    operator.cancel("r", "it never ends")
    row = workplace.ledger.read("r")
    assert row is not None
    assert [entry["attempt"] for entry in row.history] == [1, *range(6, MADE + 2)]


def test_r4_a_cancelled_retry_with_a_lost_message_is_dead_lettered_with_the_payload_given(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
    fail_once(workplace)
    workplace.wait(86_400)
    workplace.queue.remove(workplace.fire(workplace.schedules()[0]))
    assert operator.cancel("r", "no longer wanted") == RetryCancelled(2, sent=False, due=NOW + 3000)
    before = workplace.row()
    with pytest.raises(PayloadMismatch):
        operator.cancel("r", "no longer wanted", {"fails": 2})
    assert workplace.row() == before
    assert operator.cancel("r", "no longer wanted", {"fails": 1}) == RetryCancelled(2, sent=True)
    workplace.live()
    queued = only_dead_letter(workplace)
    assert [entry["at"] for entry in json.loads(attribute_text(queued, "history"))] == json.loads(queued.body)[
        "retries"
    ]
    assert not {"plan", "next_attempt_at"} & workplace.row().keys()


@pytest.mark.parametrize("payload", [{"poison": "no such thing"}, {}], ids=["dead-lettered", "succeeded"])
def test_a_settled_request_is_not_cancelled(
    workplace: WorkerHarness, operator: RetryOperations, payload: dict[str, Any]
) -> None:
    workplace.deliver(workplace.send(**payload))
    before = workplace.row()
    outcome = operator.cancel("r", "too late")
    assert isinstance(outcome, NoRetryWaiting)
    assert workplace.row() == before


@pytest.mark.parametrize("step", ["cancel", "run_now"])
def test_a_request_without_attempts_has_no_waiting_retry(operator: RetryOperations, step: str) -> None:
    assert (operator.cancel("r", "why") if step == "cancel" else operator.run_now("r")) == NoRetryWaiting(None)
