"""Status events: a success is published; another end is settled after two checks, its slot freed, and published."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.aws.dynamodb import Item
from slotkeeper.slots.closed_executions import AFTER_FAILURE_SECONDS, WHILE_STOPPING_SECONDS
from slotkeeper.slots.protocol import FREE_UPDATE, RELEASE_UPDATE
from slotkeeper.slots.request import execution_name
from tests.simulation.account.boundary import Calls, refuse
from tests.unit.conftest import CHECK_GAP, NOW, Account
from tests.unit.janitor_scene import JanitorScene
from tests.unit.slots.queue_scene import leased

TOKEN = "AAAA-the-token-of-the-caller"
SOON = NOW + 1
FIRST = NOW + CHECK_GAP
SECOND = FIRST + CHECK_GAP


def _receives(scene: JanitorScene, *moments: float, status: str = "ABORTED") -> list[int | None]:
    return [scene.account.event_at(scene.execution, moment, status)[0] for moment in moments]


def _published(scene: JanitorScene) -> list[tuple[str, str]]:
    """Status and error of each completion event."""
    return [(event["status"], event.get("error", "")) for event in scene.account.bus.published]


# A success


def test_a_success_costs_a_read_an_event_and_a_write(scene: JanitorScene) -> None:
    scene.start()
    scene.release("SUCCEEDED")
    account = scene.account
    made = Calls(account.dynamodb, account.events, account.stepfunctions, account.sqs, account.sns).made
    assert _receives(scene, SOON, status="SUCCEEDED") == [None]
    assert (made, _published(scene)) == (["GetItem", "PutEvents", "UpdateItem"], [("SUCCEEDED", "")])
    assert _receives(scene, SOON, status="SUCCEEDED") == [None]
    assert len(_published(scene)) == 1


@pytest.mark.parametrize(
    ("outcome", "operation", "event", "answer"),
    [
        ("SUCCEEDED", "SendTaskSuccess", ("SUCCEEDED", ""), ("[7]",)),
        ("FAILED", "SendTaskFailure", ("FAILED", "Error"), ("Error", "why")),
        ("", "SendTaskFailure", ("FAILED", "ABORTED"), ("ABORTED", "The workflow ended with status ABORTED")),
    ],
    ids=["success", "failure", "unrecorded"],
)
def test_an_end_that_cannot_be_published_holds_no_slot_and_is_published_at_the_next_delivery(
    outcome: str, operation: str, event: tuple[str, str], answer: tuple[str, ...], account: Account
) -> None:
    scene = JanitorScene(account, TOKEN)
    scene.start()
    scene.abort()
    if outcome:
        account.record(scene.execution, outcome, **({"answer": "[7]"} if outcome == "SUCCEEDED" else {}))
        account.free(scene.execution)
    status = outcome or "ABORTED"
    refuse(account.stepfunctions, operation, "AccessDeniedException")
    assert _receives(scene, *([SOON] if outcome else [SOON, FIRST, SECOND]), status=status)[-1] == AFTER_FAILURE_SECONDS
    assert (account.item().slots_in_use, account.answers, _published(scene)) == (0, [], [])
    assert _receives(scene, SECOND + 30, status=status) == [None]
    assert (account.answers, _published(scene)) == ([(TOKEN, *answer)], [event])
    assert account.row(scene.execution).open is None


# Another end


def test_s4_two_checks_after_the_close_free_the_slot_and_ring(aborted: JanitorScene) -> None:
    assert _receives(aborted, SOON, FIRST) == [CHECK_GAP, CHECK_GAP + 1]
    assert aborted.account.rings == []
    assert _receives(aborted, SECOND) == [None]
    assert (aborted.account.item().slots_in_use, aborted.account.rings) == (0, [{"process": "p"}])
    assert (aborted.account.states, _published(aborted)) == ({"order-1/1": "FAILED"}, [("FAILED", "ABORTED")])


def test_the_outcome_is_recorded_before_the_slot_is_free(aborted: JanitorScene) -> None:
    """Otherwise a dispatch could find the queued row of a request whose work has ended, and start it again."""
    account, seen = aborted.account, list[str]()
    # The start may not have been marked: its dispatch died.
    account.set_row(aborted.execution, state={"S": "QUEUED"}, place={"S": "0#0#0"})

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


def test_s1b_a_check_within_a_gap_after_the_close_does_not_count(aborted: JanitorScene) -> None:
    """A StartJobRun that was sent before the abort may show within the gap."""
    _receives(aborted, SOON, FIRST - 1)
    assert aborted.account.item().holders[aborted.execution].quiet_since is None


def test_s1b_a_check_before_a_redrive_does_not_count(aborted: JanitorScene) -> None:
    """A run that the redrive started shows only in checks after the last end."""
    _receives(aborted, FIRST)
    aborted.end_again(at=SECOND)
    assert _receives(aborted, SECOND + CHECK_GAP) == [CHECK_GAP + 1]
    assert aborted.account.item().slots_in_use == 1


def test_f2_a_run_that_outlives_its_workflow_is_stopped_and_keeps_the_slot_until_its_end(aborted: JanitorScene) -> None:
    aborted.run("RUNNING")
    assert _receives(aborted, SOON, FIRST, SECOND) == [WHILE_STOPPING_SECONDS] * 3
    assert set(aborted.stopped) == {"jr_1"}
    assert aborted.account.item().slots_in_use == 1
    aborted.run("STOPPED")
    assert _receives(aborted, SECOND + 10, SECOND + 10 + CHECK_GAP) == [CHECK_GAP + 1, None]


@pytest.mark.parametrize("holds", [False, True], ids=["freed", "granted again"])
def test_a_request_whose_workflow_held_no_slot_is_queued_again(holds: bool, scene: JanitorScene) -> None:
    """Granted again: a dispatch has found its old reservation gone and its row still queued."""
    scene.reserve()
    if not holds:
        scene.account.free(scene.execution)
    scene.abort()
    scene.close("FAILED", "SlotLost")
    assert _receives(scene, SOON) == [None]
    assert scene.account.states == {"order-1/1": "RETURNED", "order-1/2": "QUEUED"}
    assert (_published(scene), scene.account.item().holders) == ([], {})
    assert {"process": "p"} in scene.account.rings
    assert list(scene.account.dispatch().started) == [execution_name("p", "order-1", 2)]


@pytest.mark.parametrize(("error", "again"), [("SlotLost", ["REDRIVEN", "QUEUED"]), ("RequestFailed", ["FAILED"])])
@pytest.mark.parametrize("is_published", [True, False])
def test_a_redriven_execution_that_finds_no_slot_queues_its_published_failure_again(
    is_published: bool, error: str, again: list[str], account: Account
) -> None:
    """The redriven attempt's caller has its answer, which is given before if it is still owed."""
    scene = JanitorScene(account, TOKEN)
    scene.start()
    scene.abort()
    scene.release()
    if is_published:
        account.endings.publish("p", [scene.execution])
    scene.end_again(SOON)
    scene.close("FAILED", error)
    assert _receives(scene, SOON + 1, status="FAILED") == [None]
    assert list(account.states.values()) == again
    assert ([answer[0] for answer in account.answers], _published(scene)) == ([TOKEN], [("FAILED", "Error")])
    assert not any("task_token" in account.raw_row(row.execution) for row in account.rows.rows("p").rows)


