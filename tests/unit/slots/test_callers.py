"""Callers that wait: which answer the janitor gives, when, and what happens if it fails; tokens in texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.slots.callers import Unanswered
from slotkeeper.slots.executions import Execution
from slotkeeper.slots.request import (
    InvalidRequest,
    caller_of,
    execution_name,
    masked,
    parse_request,
    token_of,
    without_token,
)
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.settlement import CLAIM_SECONDS, SettlementTable
from slotkeeper.slots.targets import execution_arn
from tests.support.boundary import refuse
from tests.unit.conftest import CHECK_GAP, GRACE, NOW, Account, delivery
from tests.unit.janitor_scene import REQUEST, TARGET, TOKEN, CallerScene

LATER = NOW + GRACE + 1
ABORTED = (TOKEN, "ABORTED", "The workflow ended with status ABORTED")
Ended = Callable[[CallerScene], object]


@pytest.fixture
def scene(account: Account) -> CallerScene:
    return CallerScene(account)


def _handled_by(account: Account, by: str) -> Callable[[str, float], RunReport]:
    """A run of the janitor, or one delivery of the execution's status event."""
    if by == "run":
        return lambda _, now: account.run_at(now)
    return lambda execution, now: account.event_at(execution, now)[1]


def _kept(scene: CallerScene) -> list[dict[str, Any]]:
    return [json.loads(message["Body"]) for message in scene.account.messages(scene.account.failed_url)]


def test_the_janitor_keeps_the_request_records_its_outcome_answers_and_frees_the_slot(aborted: CallerScene) -> None:
    aborted.child("FAILED")
    aborted.account.run_at(LATER)
    assert (aborted.answers, aborted.seen) == ([ABORTED], [(True, "FAILED", 1)])
    assert aborted.account.item().holders == {}
    assert _kept(aborted) == [REQUEST | {"attempt": 1}]  # neither token nor digest


# How the execution of a caller has ended


def _child_has_succeeded(output: str) -> Ended:
    return lambda scene: scene.child("SUCCEEDED", output=output)


def _released(scene: CallerScene) -> None:
    scene.release()


def _could_not_answer(cause: str, **parameters: str) -> Ended:
    """The answer that failed comes last, also after a long history."""

    def ended(scene: CallerScene) -> None:
        scene.could_not_answer(cause, **parameters)
        scene.history = [{"type": "WaitStateEntered"}] * 200 + scene.history

    return ended


def _kept_by_the_workflow(error: str, *, holds: bool) -> Ended:
    def ended(scene: CallerScene) -> None:
        scene.child("FAILED")
        if not holds:
            scene.release()
        scene.fail(error, "States.Timeout: it took too long")

    return ended


ARN = json.dumps({"ExecutionArn": execution_arn(TARGET, execution_name("p", "order-1", 1, caller_of(TOKEN)))})
SUCCESS, FAILURE = "SUCCEEDED, but the caller was not answered: why", "FAILED, and the caller was not answered"
LEFT = (TOKEN, "RequestFailed", "States.Timeout: it took too long")


@pytest.mark.parametrize(
    ("ended", "answers", "kept", "succeeded"),
    [
        (_child_has_succeeded('{"rows": [1, 2.50]}'), [(TOKEN, '{"rows": [1, 2.50]}')], 0, 1),
        (_child_has_succeeded('"' + "x" * 204_800 + '"'), [(TOKEN, ARN)], 0, 1),
        (_child_has_succeeded('"' + "é" * 40_000 + '"'), [(TOKEN, ARN)], 0, 1),
        (_child_has_succeeded(""), [(TOKEN, ARN)], 0, 1),
        (_released, [ABORTED], 1, 0),
        (_could_not_answer(SUCCESS, Output="[7]"), [(TOKEN, "[7]")], 0, 1),
        (_could_not_answer(FAILURE, Error="WrongInput", Cause="no input"), [(TOKEN, "WrongInput", "no input")], 0, 0),
        (_kept_by_the_workflow("RequestFailed", holds=True), [LEFT], 0, 0),
        (_kept_by_the_workflow("RequestFailed", holds=False), [], 0, 0),
        (_kept_by_the_workflow("SlotLost", holds=True), [], 0, 0),
    ],
    ids=[
        "succeeded",
        "large output",
        "large output when it is encoded",
        "no output",
        "released",
        "success unanswered",
        "failure unanswered",
        "left to the janitor",
        "answered by the workflow",
        "queued again",
    ],
)
def test_a_caller_is_answered_once_by_how_its_execution_ended(
    aborted: CallerScene, ended: Ended, answers: list[tuple[str, ...]], kept: int, succeeded: int
) -> None:
    published: list[str] = []
    aborted.account.settlement.on_succeeded = lambda execution, _: published.append(execution.name)
    ended(aborted)
    for number in range(2):
        aborted.account.run_at(LATER + number * 60)
    assert (aborted.answers, len(_kept(aborted))) == (answers, kept)
    assert published == [aborted.execution] * succeeded


