"""The status event of a workflow that closed without success: settled at once, its slot free after two checks."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from slotkeeper.slots.closed_executions import AFTER_FAILURE_SECONDS, WHILE_STOPPING_SECONDS
from tests.support.boundary import Killed, kill_after, kill_before, refuse
from tests.unit.conftest import GRACE, LOOK_GAP, NOW, Account
from tests.unit.janitor_scene import JanitorScene
from tests.unit.work_account import invocation, record

SOON = NOW + 1
FIRST = NOW + LOOK_GAP
SECOND = FIRST + LOOK_GAP


@pytest.fixture
def world(account: Account) -> JanitorScene:
    return JanitorScene(account)


def _receives(world: JanitorScene, *moments: float) -> list[int | None]:
    return [world.account.event_at(world.execution, moment)[0] for moment in moments]


def _kept(world: JanitorScene) -> list[dict[str, Any]]:
    return [message["MessageAttributes"] for message in world.account.messages(world.account.failed_url)]


def test_s4_two_checks_after_the_close_free_the_slot_and_wake_the_next(world: JanitorScene) -> None:
    world.start()
    world.account.slots.wait("p", "p-waits", world.account.send())
    world.abort()
    assert _receives(world, SOON, FIRST, SECOND) == [LOOK_GAP, LOOK_GAP + 1, None]
    assert world.account.item().slots_in_use == 0
    assert len(world.account.messages(world.account.queue_url)) == 1


def test_s1b_a_check_within_a_gap_after_the_close_does_not_count(world: JanitorScene) -> None:
    """A StartJobRun that was under way at the abort may land, and show, only then."""
    world.start()
    world.abort()
    _receives(world, SOON, FIRST - 1)
    assert world.account.item().holders[world.execution].quiet_since is None


def test_s1b_the_gap_lies_between_the_two_checks(world: JanitorScene) -> None:
    world.start()
    world.abort()
    world.look_takes = 5
    assert _receives(world, FIRST) == [LOOK_GAP + 1]
    world.look_takes = 0
    assert _receives(world, SECOND + 4) == [2]
    assert world.account.item().slots_in_use == 1
    assert _receives(world, SECOND + 5) == [None]


def test_s1b_a_check_before_a_redrive_does_not_count(world: JanitorScene) -> None:
    """Aborted, checked once, redriven and aborted again: what ran meanwhile shows only at checks after the last end."""
    world.start()
    world.abort()
    _receives(world, FIRST)
    world.abort_again(at=SECOND)
    assert _receives(world, SECOND + LOOK_GAP) == [LOOK_GAP + 1]
    assert world.account.item().slots_in_use == 1


def test_f2_a_run_that_outlives_its_workflow_is_stopped_and_keeps_the_slot_until_its_end(world: JanitorScene) -> None:
    world.start()
    world.abort()
    world.run("RUNNING")
    assert _receives(world, SOON, FIRST, SECOND) == [WHILE_STOPPING_SECONDS] * 3
    assert set(world.stopped) == {"jr_1"}
    assert world.account.item().slots_in_use == 1
    world.run("STOPPED")
    assert _receives(world, SECOND + 10, SECOND + 10 + LOOK_GAP) == [LOOK_GAP + 1, None]


def test_a_reservation_of_a_closed_execution_is_cancelled_immediately(world: JanitorScene) -> None:
    world.account.slots.reserve("p", world.execution, NOW)
    world.start_execution()
    world.abort()
    assert _receives(world, SOON) == [None]
    assert world.account.item().slots_in_use == 0


def test_the_kept_request_has_the_final_state_of_its_glue_run(world: JanitorScene) -> None:
    """Aborted right after its run had succeeded: whoever sends it again runs the work a second time."""
    world.start()
    world.abort()
    world.run("SUCCEEDED")
    _receives(world, SOON)
    assert _kept(world)[0]["glue_run_state"]["StringValue"] == "SUCCEEDED"


def test_a_request_is_kept_although_glue_does_not_answer(world: JanitorScene) -> None:
    world.start()
    world.abort()
    refuse(world.account.glue, "GetJobRuns", "InternalServiceException")
    assert _receives(world, SOON) == [AFTER_FAILURE_SECONDS]
    assert "glue_run_state" not in _kept(world)[0]


def test_s3_an_execution_that_was_redriven_and_aborted_again_is_kept_again(world: JanitorScene) -> None:
    """Its letter may have been discarded as done with: an execution ends as often as it is redriven."""
    world.start()
    world.abort()
    _receives(world, SOON, FIRST, SECOND)
    world.abort_again(at=SECOND + 60)
    world.account.event_at(world.execution, SECOND + 61, redrives=1)
    assert len(_kept(world)) == 2


def test_s3_the_janitor_keeps_a_second_end_too(world: JanitorScene) -> None:
    world.start()
    world.abort()
    world.account.round_at(NOW + GRACE)
    world.abort_again(at=NOW + 500)
    for seconds in (0, 60):
        world.account.round_at(NOW + 500 + GRACE + seconds)
    assert len(_kept(world)) == 2


def test_an_event_delivered_twice_keeps_the_request_once(world: JanitorScene) -> None:
    """The second copy comes while the first is between its claim and its note."""
    world.start()
    world.abort()
    kill_before(world.account.sqs, "SendMessage")
    with pytest.raises(Killed):
        _receives(world, SOON)
    assert _receives(world, SOON + 1) == [LOOK_GAP - 1]
    assert _kept(world) == []
    _receives(world, SOON + 60)
    assert len(_kept(world)) == 1


def test_a_function_that_dies_after_keeping_keeps_at_most_once_more(world: JanitorScene) -> None:
    world.start()
    world.abort()
    kill_after(world.account.sqs, "SendMessage")
    with pytest.raises(Killed):
        _receives(world, SOON)
    for seconds in range(60, 600, 60):
        world.account.round_at(SOON + GRACE + seconds)
    assert len(_kept(world)) == 2


def test_an_event_of_a_freed_slot_makes_no_call_of_step_functions(world: JanitorScene) -> None:
    world.start()
    world.abort()
    _receives(world, SOON)
    world.account.round_at(NOW + GRACE)
    world.account.round_at(NOW + GRACE + LOOK_GAP)
    refuse(world.account.stepfunctions, "DescribeExecution", "ThrottlingException", times=9)
    assert _receives(world, NOW + GRACE + 60) == [None]


def test_a_request_is_kept_although_its_process_is_malformed(world: JanitorScene) -> None:
    world.start()
    world.abort()
    item = {"process_name": {"S": "p"}, "slot_limit": {"S": "3"}}
    world.account.dynamodb.put_item(TableName=world.account.slot_table, Item=item)
    assert _receives(world, SOON) == [None]
    assert len(_kept(world)) == 1


def test_a_job_with_very_many_runs_is_left_to_the_janitor(world: JanitorScene) -> None:
    world.start()
    world.abort()
    world.run("SUCCEEDED")
    world.endless = True
    assert _receives(world, FIRST) == [AFTER_FAILURE_SECONDS]
    assert world.account.item().holders[world.execution].quiet_since is None


# -------------------------------------------------------------------------------------------------------- the handler


def test_an_event_whose_slot_is_not_free_yet_returns_after_the_gap(
    world: JanitorScene, load: Callable[[str], ModuleType]
) -> None:
    world.start()
    world.abort()
    module = load("execution_closed")
    asked: list[int] = []
    module._sqs.meta.events.register(
        "provide-client-params.sqs.ChangeMessageVisibility",
        lambda params, **_: asked.append(params["VisibilityTimeout"]),
    )
    event = record({"detail": {"name": world.execution, "redriveCount": 0}})
    event["receiptHandle"] = world.account.status_event(world.execution)
    assert module.handler({"Records": [event]}, invocation()) == {"batchItemFailures": [{"itemIdentifier": "m1"}]}
    assert asked == [LOOK_GAP + 1]


def test_a_malformed_event_returns_and_is_counted(
    account: Account, load: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    module = load("execution_closed")
    event = record("no event")
    event["receiptHandle"] = account.status_event("p-1")
    assert module.handler({"Records": [event]}, invocation())["batchItemFailures"]
    assert '"JanitorErrors":[1.0]' in capsys.readouterr().out