def test_a_glue_run_that_has_succeeded_is_the_outcome(account: Account) -> None:
    """It may have succeeded before the abort: sending the request again would run the work twice."""
    scene = JanitorScene(account, TOKEN)
    scene.start()
    scene.abort()
    scene.run("SUCCEEDED")
    _receives(scene, SOON, FIRST, SECOND)
    assert (account.row(scene.execution).state, _published(scene)) == ("SUCCEEDED", [("SUCCEEDED", "")])
    assert account.answers == [(TOKEN, '{"Id": "jr_1", "JobName": "job", "JobRunState": "SUCCEEDED"}')]


@pytest.mark.parametrize("endless", [True, False], ids=["very many runs", "no answer"])
def test_what_glue_does_not_show_is_left_to_the_janitor(endless: bool, aborted: JanitorScene) -> None:
    aborted.endless = endless
    if not endless:
        refuse(aborted.account.glue, "GetJobRuns", "InternalServiceException")
    assert _receives(aborted, FIRST) == [AFTER_FAILURE_SECONDS]
    assert aborted.account.item().holders[aborted.execution].quiet_since is None
    assert (_published(aborted), aborted.account.states) == ([], {"order-1/1": "STARTED"})


def test_a_status_event_of_an_execution_with_a_leases_name_frees_no_slot(aborted: JanitorScene) -> None:
    """An execution that was started manually can have any name."""
    account = aborted.account
    account.write("holders", {"M": {aborted.execution: {"M": leased(1)}}})
    assert account.event_at(aborted.execution, NOW + 3600)[0] is None
    assert list(account.item().holders) == [aborted.execution]


