"""An operator cancels a waiting retry or runs it now; the simulation searches every order of the calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.retry.ledger import DEAD_LETTERED, FAILED, RETENTION_SECONDS, SUCCEEDED, WAITING, MalformedRow
from slotkeeper.retry.message import instant
from slotkeeper.retry.operations import (
    MessageOutOfReach,
    NoRetryWaiting,
    PayloadMismatch,
    RetryCancelled,
    RetrySentNow,
    is_cancelled,
)
from tests.simulation.account.boundary import Killed, refuse
from tests.unit.waiting_retries import MADE, SOON, fail_once, killed, meanwhile, put_long_row
from tests.unit.worker_harness import NOW, WorkerHarness


def test_r4_a_cancelled_attempt_with_a_schedule_is_dead_lettered_immediately_with_its_history(
    workplace: WorkerHarness,
) -> None:
    fail_once(workplace)
    assert workplace.operator.cancel("r", "no longer wanted") == RetryCancelled(2, sent=True)
    assert workplace.schedules() == []
    workplace.live()
    queued = workplace.dead_letter
    assert (queued.texts["code"], workplace.row()["status"]) == ("Cancelled", DEAD_LETTERED)
    assert queued.texts["reason"] == "attempt 2 was cancelled before it started: no longer wanted"
    history = [
        {"attempt": 1, "at": instant(NOW), "error": "not now", "type": "Retryable"},
        {"attempt": 2, "at": instant(NOW + 60), "error": "Cancelled: no longer wanted", "type": "Cancelled"},
    ]
    assert json.loads(queued.texts["history"]) == history
    assert json.loads(queued.body)["retries"] == [entry["at"] for entry in history]
    assert workplace.performed == [("r", 1)]


@pytest.mark.parametrize("payload", [None, {"poison": "no such thing"}, {}])
def test_a_request_without_a_waiting_attempt_is_not_changed(
    workplace: WorkerHarness, payload: dict[str, Any] | None
) -> None:
    if payload is not None:
        workplace.deliver(workplace.send(**payload))
    before = workplace.row()
    outcomes = workplace.operator.cancel("r", "why"), workplace.operator.run_now("r")
    assert outcomes == (NoRetryWaiting(workplace.ledger.read("r")),) * 2
    assert workplace.row() == before


def test_a_cancelled_attempt_that_the_queue_delays_is_dead_lettered_when_it_is_received(
    workplace: WorkerHarness,
) -> None:
    fail_once(workplace, SOON)
    assert workplace.operator.cancel("r", "no longer wanted") == RetryCancelled(2, sent=False, due=NOW + 300)
    assert is_cancelled(workplace.ledger.read("r"))  # type: ignore[arg-type]
    workplace.live()
    assert workplace.dead_letter.texts["code"] == "Cancelled"
    assert workplace.performed == [("r", 1)]


def test_a_cancelled_row_has_the_reason_and_is_kept_from_its_cancellation_on(workplace: WorkerHarness) -> None:
    fail_once(workplace, SOON)
    workplace.now += 60
    workplace.operator.cancel("r", "no longer wanted")
    row = workplace.row()
    assert "no longer wanted" in row["last_error"]
    assert row["expires_at"] == str(int(workplace.now) + RETENTION_SECONDS)


def test_a_claim_before_a_concurrent_cancel_wins(workplace: WorkerHarness) -> None:
    """The worker claims the attempt and does the work between the operator's read and write."""
    fail_once(workplace)
    queued = workplace.fire(workplace.schedules()[0])
    workplace.strike(2, "before", lambda: meanwhile(workplace, lambda: workplace.deliver(queued)))
    outcome = workplace.operator.cancel("r", "too late")
    assert isinstance(outcome, NoRetryWaiting)
    assert outcome.row is not None
    assert outcome.row.status == SUCCEEDED
    assert workplace.effects == [("r", 2)]


