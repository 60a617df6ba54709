"""The function of endings: which messages of EndingQueue it handles, which come again, and its metrics."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from slotkeeper import observability
from slotkeeper.aws.dynamodb import Item
from slotkeeper.slots import endings
from slotkeeper.slots.closed_executions import AFTER_FAILURE_SECONDS, MAX_WAIT_SECONDS
from slotkeeper.slots.request_table import End, Leaving
from tests.simulation.account.boundary import passed_values, refuse
from tests.unit.conftest import CHECK_GAP, NOW, Account, Load
from tests.unit.function_lines import counted, written
from tests.unit.janitor_scene import JanitorScene
from tests.unit.work_messages import invocation

TOKEN = "AAAA-the-token-of-the-caller"
REFUSED = {"message_id": "m", "group_id": "p", "code": "InvalidRequest", "reason": "why", "task_token": TOKEN}
HANDLED: dict[str, list[Any]] = {"batchItemFailures": []}
COMES_AGAIN = {"batchItemFailures": [{"itemIdentifier": "m1"}]}


@pytest.fixture
def module(load: Load, account: Account, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The function. The answers that it gives to callers arrive."""
    loaded = load("ending")
    monkeypatch.setattr(endings, "logger", observability.logger)  # the one that `load` has made
    return loaded


def _handle(module: Any, *records: Item, seconds: float = 120.0) -> Any:
    return module.handler({"Records": list(records)}, invocation(seconds))


def _received(made: Item, seconds_ago: float) -> Item:
    """The message, whose first receive was so long ago."""
    times = {"ApproximateFirstReceiveTimestamp": str(int((time.time() - seconds_ago) * 1000))}
    return made | {"attributes": made["attributes"] | times}


def _event(scene: JanitorScene, status: str = "ABORTED") -> Item:
    return scene.account.ending({"detail": {"name": scene.execution, "status": status}})


def _end(account: Account, *ids: str, end: End = "CANCELLED") -> list[str]:
    names = [account.queue(each, task_token=TOKEN + each * bool(place)) for place, each in enumerate(ids)]
    account.requests.leave("p", [Leaving(name, end, "Code", "why") for name in names], NOW)
    return names


# Messages


