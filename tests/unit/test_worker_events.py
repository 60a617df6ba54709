"""The worker's completion events, after a crash and while EventBridge fails: its requests end in any case."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from slotkeeper.events import MAX_TRIES, CompletionEvents
from tests.support.boundary import Killed, kill_before, refuse
from tests.support.completion_events import Bus
from tests.unit.conftest import NOW, Load
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


@pytest.mark.parametrize("how", ["refused", "refused with HTTP 200"])
@pytest.mark.parametrize("body", ["junk", _work()["body"]])
def test_a_message_is_consumed_although_its_event_cannot_be_published(
    worker: Function, capsys: pytest.CaptureFixture[str], body: str, how: str
) -> None:
    if how == "refused":
        refuse(worker.events, "PutEvents", "AccessDeniedException")
    worker.bus.refuse_next = ["ThrottlingException"] * MAX_TRIES
    assert worker.handle(record(body)) == CONSUMED
    output = capsys.readouterr().out
    assert '"EventsNotSent":[1.0]' in output
    assert "Could not publish an event" in output
