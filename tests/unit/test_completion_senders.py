"""The senders of completion events, after a crash and while EventBridge fails: requests end in any case."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import boto3
import pytest

from slotkeeper.events import MAX_TRIES, CompletionEvents
from slotkeeper.slots.executions import Execution
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.request_events import RequestEvents
from tests.support.boundary import Killed, kill_before, refuse
from tests.support.completion_events import LIMITED_FLOW, Bus
from tests.unit.conftest import GRACE, NOW, Account, Load, request_record
from tests.unit.janitor_scene import JanitorScene
from tests.unit.work_account import WorkAccount, invocation, record


class Function:
    """A function's module, and the events that it publishes."""

    def __init__(self, module: ModuleType, events: CompletionEvents) -> None:
        self.module = module
        self.events = events._events
        self.bus = Bus(self.events)

    def handle(self, *records: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.module.handler({"Records": list(records)}, invocation())
        return answer


CONSUMED = {"batchItemFailures": list[Any]()}


# Starter


@pytest.fixture
def starter(load: Load) -> Function:
    module = load("starter")
    return Function(module, module._completion_events)


def test_a_message_that_the_starter_dead_letters_is_published(account: Account, starter: Function) -> None:
    assert starter.handle(request_record("junk", group="p")) == CONSUMED
    (event,) = starter.bus.published
    (message,) = account.messages(account.dead_letter_url)
    reason = message["MessageAttributes"]["reason"]["StringValue"]
    expected = {"status": "DEAD_LETTERED", "flow": LIMITED_FLOW, "process": "p", "message_id": "m1"}
    assert event == event | expected | {"code": "InvalidRequest", "kept_in": "dead.fifo", "reason": reason}
    assert "request_id" not in event


def test_a_request_that_ends_without_a_start_is_published_from_its_row(account: Account, starter: Function) -> None:
    body = {"process": "gone", "request_id": "a", "priority": "low", "weight": 3}
    assert starter.handle(request_record(body)) == CONSUMED
    (event,) = starter.bus.published
    execution = execution_name("gone", "a", 1)
    expected = {"status": "DEAD_LETTERED", "code": "UnknownProcess", "kept_in": account.request_table}
    expected |= {"request_id": "a", "priority": "low", "weight": 3, "message_id": "m1", "attempt": 1}
    assert event == event | expected
    assert event["deduplication_id"] == f"{execution}/DEAD_LETTERED"


def test_a_starter_that_dies_after_the_dead_letter_publishes_at_the_redelivery(
    account: Account, starter: Function
) -> None:
    kill_before(starter.events, "PutEvents")
    with pytest.raises(Killed):
        starter.handle(request_record("junk"))
    assert starter.handle(request_record("junk")) == CONSUMED
    assert [event["deduplication_id"] for event in starter.bus.published] == ["m1/DEAD_LETTERED"]
    assert len(account.messages(account.dead_letter_url)) == 1


# Janitor


class Janitor:
    """The janitor of one execution, with the completion events of its function."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.scene = JanitorScene(account)
        self.scene.start()
        self.unsent: list[str] = []
        self.events: Any = boto3.client("events")
        self.bus = Bus(self.events)
        sender = CompletionEvents(self.events, "default", "stack", on_unsent=self.unsent.append)
        account.settlement.on_kept = RequestEvents(sender, account.failed_url).failed

    def handle_event(self) -> None:
        self.account.free(self.scene.execution)
        self.account.event_at(self.scene.execution, NOW + 1)

    def run(self) -> None:
        self.account.run_at(NOW + 2 * GRACE)

    def kept(self) -> int:
        return len(self.account.messages(self.account.failed_url))


@pytest.fixture
def janitor(account: Account) -> Janitor:
    return Janitor(account)


def test_a_request_that_the_janitor_keeps_is_published_once(janitor: Janitor) -> None:
    janitor.scene.abort()
    janitor.handle_event()
    janitor.run()
    (event,) = janitor.bus.published
    assert event["execution_arn"].endswith(":execution:workflow:" + event["execution_name"])
    assert event == {
        **event,
        "status": "FAILED",
        "flow": LIMITED_FLOW,
        "process": "p",
        "request_id": "order-1",
        "attempt": 1,
        "execution_name": janitor.scene.execution,
        "deduplication_id": f"{janitor.scene.execution}/FAILED",
        "error": "ABORTED",
        "kept_in": "failed",
        "finished_at": "2027-01-15T08:00:00.000Z",
    }
    assert (janitor.kept(), janitor.unsent) == (1, [])


def test_a_kept_request_is_published_with_glue_s_message_and_without_the_run_s_arguments(janitor: Janitor) -> None:
    cause = 'States.TaskFailed: {"Arguments":{"--key":"secret"},"ErrorMessage":"no month","JobRunState":"FAILED"}'
    ended = Execution("p-1", "FAILED", NOW, input="{}", arn="arn:aws:states:us-east-1:1:execution:workflow:p-1")
    janitor.account.settlement.on_kept(ended, "RequestNotKept", cause)
    (event,) = janitor.bus.published
    assert (event["error"], event["cause"]) == ("RequestNotKept", "no month")


@pytest.mark.parametrize(
    ("given", "priority", "weight"),
    [
        ({"priority": "high", "weight": 4}, "high", 4),
        ({"priority": {"a": 1}, "weight": "x" * 1000}, "normal", 0),
    ],
)
def test_a_kept_request_is_published_with_its_priority_and_weight(
    janitor: Janitor, given: Any, priority: str, weight: int
) -> None:
    ended = Execution("p-1", "FAILED", NOW, input=json.dumps(given), arn="arn:aws:states:us-east-1:1:execution:w:p-1")
    janitor.account.settlement.on_kept(ended, "RequestNotKept", "")
    (event,) = janitor.bus.published
    assert (event["priority"], event["weight"]) == (priority, weight)


def test_a_janitor_that_dies_before_publishing_publishes_in_its_next_run(janitor: Janitor) -> None:
    janitor.scene.abort()
    kill_before(janitor.events, "PutEvents")
    with pytest.raises(Killed):
        janitor.handle_event()
    janitor.run()
    assert [event["status"] for event in janitor.bus.published] == ["FAILED"]


def test_a_kept_request_is_settled_although_its_event_cannot_be_published(janitor: Janitor) -> None:
    janitor.scene.abort()
    janitor.bus.refuse_next = ["InternalFailure"] * MAX_TRIES
    janitor.handle_event()
    janitor.run()
    assert (janitor.kept(), len(janitor.unsent), janitor.bus.published) == (1, 1, [])


@pytest.mark.parametrize("given", ["[1]", '{"process": 1, "attempt": "x", "request_id": null}'])
def test_an_execution_with_manual_input_is_published_with_the_fields_that_can_be_read(
    account: Account, janitor: Janitor, given: str
) -> None:
    arn = account.stepfunctions.start_execution(stateMachineArn=account.workflow_arn, name="manual", input=given)
    account.stepfunctions.stop_execution(executionArn=arn["executionArn"])
    account.event_at("manual", NOW)
    (event,) = janitor.bus.published
    assert (event["execution_name"], "request_id" in event) == ("manual", False)


# Worker


@pytest.fixture
def worker(work_account: WorkAccount, load: Load) -> Function:
    module = load("worker")
    module._worker._consumer._clock = lambda: NOW
    module._worker._perform = lambda request, _seconds: _perform(request)
    return Function(module, module._worker._events)


def _perform(request: Any) -> Any:
    if request.payload.get("fails"):
        raise RuntimeError("not now")
    return {"manifest": "work/published/r.json"}


def _work(request_id: str = "r", receives: int = 1, message_id: str = "m1", **payload: Any) -> dict[str, Any]:
    made = record({"request_id": request_id, "payload": payload}, message_id)
    made["attributes"]["ApproximateReceiveCount"] = str(receives)
    return made


def test_a_successful_request_is_published_with_its_result(worker: Function) -> None:
    assert worker.handle(_work()) == CONSUMED
    (event,) = worker.bus.published
    del event["finished_at"]
    assert event == {
        "version": "1",
        "stack": "slotkeeper",
        "flow": "worker",
        "status": "SUCCEEDED",
        "deduplication_id": "r/1/SUCCEEDED",
        "request_id": "r",
        "attempt": 1,
        "result": {"manifest": "work/published/r.json"},
        "started_at": "2027-01-15T08:00:00.000Z",
    }


def test_values_that_json_cannot_express_are_published_as_null(worker: Function) -> None:
    worker.module._worker._perform = lambda *_: {"mean": float("nan"), "n": 0}
    worker.handle(_work())
    assert worker.bus.published[0]["result"] == {"mean": None, "n": 0}


def test_a_worker_that_dies_between_ledger_and_event_publishes_at_the_redelivery(worker: Function) -> None:
    kill_before(worker.events, "PutEvents")
    with pytest.raises(Killed):
        worker.handle(_work())
    assert worker.handle(_work(receives=2)) == CONSUMED
    (event,) = worker.bus.published
    assert (event["deduplication_id"], event["result"]) == ("r/1/SUCCEEDED", {"manifest": "work/published/r.json"})
    assert event["started_at"] == "2027-01-15T08:00:00.000Z"


def test_r2_a_repeated_request_in_another_message_publishes_nothing(worker: Function) -> None:
    worker.handle(_work())
    worker.handle(_work(message_id="m2"))
    assert len(worker.bus.published) == 1


# The request after its last attempt.
EXHAUSTED = {"request_id": "r", "payload": {"fails": 1}, "retries": ["2027-01-14T08:00:00Z"] * 20}


def test_a_failed_attempt_with_a_retry_publishes_nothing(worker: Function) -> None:
    worker.handle(_work(fails=True))
    assert worker.bus.published == []


@pytest.mark.parametrize(
    ("body", "code", "expected"),
    [
        ("junk", "InvalidMessage", {"message_id": "m1", "deduplication_id": "m1/DEAD_LETTERED"}),
        (
            {"request_id": "taken", "payload": {"other": 1}},
            "RequestIdReused",
            {"message_id": "m1", "request_id": "taken", "deduplication_id": "m1/DEAD_LETTERED"},
        ),
        (
            EXHAUSTED,
            "AttemptsExhausted",
            {
                "request_id": "r",
                "attempt": 21,
                "deduplication_id": "r/21/DEAD_LETTERED",
                "started_at": "2027-01-14T08:00:00.000Z",
            },
        ),
    ],
)
def test_a_request_that_the_worker_dead_letters_is_published(
    worker: Function, work_account: WorkAccount, body: Any, code: str, expected: dict[str, Any]
) -> None:
    worker.handle(_work("taken", message_id="m0"))
    assert worker.handle(record(body)) == CONSUMED
    (_, event) = worker.bus.published
    (message,) = work_account.dead_letters()
    assert event == event | expected
    assert (event["flow"], event["code"], event["kept_in"]) == ("worker", code, "work-dead")
    assert event["reason"] == message["MessageAttributes"]["reason"]["StringValue"]


def test_a_dead_letter_that_was_not_sent_is_not_published(worker: Function) -> None:
    refuse(worker.module._worker._consumer._dead_letters._sqs, "SendMessage", "AccessDenied")
    assert worker.handle(record(EXHAUSTED)) == {"batchItemFailures": [{"itemIdentifier": "m1"}]}
    assert worker.bus.published == []


# EventBridge does not answer


@pytest.mark.parametrize("how", ["refused", "refused with HTTP 200"])
@pytest.mark.parametrize(("function", "body"), [("starter", "junk"), ("worker", "junk"), ("worker", _work()["body"])])
def test_a_message_is_consumed_although_its_event_cannot_be_published(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], function: str, body: str, how: str
) -> None:
    made: Function = request.getfixturevalue(function)
    if how == "refused":
        refuse(made.events, "PutEvents", "AccessDeniedException")
    made.bus.refuse_next = ["ThrottlingException"] * MAX_TRIES
    assert made.handle(request_record(body)) == CONSUMED
    output = capsys.readouterr().out
    assert '"EventsNotSent":[1.0]' in output
    assert "Could not publish an event" in output