def test_a_malformed_process_does_not_delay_the_settlement_of_another(account: Account) -> None:
    settlement = account.settlement
    for name in ("p-1", "other-1"):
        settlement.memory.unsettled[name] = Execution(name, "ABORTED", NOW)
    settlement.settled.add("p-1", "workflow", NOW)
    settlement.settled.add("other-1", "workflow", NOW)
    settlement.settle_found(RunReport(), NOW + 1, {}, {"p"})
    assert list(settlement.memory.unsettled) == ["p-1"]


def test_a_request_without_a_caller_is_not_answered(account: Account) -> None:
    scene = CallerScene(account)
    scene.execution = account.queue("order-1", input={})
    account.dispatch()
    account.confirm(scene.execution)
    scene.abort()
    scene.child("FAILED")
    account.run_at(LATER)
    assert (scene.answers, scene.reads_of_history, len(_kept(scene))) == ([], 0, 1)


@pytest.mark.parametrize(
    ("code", "counted"),
    [
        ("TaskTimedOut", "AnswersSpent"),
        ("TaskDoesNotExist", "AnswersSpent"),
        ("InvalidToken", "AnswersSpent"),
        ("AccessDeniedException", "AnswersFailed"),
        ("KmsAccessDeniedException", "AnswersFailed"),
    ],
)
def test_a_spent_or_denied_answer_is_counted_and_not_repeated(aborted: CallerScene, code: str, counted: str) -> None:
    aborted.refusal = code
    aborted.child("FAILED")
    counts = aborted.account.run_at(LATER).counts
    assert {name: counts[name] for name in ("AnswersSpent", "AnswersFailed", "JanitorErrors") if counts[name]} == {
        counted: 1
    }
    aborted.refusal = ""
    assert aborted.account.run_at(LATER + 60).counts[counted] == 0
    assert (aborted.answers, len(_kept(aborted)), aborted.account.item().slots_in_use) == ([], 1, 0)


def test_a_failed_answer_is_repeated_without_keeping_the_request_again_and_does_not_hold_the_slot(
    aborted: CallerScene,
) -> None:
    aborted.refusal = "ThrottlingException"
    aborted.child("FAILED")
    assert aborted.account.run_at(LATER).counts["AnswersFailed"] == 1
    assert aborted.account.item().slots_in_use == 0
    assert aborted.account.run_at(LATER + 60).counts["AnswersFailed"] == 1
    aborted.refusal = ""
    for number in range(2):
        aborted.account.run_at(LATER + 120 + number * 60)
    assert (aborted.answers, len(_kept(aborted))) == ([ABORTED], 1)


@pytest.mark.parametrize(
    ("error", "answered", "kept"),
    [("RequestFailed", [TOKEN], 1), ("", [TOKEN], 2), ("SlotLost", [], 1)],
    ids=["the workflow keeps it", "it is aborted again", "it is queued again"],
)
def test_an_answer_that_failed_before_a_redrive_is_given_after_it(
    aborted: CallerScene, error: str, answered: list[str], kept: int
) -> None:
    aborted.child("FAILED")
    aborted.refusal = "ThrottlingException"
    aborted.account.run_at(LATER)
    aborted.refusal = ""
    aborted.abort_again(LATER + 1)
    if error:
        aborted.fail(error, "CallerGone: no caller waits")
    aborted.account.event_at(aborted.execution, LATER + 2, redrives=1)
    assert [token for token, *_ in aborted.answers] == answered
    assert len(_kept(aborted)) == kept
    waiting = aborted.account.rows.queue("p").rows
    assert [aborted.account.rows.task_token("p", row.queued.execution) for row in waiting] == (
        [TOKEN] if error == "SlotLost" else []
    )


