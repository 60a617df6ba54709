"""Settlement: how a request has ended whose workflow could not record it; with a holder, and without one."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pytest
from botocore.exceptions import ClientError

from slotkeeper.slots.executions import FORGOTTEN_AFTER, Execution
from slotkeeper.slots.request import caller_of, execution_name
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.settlement import MAX_OUTPUT_CHARACTERS, WORK_HAS_SUCCEEDED, Failed, Succeeded, decide
from slotkeeper.slots.targets import execution_arn
from slotkeeper.slots.work import Work
from tests.unit.conftest import CHECK_GAP, GRACE, NOW, Account
from tests.unit.janitor_scene import TARGET, ChildScene, JanitorScene

TOKEN = "AAAA-the-token-of-the-caller"
LATER = NOW + GRACE + 1
CHILD = execution_arn(TARGET, "p-1")
RUN = json.dumps({"ErrorMessage": "no: month", "JobRunState": "FAILED"})


def _execution(status: Any, error: str = "", cause: str = "") -> Execution:
    return Execution("p-1", status, None if status == "RUNNING" else NOW, error=error, cause=cause)


def _child(status: Any = "SUCCEEDED", output: str = "") -> Work:
    return Work(CHILD, status, is_closed=True, stopped_at=NOW, output=output)


def _arn_of(work: Work) -> str:
    return json.dumps({"ExecutionArn": work.id})


ABORTED = Failed("ABORTED", "The workflow ended with status ABORTED")
UNKNOWN = Failed("ExecutionUnknown", "Step Functions does not know the execution, and no work of it is alive")
TOO_LARGE = f"{CHILD} is too large"
LONGEST = '"' + "x" * (MAX_OUTPUT_CHARACTERS - 6) + '"'  # a quotation mark has three characters when it is escaped


@pytest.mark.parametrize(
    ("execution", "outcome"),
    [
        (_execution("ABORTED"), ABORTED),
        (_execution("ABORTED", "ByOperator", "why"), Failed("ByOperator", "why")),
        (_execution("TIMED_OUT"), Failed("TIMED_OUT", "The workflow ended with status TIMED_OUT")),
        (_execution("FAILED", "RequestFailed", f"States.TaskFailed: {RUN}"), Failed("States.TaskFailed", RUN)),
        (_execution("FAILED", "WorkUnknown", "Error: why"), Failed("Error", "why")),
        (_execution("FAILED", "OutcomeNotRecorded", "Error: why"), Failed("Error", "why")),
        (_execution("FAILED", "OutcomeNotRecorded", "why"), Failed("OutcomeNotRecorded", "why")),
        (_execution("FAILED", "OutcomeNotRecorded", WORK_HAS_SUCCEEDED), Succeeded()),
        (_execution("FAILED", "ChildTooLarge", TOO_LARGE), Failed("ChildTooLarge", TOO_LARGE)),
        (_execution("FAILED", "States.Runtime", "Error: why"), Failed("States.Runtime", "Error: why")),
        # The caller of StopExecution can set any error and cause.
        (_execution("ABORTED", "RequestFailed", "Error: why"), Failed("RequestFailed", "Error: why")),
        (_execution("ABORTED", "WorkUnknown", WORK_HAS_SUCCEEDED), Failed("WorkUnknown", WORK_HAS_SUCCEEDED)),
        (_execution("SUCCEEDED"), Succeeded()),
        (None, UNKNOWN),
    ],
)
def test_without_work_that_has_succeeded_the_execution_decides(
    execution: Execution | None, outcome: Succeeded | Failed
) -> None:
    assert decide(execution, None) == outcome
    if outcome != Succeeded():
        assert decide(execution, _child("FAILED")) == outcome


@pytest.mark.parametrize("execution", [None, _execution("ABORTED"), _execution("FAILED", "WorkUnknown", "Error: why")])
@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("[7]", "[7]"),
        ("", _arn_of(_child())),
        (LONGEST, LONGEST),
        (LONGEST[:-1] + 'x"', _arn_of(_child())),
        ('"' + "é" * 40_000 + '"', _arn_of(_child())),
    ],
    ids=["known", "unknown", "longest", "too long", "too long when it is escaped"],
)
def test_work_that_has_succeeded_decides(execution: Execution | None, output: str, answer: str) -> None:
    assert decide(execution, _child(output=output)) == Succeeded(answer)


# With a slot


def _handle(scene: JanitorScene, by: str, times: int = 2) -> None:
    """Runs of the janitor, or deliveries of the status event, with the time between two checks."""
    for number in range(times):
        if by == "run":
            scene.account.run_at(LATER + number * CHECK_GAP)
        else:
            scene.account.event_at(scene.execution, LATER + number * CHECK_GAP)


@pytest.fixture
def child_scene(account: Account) -> ChildScene:
    scene = ChildScene(account, TOKEN)
    scene.start()
    scene.abort()
    return scene


def _unknown_work(scene: ChildScene) -> None:
    scene.child("FAILED")
    scene.close("FAILED", "WorkUnknown", "States.Timeout: it took too long")


NAME = execution_name("p", "order-1", 1, caller_of(TOKEN))
OWN_ARN = json.dumps({"ExecutionArn": execution_arn(TARGET, NAME)})


@pytest.mark.parametrize("by", ["run", "event"])
@pytest.mark.parametrize(
    ("ended", "state", "answer"),
    [
        (lambda scene: scene.child("SUCCEEDED", output="[7]"), "SUCCEEDED", ("[7]",)),
        (lambda scene: scene.child("SUCCEEDED"), "SUCCEEDED", (OWN_ARN,)),
        (lambda scene: scene.child("FAILED"), "FAILED", ("ABORTED", ABORTED.cause)),
        (lambda scene: scene.no_child(), "FAILED", ("ABORTED", ABORTED.cause)),
        (_unknown_work, "FAILED", ("States.Timeout", "it took too long")),
    ],
    ids=["succeeded", "without output", "failed", "absent", "unknown to its workflow"],
)
def test_a_holder_is_settled_by_its_work_freed_and_its_caller_answered_once(
    ended: Any, state: str, answer: tuple[str, ...], by: str, child_scene: ChildScene
) -> None:
    ended(child_scene)
    _handle(child_scene, by)
    account = child_scene.account
    assert (account.row(child_scene.execution).state, account.item().holders) == (state, {})
    assert account.answers == [(TOKEN, *answer)]
    assert [event["status"] for event in account.bus.published] == [state]
    assert len(account.notices) == (state == "FAILED")
    _handle(child_scene, "run")
    _handle(child_scene, "event")
    assert (len(account.answers), account.bus.calls) == (1, 1)


# Without a slot


def _settled(scene: JanitorScene, now: float = LATER) -> tuple[bool, RunReport]:
    scene.account.now, report = now, RunReport()
    return scene.account.settlement.settle_unheld(scene.account.row(scene.execution), report), report


@pytest.fixture
def released(aborted: JanitorScene) -> JanitorScene:
    """A started request whose execution has closed, and holds no slot."""
    aborted.account.free(aborted.execution)
    return aborted


@pytest.mark.parametrize(
    ("status", "state"), [("SUCCEEDED", "SUCCEEDED"), ("RUNNING", "STARTED"), ("ABORTED", "FAILED")]
)
def test_the_execution_decides_without_a_slot(status: str, state: str, released: JanitorScene) -> None:
    """The slot table was restored, or an operator has freed the slot. RUNNING: it was redriven."""
    released.close(status)
    is_settled, report = _settled(released)
    assert (is_settled, released.account.states) == (True, {"order-1/1": state})
    assert report.settled == [("p", released.execution)] * (state != "STARTED")
    assert report.counts["RequestsSettled"] == len(report.settled)


@pytest.mark.parametrize(("after", "state"), [(FORGOTTEN_AFTER - 1, "STARTED"), (FORGOTTEN_AFTER, "FAILED")])
def test_an_execution_that_is_not_known_may_be_known_later(after: float, state: str, account: Account) -> None:
    """DescribeExecution is eventually consistent. A day after its start it is forgotten."""
    scene = JanitorScene(account)
    account.queue("order-1")
    account.requests.mark_started("p", scene.execution, "8#00", NOW)
    is_settled, _ = _settled(scene, NOW + after)
    assert (is_settled, account.states) == (state == "FAILED", {"order-1/1": state})
    assert account.row(scene.execution).code == ("ExecutionUnknown" if is_settled else "")


@pytest.mark.parametrize(("status", "state"), [("SUCCEEDED", "SUCCEEDED"), ("FAILED", "FAILED")])
def test_the_child_that_its_workflow_could_not_read_decides_also_without_a_slot(
    status: str, state: str, child_scene: ChildScene
) -> None:
    child_scene.account.free(child_scene.execution)
    child_scene.child(status, output="[7]")
    child_scene.close("FAILED", "ChildTooLarge", f"{execution_arn(TARGET, NAME)} is too large")
    _settled(child_scene)
    row = child_scene.account.row(child_scene.execution)
    assert (row.state, row.code) == (state, "" if state == "SUCCEEDED" else "ChildTooLarge")


def test_a_child_that_may_not_be_read_keeps_a_released_request_open_no_longer(child_scene: ChildScene) -> None:
    child_scene.account.free(child_scene.execution)
    child_scene.close("FAILED", "ChildTooLarge", f"{execution_arn(TARGET, NAME)} is too large")
    denied = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not yours"}}, "DescribeExecution")
    with patch.object(type(child_scene.account.children), "describe", side_effect=denied):
        _settled(child_scene)
    assert child_scene.account.row(child_scene.execution).code == "ChildTooLarge"


def test_a_request_that_has_started_nothing_is_queued_again_once_and_rung_for(released: JanitorScene) -> None:
    released.close("FAILED", "SlotLost")
    account = released.account
    for counted in (1, 0):
        is_settled, report = _settled(released)
        assert (is_settled, report.counts["RequestsReturned"]) == (True, counted)
    assert account.states == {"order-1/1": "RETURNED", "order-1/2": "QUEUED"}
    assert account.rings == [{"process": "p", "at": LATER}] * 2


# An earlier request with the same id


@pytest.mark.parametrize("has_slot", [True, False])
def test_an_execution_of_an_earlier_request_is_no_end_of_a_later_one(account: Account, *, has_slot: bool) -> None:
    """Step Functions keeps names longer than rows are kept. A dispatch rejects the later request."""
    scene = JanitorScene(account)
    scene.reserve()
    scene.abort()
    execution = account.workflow.describe(scene.execution)
    assert execution
    assert execution.started_at
    account.set_row(scene.execution, state={"S": "QUEUED"}, open={"N": str(execution.started_at + 3600)})
    if not has_slot:
        account.free(scene.execution)
    account.event_at(scene.execution, LATER)
    assert account.row(scene.execution).state == "QUEUED"
    assert (scene.execution in account.item().holders) == has_slot
