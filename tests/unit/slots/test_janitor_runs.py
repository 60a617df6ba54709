"""The janitor: what it may take back, and what it must not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from slotkeeper.slots.dead_holders import Verdict, judge
from slotkeeper.slots.executions import Execution
from slotkeeper.slots.process import Holder
from slotkeeper.slots.settlement_table import HORIZON_SECONDS
from tests.support.boundary import refuse
from tests.unit.conftest import GRACE, LOOK_GAP, NOW, Account
from tests.unit.janitor_scene import JanitorScene, http

LATER = NOW + GRACE + 1


def _holder(state: Any, since: float = NOW, quiet_since: int | None = None) -> Holder:
    return Holder(state, int(since), "job", quiet_since, {})


def _execution(status: Any, stopped_at: float | None = None) -> Execution:
    return Execution("p-1", status, stopped_at)


@pytest.mark.parametrize(
    ("holder", "execution", "now", "verdict"),
    [
        (_holder("RESERVED"), None, NOW + GRACE - 1, Verdict.ALIVE),
        (_holder("RESERVED"), None, NOW + GRACE, Verdict.CANCEL),
        (_holder("RESERVED"), _execution("ABORTED", NOW), NOW + GRACE, Verdict.CANCEL),
        (_holder("RESERVED"), _execution("RUNNING"), NOW + 10**7, Verdict.ALIVE),
        (_holder("RUNNING"), _execution("RUNNING"), NOW + 10**7, Verdict.ALIVE),
        (_holder("RUNNING"), _execution("PENDING_REDRIVE", NOW), NOW + 10**7, Verdict.ALIVE),
        (_holder("RUNNING"), _execution("ABORTED", NOW), NOW + GRACE - 1, Verdict.ALIVE),
        (_holder("RUNNING"), _execution("ABORTED", NOW), NOW + GRACE, Verdict.CHECK_GLUE),
        (_holder("RUNNING"), _execution("SUCCEEDED", NOW), NOW + GRACE, Verdict.CHECK_GLUE),
        (_holder("RUNNING"), None, NOW + 3600, Verdict.ALIVE),
        (_holder("RUNNING"), None, NOW + 86400, Verdict.CHECK_GLUE),
    ],
)
def test_f9_age_alone_frees_no_slot(holder: Holder, execution: Execution | None, now: float, verdict: Verdict) -> None:
    assert judge(holder, execution, now, GRACE) == verdict


@pytest.fixture
def scene(account: Account) -> JanitorScene:
    return JanitorScene(account)


def test_f15_a_reservation_without_a_workflow_is_cancelled(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
    assert account.run_at(NOW + GRACE - 1).counts == {}
    assert account.run_at(LATER).counts["SlotsReclaimed"] == 1
    assert account.item().slots_in_use == 0


def test_f18_an_aborted_workflow_is_settled_without_its_status_event(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    first = scene.account.run_at(LATER)
    second = scene.account.run_at(LATER + LOOK_GAP)
    assert (first.counts["RequestsKept"], second.counts["SlotsReclaimed"]) == (1, 1)
    assert scene.account.item().slots_in_use == 0


def test_f2_a_slot_stays_taken_while_its_glue_run_lives(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    scene.run("RUNNING")
    for n in range(5):
        scene.account.run_at(LATER + n * LOOK_GAP)
    assert scene.account.item().slots_in_use == 1
    assert set(scene.stopped) == {"jr_1"}


def test_f2_one_check_is_not_enough(scene: JanitorScene) -> None:
    """A StartJobRun that was on its way when the workflow was aborted shows only later."""
    scene.start()
    scene.abort()
    scene.account.run_at(LATER)
    scene.account.run_at(LATER + LOOK_GAP - 1)
    scene.run("STARTING")
    scene.account.run_at(LATER + LOOK_GAP)
    assert scene.account.item().slots_in_use == 1
    scene.run("STOPPED")
    scene.account.run_at(LATER + 2 * LOOK_GAP)
    assert scene.account.item().slots_in_use == 1
    scene.account.run_at(LATER + 3 * LOOK_GAP)
    assert scene.account.item().slots_in_use == 0


def test_a_run_of_another_execution_is_not_stopped(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    scene.run("RUNNING")
    scene.runs[0]["Arguments"] = {"--slotkeeper-execution": "p-somebody-else"}
    scene.account.run_at(LATER)
    scene.account.run_at(LATER + LOOK_GAP)
    assert scene.stopped == []
    assert scene.account.item().slots_in_use == 0


def test_a_deleted_job_runs_nothing(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    scene.job_exists = False
    counts = scene.account.run_at(LATER).counts
    scene.account.run_at(LATER + LOOK_GAP)
    assert counts["GlueJobsMissing"] == 1
    assert scene.account.item().slots_in_use == 0


def test_f16_the_request_of_an_aborted_workflow_is_kept(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    scene.account.event_at(scene.execution, NOW + 1)
    (kept,) = scene.account.messages(scene.account.failed_url)
    assert json.loads(kept["Body"])["request_id"] == "order-1"
    assert kept["MessageAttributes"]["execution_name"]["StringValue"] == scene.execution
    assert kept["MessageAttributes"]["error"]["StringValue"] == "ABORTED"


def test_a_request_is_kept_once_by_event_and_runs(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    scene.account.event_at(scene.execution, NOW + 1)
    for n in range(3):
        scene.account.run_at(LATER + n * LOOK_GAP)
    assert len(scene.account.messages(scene.account.failed_url)) == 1


def test_f34_a_settled_execution_expires_after_three_weeks(scene: JanitorScene) -> None:
    """TTL is in seconds; later than the horizon, since who is forgotten before it has its request kept again."""
    scene.start()
    scene.abort()
    scene.account.event_at(scene.execution, NOW + 1)
    (entry,) = scene.account.dynamodb.scan(TableName=scene.account.settled_table)["Items"]
    assert NOW + HORIZON_SECONDS < int(entry["expires_at"]["N"]) <= NOW + 1 + 21 * 86400


def test_a_request_that_could_not_be_kept_is_kept_in_the_next_run(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    refuse(scene.account.sqs, "SendMessage", "ServiceUnavailable")
    assert scene.account.run_at(LATER).counts["JanitorErrors"] == 1
    scene.account.run_at(LATER + 60)
    assert len(scene.account.messages(scene.account.failed_url)) == 1


@pytest.mark.parametrize(("error", "kept"), [("RequestFailed", 0), ("RequestReturned", 0), ("RequestNotKept", 1)])
def test_a_request_is_kept_unless_its_workflow_settled_it(scene: JanitorScene, error: str, kept: int) -> None:
    scene.start()
    scene.abort()
    scene.account.stepfunctions.meta.events.register(
        "after-call.stepfunctions.DescribeExecution", lambda parsed, **_: parsed.update(status="FAILED", error=error)
    )
    scene.account.run_at(LATER)
    assert len(scene.account.messages(scene.account.failed_url)) == kept


def test_executions_before_the_horizon_are_ignored(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    scene.account.run_at(NOW + HORIZON_SECONDS + 1)
    assert scene.account.messages(scene.account.failed_url) == []


def test_the_event_of_a_workflow_that_runs_again_does_nothing(scene: JanitorScene) -> None:
    scene.start()
    scene.run("RUNNING")
    again, report = scene.account.event_at(scene.execution, NOW + 1)
    assert (again, report.counts) == (None, {})
    assert scene.stopped == []


def test_every_run_wakes_a_request_that_waits_although_a_slot_is_free(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
    waiting = account.send()
    account.slots.wait("p", "p-waits", waiting)
    account.slots.cancel("p", "p-1")  # and its wake is lost
    assert account.run_at(NOW).counts["WaitingWoken"] == 1
    assert len(account.messages(account.queue_url)) == 1


def test_a_drifted_counter_is_repaired_and_reported(account: Account) -> None:
    account.slots.reserve("p", "p-1", NOW)
    account.dynamodb.update_item(
        TableName=account.slot_table,
        Key={"process_name": {"S": "p"}},
        UpdateExpression="SET slots_in_use = :n",
        ExpressionAttributeValues={":n": {"N": "5"}},
    )
    assert account.run_at(NOW).counts["CounterDrift"] == 1
    assert account.item().slots_in_use == 1


def test_a_malformed_process_does_not_block_the_others(account: Account) -> None:
    account.dynamodb.put_item(
        TableName=account.slot_table, Item={"process_name": {"S": "broken"}, "slot_limit": {"S": "3"}}
    )
    account.slots.reserve("p", "p-1", NOW)
    counts = account.run_at(LATER).counts
    assert (counts["MalformedProcesses"], counts["SlotsReclaimed"]) == (1, 1)


def test_a_holder_whose_execution_is_forgotten_is_reported_and_its_slot_freed(scene: JanitorScene) -> None:
    scene.account.slots.reserve("p", scene.execution, NOW)
    scene.confirm()
    day = 86400
    first = scene.account.run_at(NOW + day)
    scene.account.run_at(NOW + day + LOOK_GAP)
    assert first.counts["ExecutionsForgotten"] == 1
    assert scene.account.item().slots_in_use == 0


def test_a_run_beyond_the_first_page_is_found(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    scene.run("RUNNING")
    scene.older_runs, scene.runs = scene.runs, [{**scene.runs[0], "Id": "jr_2", "Arguments": {}}]
    scene.account.run_at(LATER)
    assert scene.stopped == ["jr_1"]


def test_a_run_without_a_start_does_not_end_the_search(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    scene.run("WAITING")
    del scene.runs[0]["StartedOn"]
    scene.account.run_at(LATER)
    assert scene.stopped == ["jr_1"]


def test_the_gap_lies_between_the_checks_and_not_between_the_runs(scene: JanitorScene) -> None:
    """A check lasts: the second must begin a gap after the end of the first."""
    scene.start()
    scene.abort()
    scene.check_takes = LOOK_GAP + 5
    scene.account.run_at(LATER)
    scene.check_takes = 0
    scene.account.run_at(scene.account.now + LOOK_GAP - 1)
    assert scene.account.item().slots_in_use == 1
    scene.account.run_at(scene.account.now + 1)
    assert scene.account.item().slots_in_use == 0


def test_a_holder_that_cannot_be_checked_does_not_block_the_others(scene: JanitorScene) -> None:
    scene.account.processes.set_limit("p", 2)
    scene.start()
    scene.abort()
    scene.run("RUNNING")
    scene.stopping_is_denied = True
    scene.account.slots.reserve("p", "p-dead", NOW)
    scene.account.slots.wait("p", "p-waits", scene.account.send())
    counts = scene.account.run_at(LATER).counts
    assert (counts["JanitorErrors"], counts["SlotsReclaimed"], counts["WaitingWoken"]) == (1, 1, 1)


@pytest.mark.parametrize("operation", ["ListExecutions", "DescribeExecution"])
def test_waiting_requests_are_woken_although_step_functions_fails(account: Account, operation: str) -> None:
    account.slots.reserve("p", "p-1", NOW)
    account.slots.wait("p", "p-waits", account.send())
    account.slots.cancel("p", "p-1")
    refuse(account.stepfunctions, operation, "ThrottlingException", times=9)
    assert account.run_at(LATER).counts["WaitingWoken"] == 1


def test_slots_are_freed_without_the_settled_table(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    scene.account.dynamodb.delete_table(TableName=scene.account.settled_table)
    scene.account.run_at(LATER)
    counts = scene.account.run_at(LATER + LOOK_GAP).counts
    assert (counts["SlotsReclaimed"], counts["JanitorErrors"]) == (1, 1)


def test_a_recently_closed_execution_is_left_to_its_status_event(scene: JanitorScene) -> None:
    scene.start()
    scene.abort(at=NOW)
    scene.account.run_at(NOW + GRACE - 1)
    assert scene.account.messages(scene.account.failed_url) == []


def test_the_error_of_a_stop_command_is_not_taken_for_the_workflows(scene: JanitorScene) -> None:
    scene.start()
    scene.abort()
    scene.account.stepfunctions.meta.events.register(
        "after-call.stepfunctions.DescribeExecution", lambda parsed, **_: parsed.update(error="RequestFailed")
    )
    scene.account.run_at(LATER)
    assert len(scene.account.messages(scene.account.failed_url)) == 1


def test_the_list_of_executions_is_read_up_to_the_horizon(account: Account) -> None:
    """Sorted by end, the last first."""
    pages: list[str] = []

    def answer(params: Any, **_: Any) -> Any:
        pages.append(json.loads(params["body"])["statusFilter"])
        return http(200), {"executions": [listed("p-old", NOW, NOW - HORIZON_SECONDS - 1)], "nextToken": "more"}

    account.stepfunctions.meta.events.register("before-call.stepfunctions.ListExecutions", answer)
    assert list(account.workflow.unsuccessful(NOW - HORIZON_SECONDS)) == []
    assert pages == ["FAILED", "TIMED_OUT", "ABORTED"]


def test_an_old_execution_that_was_redriven_hides_none_that_ended_before_it(account: Account) -> None:
    """It began weeks ago, was redriven, and ended last: it stands first in the list."""
    executions = [listed("p-redriven", NOW - 30 * 86400, NOW - 10), listed("p-aborted", NOW - 60, NOW - 20)]

    def answer(params: Any, **_: Any) -> Any:
        wanted = json.loads(params["body"])["statusFilter"]
        return http(200), {"executions": executions if wanted == "ABORTED" else []}

    account.stepfunctions.meta.events.register("before-call.stepfunctions.ListExecutions", answer)
    names = [execution.name for execution in account.workflow.unsuccessful(NOW - HORIZON_SECONDS)]
    assert names == ["p-redriven", "p-aborted"]


def listed(name: str, started_at: float, stopped_at: float) -> dict[str, Any]:
    """An aborted execution as ListExecutions tells it."""
    times = {"startDate": datetime.fromtimestamp(started_at, UTC), "stopDate": datetime.fromtimestamp(stopped_at, UTC)}
    return {"name": name, "status": "ABORTED", **times}


def test_a_reservation_renewed_since_it_was_read_is_not_cancelled(account: Account) -> None:
    """A run reads the table, another one takes the reservation back, and a redelivery reserves again."""
    account.slots.reserve("p", "p-1", NOW)
    answers = account.stepfunctions.meta.events

    def meanwhile(**_: Any) -> None:
        account.slots.cancel("p", "p-1")
        account.slots.reserve("p", "p-1", LATER - 10)

    answers.register("before-call.stepfunctions.DescribeExecution", meanwhile)
    assert "SlotsReclaimed" not in account.run_at(LATER).counts
    assert account.item().holders["p-1"].since == LATER - 10