def test_an_answer_is_owed_although_the_request_was_also_redriven_by_its_row(aborted: CallerScene) -> None:
    aborted.child("FAILED")
    aborted.refusal = "ThrottlingException"
    aborted.account.run_at(LATER)
    aborted.refusal = ""
    aborted.account.requeues.redrive("p", aborted.execution, LATER)
    aborted.abort_again(LATER + 1)
    aborted.fail("SlotLost", "it holds no slot")
    aborted.account.event_at(aborted.execution, LATER + 2, redrives=1)
    assert ([token for token, *_ in aborted.answers], len(_kept(aborted))) == ([TOKEN], 1)


def test_a_success_whose_answer_failed_is_answered_after_a_redrive(aborted: CallerScene) -> None:
    aborted.account.requests.record("p", aborted.execution, "SUCCEEDED", NOW)
    aborted.account.free(aborted.execution)
    aborted.abort_again(LATER)
    aborted.fail("SlotLost", "it holds no slot")
    aborted.account.event_at(aborted.execution, LATER + 1, redrives=1)
    assert [token for token, *_ in aborted.answers] == [TOKEN]
    assert _kept(aborted) == []


@pytest.mark.parametrize("error", ["", "RequestFailed"], ids=["aborted", "left to the janitor"])
def test_the_caller_of_a_glue_run_is_answered_when_the_run_has_ended(scene: CallerScene, error: str) -> None:
    account = scene.account
    _with_glue_run(scene, "RUNNING")
    if error:
        scene.fail(error, "the run is unknown")
    account.event_at(scene.execution, NOW + 1)
    account.run_at(LATER)
    assert scene.answers == []
    scene.run("STOPPED")
    for number in range(3):
        account.run_at(LATER + (number + 1) * CHECK_GAP)
    assert [token for token, *_ in scene.answers] == [TOKEN]
    assert account.item().holders == {}


def _with_glue_run(scene: CallerScene, state: str) -> None:
    """Abort the workflow of a caller's Glue job, whose run is in this state."""
    account = scene.account
    account.write("target", {"S": "job"})
    account.accept({"process": "p", "request_id": "order-1", "task_token": TOKEN})
    account.dispatch()
    account.confirm(scene.execution)
    scene.abort()
    scene.run(state)


RESULT = (TOKEN, '{"Id": "jr_1", "JobName": "job", "JobRunState": "SUCCEEDED"}')


@pytest.mark.parametrize("by", ["run", "event"])
def test_the_caller_of_a_glue_run_that_has_succeeded_receives_its_result(scene: CallerScene, by: str) -> None:
    succeeded: list[str] = []
    scene.account.settlement.on_succeeded = lambda execution, _: succeeded.append(execution.name)
    _with_glue_run(scene, "SUCCEEDED")
    for number in range(2):
        _handled_by(scene.account, by)(scene.execution, LATER + number * CHECK_GAP)
    assert (scene.answers, _kept(scene), succeeded) == ([RESULT], [], [scene.execution])
    assert scene.account.item().holders == {}


def test_a_reservation_is_kept_until_its_caller_is_answered(scene: CallerScene) -> None:
    scene.reserve()
    scene.abort()
    refuse(scene.account.sqs, "SendMessage", "ServiceUnavailable", times=2)
    held = []
    for number in range(3):
        scene.account.run_at(LATER + number * 60)
        held.append(bool(scene.account.item().holders))
    assert (scene.answers, len(_kept(scene)), held) == ([ABORTED], 1, [True, True, False])


def test_callers_that_cannot_be_answered_do_not_delay_other_requests(account: Account) -> None:
    """The run's time ends after the first request."""
    settlement, tried = account.settlement, []

    def settle(execution: Execution, *_: Any) -> bool:
        tried.append(execution.name)
        account.now += 1
        return execution.name == "p-kept"

    account.now = NOW
    settlement._settle_listed = settle  # type: ignore[method-assign]
    for name, ended in (("p-refused", 1), ("p-kept", 2)):
        settlement.memory.unsettled[name] = Execution(name, "ABORTED", ended)
    for _ in range(2):
        settlement.settle_found(RunReport(), account.now + 1, {})
    assert tried == ["p-refused", "p-kept"]


