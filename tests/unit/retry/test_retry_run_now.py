"""An operator runs a retry now, with concurrent workers and schedules and interruptions; and lists waiting retries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.retry.ledger import FAILED, SUCCEEDED, WAITING, AlreadySettled, MalformedRow
from slotkeeper.retry.message import instant
from slotkeeper.retry.operations import (
    MessageOutOfReach,
    NoRetryWaiting,
    PayloadMismatch,
    RetryOperations,
    RetrySentNow,
)
from tests.support.boundary import Killed, refuse
from tests.unit.waiting_retries import MADE, SOON, fail_once, killed, meanwhile, put_long_row
from tests.unit.worker_harness import NOW, WorkerHarness


def test_run_now_makes_the_attempt_immediately_and_once(workplace: WorkerHarness, operator: RetryOperations) -> None:
    fail_once(workplace)
    assert operator.run_now("r") == RetrySentNow(2)
    assert workplace.row()["next_attempt_at"] == instant(NOW + 60)
    assert workplace.schedules() == []
    workplace.live()
    assert workplace.effects == [("r", 2)]
    assert workplace.now == NOW + 60


def test_r2_run_now_and_the_schedule_together_have_one_effect(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
    """The schedule fires between the operator's read and message."""
    fail_once(workplace)
    schedule = workplace.schedules()[0]
    workplace.strike(3, "before", lambda: meanwhile(workplace, lambda: workplace.fire(schedule)))
    operator.run_now("r")
    assert len(workplace.queue) == 2
    outcomes = [workplace.deliver(queued) for queued in list(workplace.queue)]
    assert workplace.effects == [("r", 2)]
    assert outcomes[1] == AlreadySettled(SUCCEEDED, 2)


def test_run_now_does_not_repeat_an_attempt_that_starts_meanwhile(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
    fail_once(workplace)
    queued = workplace.fire(workplace.schedules()[0])
    workplace.strike(1, "after", lambda: meanwhile(workplace, lambda: workplace.deliver(queued)))
    assert isinstance(operator.run_now("r", {"fails": 1}), NoRetryWaiting)
    assert workplace.queue == []


@pytest.mark.parametrize("call", [1, 2, 3, 4, 5])  # interrupted after this call
def test_r1_run_now_interrupted_at_any_call_loses_nothing(
    workplace: WorkerHarness, operator: RetryOperations, call: int
) -> None:
    """Read, read the schedule, decide, send, delete."""
    fail_once(workplace)
    workplace.strike(call, "after", killed)
    with pytest.raises(Killed):
        operator.run_now("r")
    workplace.live()
    assert workplace.effects == [("r", 2)]
    assert workplace.schedules() == []


def test_a_retry_delayed_by_the_queue_needs_its_payload_to_run_now(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
    fail_once(workplace, SOON)
    assert operator.run_now("r") == MessageOutOfReach(2, NOW + 300)
    assert workplace.row()["next_attempt_at"] == instant(NOW + 300)


def test_a_retry_delayed_by_the_queue_runs_now_with_its_payload_and_its_own_message_is_dropped(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
    fail_once(workplace, SOON)
    assert operator.run_now("r", {"fails": 1}) == RetrySentNow(2)
    workplace.live()
    assert workplace.effects == [("r", 2)]
    assert workplace.performed == [("r", 1), ("r", 2)]


def test_r1_a_retry_with_a_lost_message_is_recovered_with_its_payload(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
    """Scheduler could not deliver the message, and its dead-letter queue does not have it."""
    fail_once(workplace)
    workplace.wait(86_400)
    workplace.queue.remove(workplace.fire(workplace.schedules()[0]))
    assert operator.run_now("r") == MessageOutOfReach(2, NOW + 3000)
    assert operator.run_now("r", {"fails": 1}) == RetrySentNow(2)
    workplace.live()
    assert workplace.effects == [("r", 2)]


@pytest.mark.parametrize("payload", [{"fails": 2}, {}])
def test_another_payload_is_refused(
    workplace: WorkerHarness, operator: RetryOperations, payload: dict[str, Any]
) -> None:
    fail_once(workplace, SOON)
    with pytest.raises(PayloadMismatch, match="differs from the payload of the 1 earlier attempts of request 'r'"):
        operator.run_now("r", payload)
    assert workplace.row()["next_attempt_at"] == instant(NOW + 300)


def test_a_recovered_message_has_one_time_for_each_attempt(workplace: WorkerHarness, operator: RetryOperations) -> None:
    kept = put_long_row(workplace)
    assert operator.run_now("r", {"fails": 99}) == RetrySentNow(MADE + 1)
    assert json.loads(workplace.queue[0].body)["retries"] == [*kept[:1] * 4, *kept[1:]]


def test_a_scan_returns_waiting_retries_and_reports_malformed_rows(
    workplace: WorkerHarness, operator: RetryOperations
) -> None:
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
    assert operator.schedule_name("r", row) == workplace.schedules()[0]["Name"]


def test_a_scheduler_error_is_raised(workplace: WorkerHarness, operator: RetryOperations) -> None:
    fail_once(workplace)
    refuse(workplace.scheduler, "GetSchedule", "AccessDeniedException")
    with pytest.raises(workplace.scheduler.exceptions.ClientError, match="AccessDenied"):
        operator.run_now("r")
    assert workplace.row()["status"] == WAITING
