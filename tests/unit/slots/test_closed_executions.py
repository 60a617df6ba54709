"""The status event of a failed workflow: its request is kept immediately, its slot is freed after two checks."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.slots.closed_executions import AFTER_FAILURE_SECONDS, WHILE_STOPPING_SECONDS
from slotkeeper.slots.protocol import Candidate
from tests.support.boundary import Killed, kill_before, passed_values, refuse
from tests.unit.conftest import CHECK_GAP, GRACE, NOW, Account, Load
from tests.unit.janitor_scene import JanitorScene
from tests.unit.work_account import invocation, record

SOON = NOW + 1
FIRST = NOW + CHECK_GAP
SECOND = FIRST + CHECK_GAP


def _receives(scene: JanitorScene, *moments: float) -> list[int | None]:
    return [scene.account.event_at(scene.execution, moment)[0] for moment in moments]


def _kept(scene: JanitorScene) -> list[dict[str, Any]]:
    return [message["MessageAttributes"] for message in scene.account.messages(scene.account.failed_url)]


def test_s4_two_checks_after_the_close_free_the_slot_and_wake_the_next(scene: JanitorScene) -> None:
    scene.start()
    scene.account.slots.wait(Candidate("p", "p-waits", delivery=scene.account.send()), scene.account.item(), NOW)
    scene.abort()
    assert _receives(scene, SOON, FIRST, SECOND) == [CHECK_GAP, CHECK_GAP + 1, None]
    assert scene.account.item().slots_in_use == 0
    assert len(scene.account.messages(scene.account.queue_url)) == 1


def test_s1b_a_check_within_a_gap_after_the_close_does_not_count(aborted: JanitorScene) -> None:
    """A StartJobRun that was sent before the abort may show within the gap."""
    _receives(aborted, SOON, FIRST - 1)
    assert aborted.account.item().holders[aborted.execution].quiet_since is None


def test_s1b_a_check_before_a_redrive_does_not_count(aborted: JanitorScene) -> None:
    """A run that the redrive started shows only in checks after the last end."""
    _receives(aborted, FIRST)
    aborted.abort_again(at=SECOND)
    assert _receives(aborted, SECOND + CHECK_GAP) == [CHECK_GAP + 1]
    assert aborted.account.item().slots_in_use == 1


def test_f2_a_run_that_outlives_its_workflow_is_stopped_and_keeps_the_slot_until_its_end(aborted: JanitorScene) -> None:
    aborted.run("RUNNING")
    assert _receives(aborted, SOON, FIRST, SECOND) == [WHILE_STOPPING_SECONDS] * 3
    assert set(aborted.stopped) == {"jr_1"}
    assert aborted.account.item().slots_in_use == 1
    aborted.run("STOPPED")
    assert _receives(aborted, SECOND + 10, SECOND + 10 + CHECK_GAP) == [CHECK_GAP + 1, None]


def test_a_reservation_of_a_closed_execution_is_cancelled_immediately(scene: JanitorScene) -> None:
    scene.account.slots.reserve(Candidate("p", scene.execution), NOW)
    scene.start_execution()
    scene.abort()
    assert _receives(scene, SOON) == [None]
    assert scene.account.item().slots_in_use == 0


def test_the_kept_request_has_the_final_state_of_its_glue_run(aborted: JanitorScene) -> None:
    """Its run had succeeded before the abort: sending it again would run the work twice."""
    aborted.run("SUCCEEDED")
    _receives(aborted, SOON)
    assert _kept(aborted)[0]["glue_run_state"]["StringValue"] == "SUCCEEDED"


def test_a_request_is_kept_although_glue_does_not_answer(aborted: JanitorScene) -> None:
    refuse(aborted.account.glue, "GetJobRuns", "InternalServiceException")
    assert _receives(aborted, SOON) == [AFTER_FAILURE_SECONDS]
    assert "glue_run_state" not in _kept(aborted)[0]


def test_s3_an_execution_that_was_redriven_and_aborted_again_is_kept_again(aborted: JanitorScene) -> None:
    """Each redrive ends again, and an operator may have deleted the first message."""
    _receives(aborted, SOON, FIRST, SECOND)
    aborted.abort_again(at=SECOND + 60)
    aborted.account.event_at(aborted.execution, SECOND + 61, redrives=1)
    assert len(_kept(aborted)) == 2


def test_an_event_delivered_twice_keeps_the_request_once(aborted: JanitorScene) -> None:
    """The second delivery arrives after the first has claimed the request and before it has recorded the outcome."""
    kill_before(aborted.account.sqs, "SendMessage")
    with pytest.raises(Killed):
        _receives(aborted, SOON)
    assert _receives(aborted, SOON + 1) == [CHECK_GAP - 1]
    assert _kept(aborted) == []
    _receives(aborted, SOON + 60)
    assert len(_kept(aborted)) == 1


def test_an_event_of_a_freed_slot_makes_no_call_of_step_functions(aborted: JanitorScene) -> None:
    _receives(aborted, SOON)
    aborted.account.run_at(NOW + GRACE)
    aborted.account.run_at(NOW + GRACE + CHECK_GAP)
    refuse(aborted.account.stepfunctions, "DescribeExecution", "ThrottlingException", times=9)
    assert _receives(aborted, NOW + GRACE + 60) == [None]


def test_a_job_with_very_many_runs_is_left_to_the_janitor(aborted: JanitorScene) -> None:
    aborted.run("SUCCEEDED")
    aborted.endless = True
    assert _receives(aborted, FIRST) == [AFTER_FAILURE_SECONDS]
    assert aborted.account.item().holders[aborted.execution].quiet_since is None


# -------------------------------------------------------------------------------------------------------- the handler


def test_an_event_whose_slot_is_not_free_yet_returns_after_the_gap(scene: JanitorScene, load: Load) -> None:
    scene.start()
    scene.abort()
    module = load("execution_closed")
    asked = passed_values(module._sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    event = record({"detail": {"name": scene.execution, "redriveCount": 0}})
    event["receiptHandle"] = scene.account.status_event(scene.execution)
    assert module.handler({"Records": [event]}, invocation()) == {"batchItemFailures": [{"itemIdentifier": "m1"}]}
    assert asked == [CHECK_GAP + 1]


def test_a_malformed_event_returns_and_is_counted(
    account: Account, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load("execution_closed")
    event = record("no event")
    event["receiptHandle"] = account.status_event("p-1")
    assert module.handler({"Records": [event]}, invocation())["batchItemFailures"]
    assert '"JanitorErrors":[1.0]' in capsys.readouterr().out