@pytest.mark.parametrize(("age", "comes_again"), [(0, True), (MAX_WAIT_SECONDS + 1, False)], ids=["new", "old"])
def test_an_event_whose_slot_is_not_free_yet_returns_after_the_gap_until_it_is_given_up(
    age: float, comes_again: bool, scene: JanitorScene, module: Any
) -> None:
    """The janitor does the rest."""
    scene.start()
    scene.abort(time.time())  # the clock of the function
    asked = passed_values(module._sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    assert _handle(module, _received(_event(scene), age)) == (COMES_AGAIN if comes_again else HANDLED)
    assert asked == [CHECK_GAP + 1] * comes_again


@pytest.mark.parametrize("body", [{"process": "p", "executions": ["p-a"]}, {"process": "p"}, {"refused": REFUSED}])
def test_what_the_janitor_may_not_repeat_is_never_given_up(body: Item, account: Account, module: Any) -> None:
    (name,) = _end(account, "a")
    if "executions" in body:
        body = body | {"executions": [name]}
    refuse(module._stepfunctions, "SendTaskFailure", "ThrottlingException")
    asked = passed_values(module._sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    assert _handle(module, _received(account.ending(body), MAX_WAIT_SECONDS + 1)) == COMES_AGAIN
    assert asked == [AFTER_FAILURE_SECONDS]


def test_ends_without_an_execution_are_published_by_name_or_by_process(account: Account, module: Any) -> None:
    names = _end(account, "a", "b")
    left = []
    for body in ({"process": "p", "executions": names[:1]}, {"process": "p"}):
        assert _handle(module, account.ending(body)) == HANDLED
        left.append([name for name, _ in account.rows.unpublished("p").rows])
    assert left == [names[1:], []]
    assert len(account.answers) == 2


def test_the_rest_of_a_long_list_comes_again(account: Account, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run of the janitor visits a process that is gone."""
    _end(account, "a", "b")
    monkeypatch.setattr("tests.simulation.aws.dynamodb._LARGEST_PAGE", 1)
    asked = passed_values(module._sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    made = account.ending({"process": "p"})
    assert [_handle(module, made) for _ in range(2)] == [COMES_AGAIN, HANDLED]
    assert (asked, account.rows.unpublished("p").rows) == ([0], [])


def test_messages_that_do_not_fit_into_the_invocation_come_again(scene: JanitorScene, module: Any) -> None:
    scene.start()
    scene.release("SUCCEEDED")
    records = [_event(scene, "SUCCEEDED") | {"messageId": f"m{at}"} for at in range(2)]
    assert _handle(module, *records, seconds=30.0) == COMES_AGAIN


def test_a_list_that_does_not_fit_into_the_invocation_comes_again(account: Account, module: Any) -> None:
    made = account.ending({"process": "p", "executions": _end(account, "a", "b")})
    assert (_handle(module, made, seconds=10.0), account.answers) == (COMES_AGAIN, [])


def test_an_end_that_cannot_be_handled_returns_and_is_counted(
    scene: JanitorScene, module: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.start()
    scene.release("SUCCEEDED")
    refuse(module._dynamodb, "GetItem", "InternalServerError")
    assert _handle(module, _event(scene, "SUCCEEDED")) == COMES_AGAIN
    assert counted(capsys) == {"JanitorErrors": 1}


@pytest.mark.parametrize(
    "body",
    ["junk", [], {}, {"detail": {"name": "p-1"}}, {"detail": 1}, {"refused": {"code": "x"}}, {"process": 1}],
    ids=str,
)
def test_a_message_of_another_sender_is_deleted(body: Any, account: Account, module: Any) -> None:
    made = account.ending({}) | {"body": body if isinstance(body, str) else json.dumps(body)}
    assert _handle(module, made) == HANDLED


# What it counts


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("REJECTED", "Code", {"RequestsRejected": 1}),
        ("SKIPPED", "Code", {"RequestsSkipped": 1}),
        ("TOO_LATE", "Code", {"RequestsTooLate": 1}),
        ("CANCELLED", "Code", {"RequestsCancelled": 1}),
        ("SUCCEEDED", "", {}),
        ("FAILED", "Error", {"RequestsFailed": 1}),
        ("FAILED", "CallerGone", {"RequestsFailed": 1, "CallersGone": 1}),
    ],
)
def test_an_end_is_counted_and_logged_and_a_failure_also_of_its_process(
    state: Any,
    code: str,
    expected: dict[str, float],
    account: Account,
    module: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if state in ("SUCCEEDED", "FAILED"):
        name = account.queue("a")
        account.record(name, state, **({"code": code} if code else {}))
    else:
        (name,) = _end(account, "a", end=state)
    _handle(module, account.ending({"process": "p", "executions": [name]}))
    lines = written(capsys)
    assert counted(lines) == {"EndingsHandled": 1} | expected
    of_process = [line["process"] for line in lines if "RequestsFailed" in line and "process" in line]
    assert of_process == ["p"] * (state == "FAILED")
    (line,) = (line for line in lines if line.get("message") == "Published how a request has ended")
    assert line.items() >= {"process": "p", "request_id": "a", "execution": name, "state": state, "code": code}.items()


@pytest.mark.parametrize(
    ("operation", "code", "expected"),
    [
        ("SendTaskFailure", "TaskTimedOut", {"AnswersSpent": 1, "EndingsHandled": 1, "RequestsCancelled": 1}),
        ("SendTaskFailure", "AccessDeniedException", {"AnswersFailed": 1, "EndingsHandled": 0}),
        ("PutEvents", "AccessDeniedException", {"EventsNotSent": 1, "EndingsHandled": 0}),
    ],
)
def test_a_receiver_that_is_gone_or_refuses_is_counted(
    operation: str, code: str, expected: dict[str, float], account: Account, module: Any, capsys: Any
) -> None:
    _end(account, "a")
    refuse(
        module._stepfunctions if operation == "SendTaskFailure" else module._completion_events._events, operation, code
    )
    _handle(module, account.ending({"process": "p"}))
    assert counted(capsys) == expected
