"""Callers are answered that a request ended without a start, and its event is published, until both have succeeded."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from slotkeeper.slots.callers import AnswerOutcome
from slotkeeper.slots.request import Request
from slotkeeper.slots.request_table import ENDED_WITHOUT_START, End, Leaving, State
from tests.support.boundary import refuse
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene

WAITED_FOR = Request("p", {}, "a", task_token="token", priority="high", weight=3)
NAME = WAITED_FOR.execution_name


@pytest.fixture
def scene() -> QueueScene:
    return QueueScene()


def ended(scene: QueueScene, end: End = "CANCELLED", code: str = "Cancelled", request: Request = WAITED_FOR) -> str:
    """End a request without a start; return the name of its execution."""
    scene.accept(request)
    scene.rows.leave("p", [Leaving(request.execution_name, end, code, "this is why")], NOW)
    return request.execution_name


@pytest.mark.parametrize(
    ("end", "code", "error"),
    [
        ("SKIPPED", "Skipped", "Skipped"),
        ("TOO_LATE", "TooLate", "TooLate"),
        ("CANCELLED", "Cancelled", "Cancelled"),
        ("REJECTED", "UnknownProcess", "UnknownProcess"),
    ],
)
def test_an_end_is_answered_and_published_once(end: End, code: str, error: str, scene: QueueScene) -> None:
    ended(scene, end, code)

    assert [scene.endings.publish("p", [NAME]) for _ in range(2)] == [[], []]

    assert scene.aws.answers == [{"taskToken": "token", "error": error, "cause": "this is why"}]
    (event,) = scene.aws.events
    scene.aws.check_events()
    detail = json.loads(event["Detail"])
    kept = {} if end == "SKIPPED" else {"code": code, "kept_in": "requests"}
    assert (
        detail.items() >= ({"reason": "this is why", "request_id": "a", "weight": 3, "priority": "high"} | kept).items()
    )
    assert detail["status"] == ("SKIPPED" if end == "SKIPPED" else "DEAD_LETTERED")
    # The token is spent.
    assert not scene.row(NAME).keys() & {"open", "task_token"}
    assert [(row.execution, answered) for row, answered in scene.published] == [(NAME, AnswerOutcome.GIVEN)]


@pytest.mark.parametrize("state", ["QUEUED", "STARTED", "SUCCEEDED", "FAILED", "RETURNED", "REDRIVEN"])
def test_a_request_with_another_end_or_none_is_not_published(state: State, scene: QueueScene) -> None:
    """A message of DispatchQueue may name any execution."""
    scene.accept(WAITED_FOR)
    scene.end(NAME, state)
    before = scene.row(NAME)
    assert scene.endings.publish("p", [NAME, "p-none"]) == []
    assert (scene.aws.answers, scene.aws.events, scene.row(NAME)) == ([], [], before)
    assert state not in ENDED_WITHOUT_START


@pytest.mark.parametrize(
    ("code", "outcome"), [("TaskTimedOut", AnswerOutcome.SPENT), ("AccessDeniedException", AnswerOutcome.DENIED)]
)
def test_an_answer_that_never_succeeds_is_not_repeated(code: str, outcome: AnswerOutcome, scene: QueueScene) -> None:
    ended(scene)
    refuse(scene.stepfunctions, "SendTaskFailure", code)
    assert scene.endings.publish("p", [NAME]) == []
    assert [answered for _, answered in scene.published] == [outcome]
    assert (len(scene.aws.events), "open" in scene.row(NAME)) == (1, False)


def test_what_could_not_be_answered_is_published_again_and_the_rest_is_published(scene: QueueScene) -> None:
    other = ended(scene, request=Request("p", {}, "b"))
    ended(scene)
    refuse(scene.stepfunctions, "SendTaskFailure", "ThrottlingException")
    assert scene.endings.publish("p", [NAME, other]) == [NAME]
    assert ("open" in scene.row(NAME), "open" in scene.row(other)) == (True, False)
    assert [row.execution for row, _ in scene.published] == [other]
    assert scene.endings.publish("p", [NAME]) == []
    assert len(scene.aws.answers) == 1


def test_until_the_row_notes_it_an_end_is_published_again(scene: QueueScene) -> None:
    """An answer and an event are given at least once: consumers drop an event that they know."""
    ended(scene)
    refuse(scene.dynamodb, "UpdateItem", "InternalServerError")
    with pytest.raises(ClientError):
        scene.endings.publish("p", [NAME])
    assert scene.published == []
    assert scene.endings.publish("p", [NAME]) == []
    assert len(scene.aws.answers) == 2
    first, second = (json.loads(event["Detail"])["deduplication_id"] for event in scene.aws.events)
    assert first == second