@pytest.mark.parametrize("outcome", ["FAILED", ""], ids=["recorded", "unrecorded"])
def test_a_malformed_process_is_handled_again_and_what_is_recorded_published(
    outcome: str, aborted: JanitorScene
) -> None:
    """The holder decides whether a request has succeeded. No run of the janitor visits the process."""
    account = aborted.account
    if outcome:
        account.record(aborted.execution, outcome)
    account.write("slot_limit", {"S": "1"})
    again, report = account.event_at(aborted.execution, SOON)
    assert (again, report.counts["MalformedProcesses"]) == (AFTER_FAILURE_SECONDS, 1)
    assert _published(aborted) == [("FAILED", "Error")] * bool(outcome)


def test_a_malformed_row_keeps_no_slot(aborted: JanitorScene) -> None:
    """An operator repairs it, and its end is published then."""
    account = aborted.account
    account.dynamodb.update_item(
        TableName=account.request_table,
        Key={"process_name": {"S": "p"}, "execution": {"S": aborted.execution}},
        UpdateExpression="SET weight = :text",
        ExpressionAttributeValues={":text": {"S": "two"}},
    )
    assert _receives(aborted, SOON, FIRST, SECOND)[-1] == AFTER_FAILURE_SECONDS
    assert (account.item().holders, account.rows.unpublished("p").rows) == ({}, [(aborted.execution, "FAILED")])


def test_an_event_of_an_execution_that_runs_again_does_nothing(scene: JanitorScene) -> None:
    scene.start()
    scene.run("RUNNING")
    again, report = scene.account.event_at(scene.execution, SOON)
    assert (again, report.counts, scene.stopped) == (None, {}, [])
    scene.account.free(scene.execution)
    assert _receives(scene, SOON) == [None]
    assert scene.account.states == {"order-1/1": "STARTED"}


@pytest.mark.parametrize("name", ["manual", "p-manual", "none-1"])
@pytest.mark.parametrize("error", ["", "SlotLost"])
def test_a_manually_started_execution_of_any_name_is_done(name: str, error: str, scene: JanitorScene) -> None:
    """It has no row. A name without a process would be an empty key, which DynamoDB refuses."""
    scene.execution = name
    scene.account.stepfunctions.start_execution(stateMachineArn=scene.account.workflow_arn, name=name, input="[]")
    scene.abort()
    if error:
        scene.close("FAILED", error)
    assert _receives(scene, SOON) == [None]
    assert (scene.account.states, _published(scene)) == ({}, [])
    assert scene.account.rings == [{"process": "p"}] * (name == "p-manual")


def test_a_request_of_a_removed_process_is_settled(aborted: JanitorScene) -> None:
    account = aborted.account
    account.dynamodb.delete_item(TableName=account.slot_table, Key={"process_name": {"S": "p"}})
    assert _receives(aborted, SOON) == [None]
    assert (account.states, _published(aborted)) == ({"order-1/1": "FAILED"}, [("FAILED", "ABORTED")])
