"""Which slots the janitor frees, and which it must not free."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from slotkeeper.slots.dead_holders import Verdict, judge
from slotkeeper.slots.executions import Execution
from slotkeeper.slots.process import Holder
from slotkeeper.slots.request import execution_name
from tests.simulation.account.boundary import passed_values, refuse
from tests.unit.conftest import CHECK_GAP, GRACE, NOW, Account
from tests.unit.janitor_scene import JanitorScene, http

LATER = NOW + GRACE + 1
DAY = 86400


def _holder(state: Any, since: float = NOW, quiet_since: int | None = None) -> Holder:
    return Holder(state, int(since), "job", quiet_since, {})


def _execution(status: Any, stopped_at: float | None = None) -> Execution:
    return Execution("p-1", status, stopped_at)


LEASE = Holder("LEASED", int(NOW), "", None, {}, until=int(NOW) + 60, code="c")


@pytest.mark.parametrize(
    ("holder", "execution", "now", "verdict"),
    [
        (_holder("RESERVED"), None, NOW + 10**7, Verdict.ALIVE),  # a dispatch starts it again, or drops it
        (_holder("RESERVED"), _execution("ABORTED", NOW), NOW + GRACE - 1, Verdict.ALIVE),
        (_holder("RESERVED"), _execution("ABORTED", NOW), NOW + GRACE, Verdict.CANCEL),
        (_holder("RESERVED"), _execution("RUNNING"), NOW + 10**7, Verdict.ALIVE),
        (_holder("RUNNING"), _execution("RUNNING"), NOW + 10**7, Verdict.ALIVE),
        (_holder("RUNNING"), _execution("PENDING_REDRIVE", NOW), NOW + 10**7, Verdict.ALIVE),
        (_holder("RUNNING"), _execution("ABORTED", NOW), NOW + GRACE - 1, Verdict.ALIVE),
        (_holder("RUNNING"), _execution("ABORTED", NOW), NOW + GRACE, Verdict.CHECK_WORK),
        (_holder("RUNNING"), _execution("SUCCEEDED", NOW), NOW + GRACE, Verdict.CHECK_WORK),
        (_holder("RUNNING"), None, NOW + 3600, Verdict.ALIVE),
        (_holder("RUNNING"), None, NOW + DAY, Verdict.CHECK_WORK),
        (LEASE, None, NOW + 10 * 86400, Verdict.ALIVE),
        (LEASE, _execution("ABORTED", NOW), NOW + 10 * 86400, Verdict.ALIVE),
    ],
)
def test_f9_age_alone_frees_no_slot(holder: Holder, execution: Execution | None, now: float, verdict: Verdict) -> None:
    assert judge(holder, execution, now, GRACE) == verdict


def test_the_reservation_of_a_closed_execution_is_freed_after_its_request_is_settled(scene: JanitorScene) -> None:
    scene.reserve()
    scene.abort()
    written = passed_values(scene.account.dynamodb, "UpdateItem", "TableName")
    assert scene.account.run_at(LATER).counts["SlotsReclaimed"] == 1
    assert written[:2] == [scene.account.request_table, scene.account.slot_table]
    assert (scene.account.item().slots_in_use, scene.account.states) == (0, {"order-1/1": "FAILED"})


def test_f18_an_aborted_workflow_is_settled_without_its_status_event(aborted: JanitorScene) -> None:
    first = aborted.account.run_at(LATER)
    second = aborted.account.run_at(LATER + CHECK_GAP)
    assert first.counts["SlotsReclaimed"] == 0
    assert (second.counts["RequestsSettled"], second.counts["SlotsReclaimed"]) == (1, 1)
    assert (aborted.account.item().slots_in_use, aborted.account.states) == (0, {"order-1/1": "FAILED"})
    assert aborted.account.rings == [{"process": "p"}]


def test_f2_one_check_is_not_enough(aborted: JanitorScene) -> None:
    """A StartJobRun that was sent before the abort shows later."""
    aborted.account.run_at(LATER)
    aborted.account.run_at(LATER + CHECK_GAP - 1)
    aborted.run("STARTING")
    aborted.account.run_at(LATER + CHECK_GAP)
    assert aborted.account.item().slots_in_use == 1
    aborted.run("STOPPED")
    aborted.account.run_at(LATER + 2 * CHECK_GAP)
    assert aborted.account.item().slots_in_use == 1
    aborted.account.run_at(LATER + 3 * CHECK_GAP)
    assert aborted.account.item().slots_in_use == 0


def test_a_deleted_job_runs_nothing(aborted: JanitorScene) -> None:
    del aborted.account.aws.jobs["job"]
    counts = aborted.account.run_at(LATER).counts
    aborted.account.run_at(LATER + CHECK_GAP)
    assert counts["GlueJobsMissing"] == 1
    assert aborted.account.item().slots_in_use == 0


def test_a_started_row_that_cannot_be_settled_keeps_back_no_other(account: Account) -> None:
    """None of them holds a slot any more: the slot table was restored."""
    account.processes.set_limit("p", 3)
    names = [account.queue(each) for each in "abc"]
    account.dispatch()
    for name in names:
        account.free(name)
        account.finish(name)
        account.set_row(name, open={"N": "1"})  # before its execution, which has the machine's time
    account.set_row(names[0], attempt={"S": "1"})
    refuse(account.stepfunctions, "DescribeExecution", "AccessDeniedException")
    counts = account.run_at(LATER).counts
    states = [account.raw_row(name)["state"]["S"] for name in names]
    assert (sorted(states), states[0], counts["JanitorErrors"]) == (["FAILED", "STARTED", "STARTED"], "STARTED", 2)


def test_a_holder_whose_execution_is_forgotten_is_reported_and_its_slot_freed(scene: JanitorScene) -> None:
    scene.account.queue("order-1")
    scene.account.hold(scene.execution, "RUNNING", job={"S": "job"})
    first = scene.account.run_at(NOW + DAY)
    scene.account.run_at(NOW + DAY + CHECK_GAP)
    assert first.counts["ExecutionsForgotten"] == 1
    assert scene.account.item().slots_in_use == 0
    assert scene.account.row(scene.execution).code == "ExecutionUnknown"


def test_a_run_without_a_start_does_not_end_the_search(aborted: JanitorScene) -> None:
    aborted.run("WAITING", started=0)
    aborted.account.run_at(LATER)
    assert aborted.stopped == ["jr_1"]


def test_the_gap_lies_between_the_checks_and_not_between_the_runs(aborted: JanitorScene) -> None:
    """A check takes time: the second must start a gap after the end of the first."""
    aborted.check_takes = CHECK_GAP + 5
    aborted.account.run_at(LATER)
    aborted.check_takes = 0
    aborted.account.run_at(aborted.account.now + CHECK_GAP - 1)
    assert aborted.account.item().slots_in_use == 1
    aborted.account.run_at(aborted.account.now + 1)
    assert aborted.account.item().slots_in_use == 0


def test_a_holder_that_cannot_be_checked_does_not_block_the_others(aborted: JanitorScene) -> None:
    account = aborted.account
    account.processes.set_limit("p", 2)
    account.queue("dead")
    account.dispatch()
    other = execution_name("p", "dead", 1)
    account.finish(other)
    aborted.run("RUNNING")
    aborted.stopping_is_denied = True
    counts = account.run_at(LATER).counts
    assert (counts["JanitorErrors"], counts["SlotsReclaimed"]) == (1, 1)
    assert list(account.item().holders) == [aborted.execution]


def test_the_list_of_executions_is_read_by_their_ends_up_to_a_time(account: Account) -> None:
    """Step Functions sorts it by end, the last first. An execution that was redriven may have started weeks ago."""
    ended = [listed("p-redriven", NOW - 30 * DAY, NOW - 10), listed("p-aborted", NOW - 60, NOW - 20)]
    pages: list[str] = []

    def answer(params: Any, **_: Any) -> Any:
        pages.append(json.loads(params["body"])["statusFilter"])
        old = listed("p-old", NOW, NOW - DAY - 1)
        return http(200), {"executions": [*ended * (pages[-1] == "ABORTED"), old], "nextToken": "more"}

    account.stepfunctions.meta.events.register("before-call.stepfunctions.ListExecutions", answer)
    names = [execution.name for execution in account.workflow.unsuccessful(NOW - DAY)]
    assert (names, pages) == (["p-redriven", "p-aborted"], ["FAILED", "TIMED_OUT", "ABORTED"])


def listed(name: str, started_at: float, stopped_at: float) -> dict[str, Any]:
    """An aborted execution as ListExecutions returns it."""
    times = {"startDate": datetime.fromtimestamp(started_at, UTC), "stopDate": datetime.fromtimestamp(stopped_at, UTC)}
    return {"name": name, "status": "ABORTED", **times}
