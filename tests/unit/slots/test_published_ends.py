"""The one sender: an end is answered, published, notified and marked, in this order, until each step has succeeded."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from slotkeeper.aws.dynamodb import number
from slotkeeper.slots.endings import MAX_REASON
from slotkeeper.slots.outcomes import MAX_CAUSE
from slotkeeper.slots.request import MAX_BODY_BYTES, MAX_INPUT_BYTES, Request, parse_request
from slotkeeper.slots.request_table import Leaving, State
from slotkeeper.slots.targets import execution_arn
from tests.simulation.account.boundary import before_write, refuse
from tests.simulation.account.executions import WORKFLOW
from tests.unit.conftest import NOW, delivery
from tests.unit.slot_parts import RETENTION
from tests.unit.slots.queue_scene import TOPIC, QueueScene

LIMIT = 1
TOKEN = "AAAA-the-token-of-the-caller"
WAITED_FOR = Request("p", {}, "a", task_token=TOKEN, priority="high", weight=3, key="acme")
NAME = WAITED_FOR.execution_name
ARN = execution_arn(WORKFLOW, NAME)
UNPUBLISHED = {"open", "task_token"}
# The JobRun of a failed run, as Step Functions gives it.
RUN = json.dumps({"Arguments": {"--key": "secret"}, "ErrorMessage": "no month", "JobRunState": "FAILED"})


def end(scene: QueueScene, state: State, request: Request = WAITED_FOR, **outcome: str) -> str:
    """Record an end, 10 s after the request was sent; return the name of its execution."""
    scene.accept(request)
    name = request.execution_name
    if state in ("SUCCEEDED", "FAILED"):
        scene.requests.mark_started("p", name, "8#00", NOW + 5)
        assert scene.record(name, state, NOW + 10, **outcome)
    else:
        assert scene.requests.leave("p", [Leaving(name, state, "Code", "this is why")], NOW + 10)  # type: ignore[arg-type]  # no other state
    scene.now = NOW + 60
    return name


def details(scene: QueueScene) -> list[dict[str, Any]]:
    """Those of the completion events so far, which are valid."""
    return scene.aws.bus.published


def notices(scene: QueueScene) -> list[dict[str, Any]]:
    return [json.loads(each["Message"]) for each in scene.aws.published]


# What is published

STARTED = {"execution_name": NAME, "execution_arn": ARN, "started_at": "2027-01-15T08:00:05.000Z"}
WITHOUT_START = {"message_id": "m1", "reason": "this is why"}
DEAD_LETTERED = WITHOUT_START | {"status": "DEAD_LETTERED", "code": "Code", "kept_in": "requests"}
NOT_RUN = {"taskToken": TOKEN, "error": "Code", "cause": "this is why"}


@pytest.mark.parametrize(
    ("state", "outcome", "answer", "event"),
    [
        (
            "SUCCEEDED",
            {"answer": '{"rows": [1, 2.50]}'},
            {"taskToken": TOKEN, "output": '{"rows": [1, 2.50]}'},
            STARTED | {"status": "SUCCEEDED"},
        ),
        (
            "SUCCEEDED",
            {},
            {"taskToken": TOKEN, "output": json.dumps({"ExecutionArn": ARN})},
            STARTED | {"status": "SUCCEEDED"},
        ),
        (
            "FAILED",
            {"code": "States.TaskFailed", "cause": RUN},
            {"taskToken": TOKEN, "error": "States.TaskFailed", "cause": "no month"},
            STARTED | {"status": "FAILED", "error": "States.TaskFailed", "cause": "no month", "kept_in": "requests"},
        ),
        ("SKIPPED", {}, NOT_RUN, WITHOUT_START | {"status": "SKIPPED"}),
        *((state, {}, NOT_RUN, DEAD_LETTERED) for state in ("TOO_LATE", "CANCELLED", "REJECTED")),
    ],
)
def test_an_end_is_published_once_to_everyone_whom_it_concerns(
    state: State, outcome: dict[str, str], answer: dict[str, str], event: dict[str, str], scene: QueueScene
) -> None:
    end(scene, state, **outcome)
    before = scene.row(NAME)
    scene.aws.made.clear()

    assert [scene.endings.publish("p", [NAME]) for _ in range(2)] == [[], []]

    sends = ["SendTaskSuccess" if state == "SUCCEEDED" else "SendTaskFailure", "PutEvents", "Publish"]
    calls = sends if state == "FAILED" else sends[:2]
    assert (scene.aws.made, scene.aws.answers) == (["GetItem", *calls, "UpdateItem", "GetItem"], [answer])
    request = {"flow": "slots", "process": "p", "request_id": "a", "attempt": 1, "priority": "high", "weight": 3}
    request["key"] = "acme"
    of_end = {"deduplication_id": f"{NAME}/{event['status']}", "finished_at": "2027-01-15T08:00:10.000Z"}
    assert details(scene) == [{"version": "1", "stack": "slotkeeper"} | request | of_end | event]
    assert len(scene.aws.published) == (state == "FAILED")
    kept = RETENTION.succeeded if state == "SUCCEEDED" else RETENTION.failed
    marked = {"expires": number(int(NOW + 60 + kept))} | ({"reason": {"S": "no month"}} if state == "FAILED" else {})
    gone = {"open", "task_token", "answer"}
    assert scene.row(NAME) == {name: value for name, value in before.items() if name not in gone} | marked
    assert ([row.execution for row in scene.published], scene.counted, scene.unsent) == ([NAME], [], [])


@pytest.mark.parametrize("state", sorted({*get_args(State)} - {"SUCCEEDED", "FAILED", "SKIPPED", "TOO_LATE"}))
def test_what_has_no_end_or_a_published_one_is_not_published(state: State, scene: QueueScene) -> None:
    """A message of EndingQueue may name any execution."""
    scene.accept(WAITED_FOR)
    scene.end(NAME, state)
    before = scene.row(NAME)
    assert scene.endings.publish("p", [NAME, "p-none"]) == []
    assert (scene.aws.answers, scene.aws.bus.entries, scene.row(NAME)) == ([], [], before)


@pytest.mark.parametrize(
    ("code", "cause", "reason"), [("Error", "c" * 40_000, "c" * MAX_REASON), ("WrongInput", "", "WrongInput")]
)
def test_a_reason_is_the_beginning_of_the_cause_or_the_code(
    code: str, cause: str, reason: str, scene: QueueScene
) -> None:
    end(scene, "FAILED", code=code, cause=cause)
    scene.endings.publish("p", [NAME])
    row = scene.row(NAME)
    assert (row["reason"]["S"], scene.aws.answers[0]["cause"], notices(scene)[0]["reason"]) == (reason,) * 3
    assert row["cause"]["S"] == cause[:MAX_CAUSE]


# Steps that fail

STEPS = ["SendTaskFailure", "PutEvents", "Publish", "UpdateItem"]


def steps_made(scene: QueueScene) -> list[str]:
    """Those since the last call of this function, without refused ones."""
    made = [each for each in scene.aws.made if each in STEPS]
    scene.aws.made.clear()
    return made


@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException", "KmsAccessDeniedException"])
@pytest.mark.parametrize(
    ("step", "metric"),
    [("SendTaskFailure", ["AnswersFailed"]), ("PutEvents", []), ("Publish", ["NoticesNotSent"])],
)
def test_after_a_step_that_fails_it_and_the_later_ones_wait_for_the_next_time(
    step: str, metric: list[str], code: str, scene: QueueScene
) -> None:
    """Also after a denied one, which an operator may permit later. The steps that are done are noted, so that they are
    not repeated each minute while a receiver is gone.
    """
    end(scene, "FAILED")
    refuse({"SendTaskFailure": scene.stepfunctions, "PutEvents": scene.events}.get(step, scene.sns), step, code, 2)
    at = STEPS.index(step)
    steps_made(scene)
    for done in (STEPS[:at] + ["UpdateItem"] * bool(at), []):
        assert scene.endings.publish("p", [NAME]) == [NAME]
        assert steps_made(scene) == done
    assert (scene.row(NAME).keys() >= UNPUBLISHED, scene.published) == (True, [])
    assert (scene.counted, len(scene.unsent)) == (metric * 2, 2 * (step == "PutEvents"))
    assert scene.endings.publish("p", [NAME]) == []
    assert steps_made(scene) == STEPS[at:]
    assert (len(scene.published), scene.row(NAME).keys() & (UNPUBLISHED | {"published"})) == (1, set())


@pytest.mark.parametrize("code", ["TaskTimedOut", "TaskDoesNotExist", "InvalidToken"])
@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "CANCELLED"])
def test_a_caller_that_is_gone_or_has_an_answer_counts_as_answered(code: str, state: State, scene: QueueScene) -> None:
    end(scene, state)
    refuse(scene.stepfunctions, "SendTaskSuccess" if state == "SUCCEEDED" else "SendTaskFailure", code)
    assert scene.endings.publish("p", [NAME]) == []
    assert (scene.counted, len(scene.aws.bus.entries)) == (["AnswersSpent"], 1)
    assert not scene.row(NAME).keys() & UNPUBLISHED


@pytest.mark.parametrize("metric", ["AnswersFailed", "MalformedRequests"])
def test_one_end_that_is_not_published_does_not_keep_back_the_others(metric: str, scene: QueueScene) -> None:
    end(scene, "CANCELLED")
    other = end(scene, "CANCELLED", Request("p", {}, "b"))
    if metric == "AnswersFailed":
        refuse(scene.stepfunctions, "SendTaskFailure", "ThrottlingException")
    else:
        scene.aws.tables.put("requests", scene.row(NAME) | {"attempt": {"S": "1"}})
    assert scene.endings.publish("p", [NAME, other]) == [NAME]
    assert (scene.counted, [row.execution for row in scene.published]) == ([metric], [other])
    assert (scene.aws.answers, "open" in scene.row(NAME)) == ([], True)


def test_an_end_that_is_recorded_meanwhile_is_published_too(scene: QueueScene) -> None:
    """An operator has redriven the execution, and its work has succeeded after all."""
    end(scene, "FAILED", code="Error", cause="why")
    before_write(scene.dynamodb, lambda _: scene.record(NAME, "SUCCEEDED", NOW + 20, answer="[7]"))
    assert scene.endings.publish("p", [NAME]) == [NAME]
    assert (UNPUBLISHED | {"answer"} <= scene.row(NAME).keys(), scene.published) == (True, [])
    refuse(scene.stepfunctions, "SendTaskSuccess", "TaskTimedOut")  # it has the first answer
    assert scene.endings.publish("p", [NAME]) == []
    assert [event["status"] for event in details(scene)] == ["FAILED", "SUCCEEDED"]
    assert [row.state for row in scene.published] == ["SUCCEEDED"]


def test_of_two_senders_at_work_one_marks_the_row(scene: QueueScene) -> None:
    end(scene, "CANCELLED")
    before_write(scene.dynamodb, lambda _: scene.endings.publish("p", [NAME]))
    assert scene.endings.publish("p", [NAME]) == [NAME]
    marked = scene.row(NAME)
    assert scene.endings.publish("p", [NAME]) == []
    assert (scene.row(NAME), len(scene.published), len(scene.aws.answers)) == (marked, 1, 1)


# Notifications


def test_a_notification_has_the_request_its_failure_and_no_token(scene: QueueScene) -> None:
    request = Request("p", {"--day": "1"}, "a", task_token=TOKEN)
    name = end(scene, "FAILED", request, code="Error", cause=RUN)
    scene.endings.publish("p", [name])
    (sent,) = scene.aws.published
    assert (sent["TopicArn"], sent["Subject"]) == (TOPIC, "Slotkeeper: a request of p failed")
    assert json.loads(sent["Message"]) == {
        "process": "p",
        "request_id": "a",
        "attempt": 1,
        "reason": "no month",
        "execution": execution_arn(WORKFLOW, name),
        "request": json.loads(request.to_json()),
        "error": "Error",
        "cause": RUN,
    }
    assert TOKEN not in str(scene.aws.published) + str(scene.aws.bus.entries)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


FIRE = "\U0001f525"
LARGE: dict[str, dict[str, Any]] = {
    "arguments": {"arguments": {"--text": FIRE * (MAX_BODY_BYTES // 4 - 100)}},
    "input": {"input": {"text": FIRE * (MAX_INPUT_BYTES // 4 - 100)}},
    "list": {"input": {"numbers": [1] * 15_000}},
    "quotes": {"arguments": {"--text": '"' * (MAX_BODY_BYTES // 2 - 500)}},
    "nested": {"input": nested(900)},
    "nested deeply": {"input": nested(5000)},
}


@pytest.mark.parametrize("fields", LARGE.values(), ids=LARGE)
def test_every_failure_can_be_notified(fields: dict[str, Any], scene: QueueScene) -> None:
    """SNS takes 256 KB (API Reference, Publish). A notification that it refuses would never be published."""
    body = json.dumps({"process": "p", "request_id": "a"} | fields, ensure_ascii=False)
    name = end(scene, "FAILED", parse_request(delivery(body)), code=FIRE * 300, cause=FIRE * 40_000)
    assert scene.endings.publish("p", [name]) == []
    (notice,) = notices(scene)
    assert (notice["reason"], notice["request_id"]) == (FIRE * MAX_REASON, "a")


# Messages that are no requests

REFUSED = {"message_id": "m1", "group_id": "p", "code": "InvalidRequest", "reason": "why"}


@pytest.mark.parametrize("token", ["", TOKEN])
def test_a_refused_message_is_answered_and_published(token: str, scene: QueueScene) -> None:
    scene.ending_queue.refused(
        delivery({"task_token": token, "weight": "heavy"}, message_id="m1"), "InvalidRequest", "why"
    )
    ((kind, refused),) = scene.to_publish[0].items()
    assert (kind, refused) == ("refused", REFUSED | ({"task_token": token} if token else {}))
    assert scene.endings.refused(refused) is True
    assert [each["error"] for each in scene.aws.answers] == ["InvalidRequest"] * bool(token)
    (event,) = details(scene)
    of_message = {"process": "p", "message_id": "m1", "code": "InvalidRequest", "reason": "why", "kept_in": "dead.fifo"}
    assert event.items() >= ({"status": "DEAD_LETTERED", "deduplication_id": "m1/DEAD_LETTERED"} | of_message).items()
    assert "request_id" not in event


@pytest.mark.parametrize("step", ["SendTaskFailure", "PutEvents"])
def test_a_refused_message_is_repeated_until_it_is_answered_and_published(step: str, scene: QueueScene) -> None:
    refused = REFUSED | {"task_token": TOKEN}
    refuse(scene.stepfunctions if step == "SendTaskFailure" else scene.events, step, "AccessDeniedException")
    assert scene.endings.refused(refused) is False
    assert scene.endings.refused(refused) is True
    assert (len({event["deduplication_id"] for event in details(scene)}), scene.aws.answers[-1]["error"]) == (
        1,
        "InvalidRequest",
    )
    refuse(scene.stepfunctions, "SendTaskFailure", "TaskTimedOut")
    assert scene.endings.refused(refused) is True


def test_ends_are_named_to_the_sender_in_messages_of_a_hundred(scene: QueueScene) -> None:
    names = [f"p-{at}" for at in range(150)]
    scene.ending_queue.publish("p", names)
    scene.ending_queue.publish("p", [])
    scene.ending_queue.publish_all("gone")
    assert scene.to_publish == [
        {"process": "p", "executions": names[:100]},
        {"process": "p", "executions": names[100:]},
        {"process": "gone"},
    ]