def test_r4_a_cancelled_retry_with_a_lost_message_is_dead_lettered_with_the_payload_given(
    workplace: WorkerHarness,
) -> None:
    fail_once(workplace)
    workplace.wait(86_400)
    workplace.queue.remove(workplace.fire(workplace.schedules()[0]))
    assert workplace.operator.cancel("r", "no longer wanted") == RetryCancelled(2, sent=False, due=NOW + 3000)
    before = workplace.row()
    with pytest.raises(PayloadMismatch):
        workplace.operator.cancel("r", "no longer wanted", {"fails": 2})
    assert workplace.row() == before
    assert workplace.operator.cancel("r", "no longer wanted", {"fails": 1}) == RetryCancelled(2, sent=True)
    workplace.live()
    queued = workplace.dead_letter
    assert [entry["at"] for entry in json.loads(queued.texts["history"])] == json.loads(queued.body)["retries"]
    assert not {"plan", "next_attempt_at"} & workplace.row().keys()


@pytest.mark.parametrize("call", [1, 2, 3, 4, 5])  # interrupted after this call
def test_r1_run_now_interrupted_at_any_call_loses_nothing(workplace: WorkerHarness, call: int) -> None:
    """Read, read the schedule, decide, send, delete."""
    fail_once(workplace)
    workplace.strike(call, "after", killed)
    with pytest.raises(Killed):
        workplace.operator.run_now("r")
    workplace.live()
    assert workplace.effects == [("r", 2)]
    assert workplace.schedules() == []


def test_r1_a_retry_with_a_lost_message_is_recovered_with_its_payload(workplace: WorkerHarness) -> None:
    """Scheduler could not deliver the message, and its dead-letter queue does not have it."""
    fail_once(workplace)
    workplace.wait(86_400)
    workplace.queue.remove(workplace.fire(workplace.schedules()[0]))
    assert workplace.operator.run_now("r") == MessageOutOfReach(2, NOW + 3000)
    assert workplace.operator.run_now("r", {"fails": 1}) == RetrySentNow(2)
    workplace.live()
    assert workplace.effects == [("r", 2)]


@pytest.mark.parametrize("payload", [{"fails": 2}, {}])
def test_another_payload_is_refused(workplace: WorkerHarness, payload: dict[str, Any]) -> None:
    fail_once(workplace, SOON)
    with pytest.raises(PayloadMismatch, match="differs from the payload of the 1 earlier attempts of request 'r'"):
        workplace.operator.run_now("r", payload)
    assert workplace.row()["next_attempt_at"] == instant(NOW + 300)


def test_a_recovered_message_has_one_time_for_each_attempt(workplace: WorkerHarness) -> None:
    kept = put_long_row(workplace)
    assert workplace.operator.run_now("r", {"fails": 99}) == RetrySentNow(MADE + 1)
    assert json.loads(workplace.queue[0].body)["retries"] == [*kept[:1] * 4, *kept[1:]]


def test_a_scan_returns_waiting_retries_and_reports_malformed_rows(workplace: WorkerHarness) -> None:
    fail_once(workplace)
    workplace.deliver(workplace.send("done"))
    workplace.put_row("odd", status={"S": WAITING})
    pages: list[int] = []
    rows = dict(workplace.ledger.rows({WAITING, FAILED}, pages.append))
    assert rows.keys() == {"r", "odd"}
    assert isinstance(rows["odd"], MalformedRow)
    assert sum(pages) == 3
    row = rows["r"]
    assert not isinstance(row, MalformedRow)
    assert (row.next_attempt_at, row.last_error) == (NOW + 3000, "not now")
    assert workplace.operator.schedule_name("r", row) == workplace.schedules()[0]["Name"]


def test_a_scheduler_error_is_raised(workplace: WorkerHarness) -> None:
    fail_once(workplace)
    refuse(workplace.scheduler, "GetSchedule", "AccessDeniedException")
    with pytest.raises(workplace.scheduler.exceptions.ClientError, match="AccessDenied"):
        workplace.operator.run_now("r")
    assert workplace.row()["status"] == WAITING
