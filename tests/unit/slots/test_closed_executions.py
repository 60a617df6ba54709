"""The status event of a failed workflow: after two checks its request is settled and its slot freed."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.aws.dynamodb import Item
from slotkeeper.slots.closed_executions import AFTER_FAILURE_SECONDS, WHILE_STOPPING_SECONDS
from slotkeeper.slots.protocol import FREE_UPDATE, RELEASE_UPDATE
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.settlement import CLAIM_SECONDS
from tests.support.boundary import Killed, kill_before, passed_values, refuse
from tests.unit.conftest import CHECK_GAP, GRACE, NOW, Account, Load
from tests.unit.janitor_scene import JanitorScene
from tests.unit.slots.queue_scene import leased
from tests.unit.work_account import invocation, record

SOON = NOW + 1
FIRST = NOW + CHECK_GAP
SECOND = FIRST + CHECK_GAP


def _receives(scene: JanitorScene, *moments: float) -> list[int | None]:
    return [scene.account.event_at(scene.execution, moment)[0] for moment in moments]


def _kept(scene: JanitorScene) -> list[dict[str, Any]]:
    return [message["MessageAttributes"] for message in scene.account.messages(scene.account.failed_url)]


def test_s4_two_checks_after_the_close_free_the_slot_and_ring(aborted: JanitorScene) -> None:
    assert _receives(aborted, SOON, FIRST) == [CHECK_GAP, CHECK_GAP + 1]
    assert aborted.account.rings == []
    assert _receives(aborted, SECOND) == [None]
    assert (aborted.account.item().slots_in_use, aborted.account.rings) == (0, [{"process": "p"}])


def test_the_outcome_is_recorded_before_the_slot_is_free(aborted: JanitorScene) -> None:
    """Otherwise a dispatch could find the queued row of a request whose work has ended, and start it again."""
    account, seen = aborted.account, list[str]()
    # The start may not have been marked: its dispatch died.
    account.dynamodb.update_item(
        TableName=account.request_table,
        Key={"process_name": {"S": "p"}, "execution": {"S": aborted.execution}},
        UpdateExpression="SET #s = :queued, place = placed",
        ExpressionAttributeNames={"#s": "state"},
        ExpressionAttributeValues={":queued": {"S": "QUEUED"}},
    )

    def before(params: Item, **_: Any) -> None:
        if params["UpdateExpression"] == FREE_UPDATE:
            seen.append(account.row(aborted.execution).state)

    account.dynamodb.meta.events.register("before-parameter-build.dynamodb.UpdateItem", before)
    _receives(aborted, SOON, FIRST, SECOND)
    assert (seen, account.item().slots_in_use) == (["FAILED"], 0)
    assert account.dispatch().started == {}


def test_a_free_slot_of_an_unrecorded_end_outdates_the_plans_made_before(aborted: JanitorScene) -> None:
    """The workflow's release does not change `grants`, and the handler records the outcome after it."""
    account = aborted.account
    account.dynamodb.update_item(
        TableName=account.slot_table,
        Key={"process_name": {"S": "p"}},
        UpdateExpression=RELEASE_UPDATE,
        ExpressionAttributeNames={"#me": aborted.execution},
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
    planned = account.item().grants
    assert _receives(aborted, SOON) == [None]
    assert (account.row(aborted.execution).state, account.item().grants) == ("FAILED", planned + 1)
    assert account.rings == [{"process": "p"}]


def test_a_success_that_the_workflow_has_recorded_is_no_failure(aborted: JanitorScene) -> None:
    """It was aborted after it released its slot: no holder shows what has run, and the row does."""
    account = aborted.account
    account.requests.record("p", aborted.execution, "SUCCEEDED", NOW)
    account.free(aborted.execution)
    assert _receives(aborted, SOON) == [None]
    assert (_kept(aborted), account.row(aborted.execution).state) == ([], "SUCCEEDED")


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


def test_a_reservation_of_a_closed_execution_is_freed_immediately(scene: JanitorScene) -> None:
    scene.reserve()
    scene.abort()
    assert _receives(scene, SOON) == [None]
    assert (scene.account.item().slots_in_use, scene.account.states) == (0, {"order-1/1": "FAILED"})
    assert scene.account.rings == [{"process": "p"}]


@pytest.mark.parametrize("holds", [False, True], ids=["freed", "granted again"])
def test_a_request_whose_workflow_held_no_slot_is_queued_again(holds: bool, scene: JanitorScene) -> None:
    """Granted again: a dispatch has found its old reservation gone and its row still queued."""
    scene.reserve()
    if not holds:
        scene.account.free(scene.execution)
    scene.abort()
    scene.fail("SlotLost")
    assert _receives(scene, SOON) == [None]
    assert scene.account.states == {"order-1/1": "RETURNED", "order-1/2": "QUEUED"}
    assert (_kept(scene), scene.account.item().holders) == ([], {})
    assert {"process": "p"} in scene.account.rings
    assert list(scene.account.dispatch().started) == [execution_name("p", "order-1", 2)]


def test_a_returned_request_is_returned_once_and_rung_for_at_each_delivery(scene: JanitorScene) -> None:
    """The function may die between the transaction and the ring."""
    scene.reserve()
    scene.account.free(scene.execution)
    scene.abort()
    scene.fail("SlotLost")
    refuse(scene.account.sqs, "SendMessage", "InternalError")
    with pytest.raises(ClientError):
        _receives(scene, SOON)
    rings = []
    for number in (1, 2):
        assert _receives(scene, SOON + number) == [None]
        rings.append(len(scene.account.rings))
    assert 0 < rings[0] < rings[1]
    assert scene.account.states == {"order-1/1": "RETURNED", "order-1/2": "QUEUED"}


@pytest.mark.parametrize(("run", "state", "kept"), [("SUCCEEDED", "SUCCEEDED", []), ("FAILED", "FAILED", ["FAILED"])])
def test_the_state_of_the_glue_run_is_the_outcome(run: str, state: str, kept: list[str], aborted: JanitorScene) -> None:
    """Its run may have succeeded before the abort: sending the request again would run the work twice."""
    aborted.run(run)
    _receives(aborted, SOON, FIRST, SECOND)
    assert [each["glue_run_state"]["StringValue"] for each in _kept(aborted)] == kept
    row = aborted.account.row(aborted.execution)
    assert (row.state, row.error) == (state, "ABORTED" if kept else "")


def test_while_glue_does_not_answer_nothing_is_settled(aborted: JanitorScene) -> None:
    refuse(aborted.account.glue, "GetJobRuns", "InternalServiceException")
    assert _receives(aborted, SOON) == [AFTER_FAILURE_SECONDS]
    assert (_kept(aborted), aborted.account.states) == ([], {"order-1/1": "STARTED"})


def test_a_status_event_of_an_execution_with_a_leases_name_frees_no_slot(aborted: JanitorScene) -> None:
    """An execution that was started manually can have any name."""
    account = aborted.account
    account.write("holders", {"M": {aborted.execution: {"M": leased(1)}}})
    assert account.event_at(aborted.execution, NOW + 3600)[0] is None
    assert list(account.item().holders) == [aborted.execution]


def test_a_malformed_process_is_handled_again(aborted: JanitorScene) -> None:
    aborted.account.write("slot_limit", {"S": "1"})
    again, report = aborted.account.event_at(aborted.execution, SOON)
    assert (again, report.counts["MalformedProcesses"]) == (AFTER_FAILURE_SECONDS, 1)


def test_s3_an_execution_that_was_redriven_and_aborted_again_is_kept_again(aborted: JanitorScene) -> None:
    """Each redrive ends again, and an operator may have deleted the first message."""
    _receives(aborted, SOON, FIRST, SECOND)
    aborted.abort_again(at=SECOND + 60)
    aborted.account.event_at(aborted.execution, SECOND + 61, redrives=1)
    assert len(_kept(aborted)) == 2


def test_an_event_delivered_twice_keeps_the_request_once(aborted: JanitorScene) -> None:
    """The second delivery arrives after the first has claimed the request and before it has recorded the outcome."""
    _receives(aborted, SOON, FIRST)
    kill_before(aborted.account.sqs, "SendMessage")
    with pytest.raises(Killed):
        _receives(aborted, SECOND)
    assert _receives(aborted, SECOND + 1) == [CLAIM_SECONDS]
    assert (_kept(aborted), aborted.account.item().slots_in_use) == ([], 1)
    _receives(aborted, SECOND + 1 + CLAIM_SECONDS)
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


@pytest.mark.parametrize("error", ["", "SlotLost"])
def test_a_manually_started_execution_of_any_name_is_settled(error: str, scene: JanitorScene) -> None:
    """Its name has no process, and DynamoDB refuses an empty key."""
    scene.execution = "manual"
    scene.account.stepfunctions.start_execution(stateMachineArn=scene.account.workflow_arn, name="manual", input="[]")
    scene.abort()
    if error:
        scene.fail(error)
    assert _receives(scene, SOON) == [None]
    assert scene.account.settlement.settled.has("manual")
    assert scene.account.rings == []


# The function


def test_an_event_whose_slot_is_not_free_yet_returns_after_the_gap(scene: JanitorScene, load: Load) -> None:
    scene.start()
    scene.abort()
    module = load("ending")
    asked = passed_values(module._sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    event = record({"detail": {"name": scene.execution, "redriveCount": 0}})
    event["receiptHandle"] = scene.account.status_event(scene.execution)
    assert module.handler({"Records": [event]}, invocation()) == {"batchItemFailures": [{"itemIdentifier": "m1"}]}
    assert asked == [CHECK_GAP + 1]


def test_a_malformed_event_returns_and_is_counted(
    account: Account, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load("ending")
    event = record("no event")
    event["receiptHandle"] = account.status_event("p-1")
    assert module.handler({"Records": [event]}, invocation())["batchItemFailures"]
    assert '"JanitorErrors":[1.0]' in capsys.readouterr().out