def test_a_history_that_cannot_be_read_is_a_failed_answer(aborted: CallerScene) -> None:
    aborted.could_not_answer(SUCCESS, Output="[7]")
    aborted.history_fails = True
    assert aborted.account.run_at(LATER).counts["AnswersFailed"] == 1
    aborted.history_fails = False
    aborted.account.run_at(LATER + 60)
    assert (aborted.answers, len(_kept(aborted))) == ([(TOKEN, "[7]")], 0)


def test_a_request_whose_token_is_lost_is_settled_without_answer(aborted: CallerScene) -> None:
    """Its row was deleted manually, or the table restored to a time before it."""
    account = aborted.account
    aborted.release()
    key = {"process_name": {"S": "p"}, "execution": {"S": aborted.execution}}
    account.dynamodb.delete_item(TableName=account.request_table, Key=key)
    counts = [account.run_at(LATER + number * 60).counts["AnswersFailed"] for number in range(2)]
    assert (counts, aborted.answers, len(_kept(aborted))) == ([1, 0], [], 1)


def test_a_claim_does_not_drop_an_answer_that_was_noted_since_it_was_read(account: Account) -> None:
    table = SettlementTable(account.dynamodb, account.settled_table)
    assert table.unanswered("p-1") is None
    due = Unanswered(True, TARGET, "jr_1")
    assert table.claim("p-1", NOW)
    assert table.note_unanswered("p-1", due, NOW)
    assert not table.claim("p-1", NOW + 2 * CLAIM_SECONDS)
    assert table.claim("p-1", NOW + 2 * CLAIM_SECONDS, due)
    assert table.unanswered("p-1") == due


# Task tokens in texts


@pytest.mark.parametrize(
    "token", ["", 7, None, ["x"], "x" * 2049, "é"], ids=["empty", "number", "null", "list", "long", "wide"]
)
def test_a_token_that_is_not_one_is_refused_without_its_value(token: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request(delivery({"process": "p", "task_token": token}))
    assert str(refused.value) == "body.task_token must be a string of 1 to 2,048 visible ASCII characters"


def test_a_task_token_is_in_no_repr() -> None:
    sent = delivery(REQUEST | {"task_token": TOKEN})
    assert TOKEN not in repr(sent) + repr(parse_request(sent))


@pytest.mark.parametrize(
    ("body", "without"),
    [
        ('{"process": "p"}', '{"process": "p"}'),
        ('{"a": "\\uffff", "task_token": "t", "caller": "c"}', '{"a":"\\uffff"}'),
        ('{"task\\u005ftoken": "t"}', "{}"),
        ('{"input": {"task_token": "theirs"}}', '{"input": {"task_token": "theirs"}}'),
        ('{"task_token": "t"', '{"task_token": "..."'),
        ('[{"task_token": "t\\"u"}]', '[{"task_token": "..."}]'),
        ('{"task_token": "cut of', '{"task_token": "...'),
    ],
)
def test_a_body_is_stripped_of_its_token(body: str, without: str) -> None:
    assert without_token(body) == without


@pytest.mark.parametrize("times", range(1, 5))
@pytest.mark.parametrize("token", [TOKEN, 't"u', "t\\u", "it's"])
def test_a_token_is_masked_however_often_its_body_was_encoded(token: str, times: int) -> None:
    text, without = ({"process": "p", "task_token": value, "weight": 2} for value in (token, "..."))
    for _ in range(times):
        text, without = json.dumps(text), json.dumps(without)
    assert masked(text) == without


def test_a_token_is_masked_wherever_its_body_is_cut() -> None:
    text = json.dumps(json.dumps(REQUEST | {"task_token": TOKEN}))
    assert not any("A" in masked(text[:length]) for length in range(len(text)))


def test_a_body_of_backslashes_is_masked_in_linear_time() -> None:
    """Otherwise one message of 256 KiB uses up the function's time."""
    body = "task_token" + "\\" * 100_000
    assert masked(body) == body


@pytest.mark.parametrize("body", ["junk", "[]", "{}", '{"task_token": 7}', '{"task_token": ""}'])
def test_a_body_without_a_usable_token_has_none(body: str) -> None:
    assert token_of(body) == ""
