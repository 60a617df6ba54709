"""The worker's completion events, after a crash and while EventBridge fails: its requests end in any case."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.events import MAX_TRIES
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.boundary import Killed, kill_before, refuse
from tests.unit.conftest import Load
from tests.unit.work_messages import record
from tests.unit.worker_function import WorkerFunction, work


@pytest.fixture
def worker(work_account: AwsAccount, load: Load) -> WorkerFunction:
    return WorkerFunction(load("worker"))


def test_a_successful_request_is_published_with_its_result(worker: WorkerFunction) -> None:
    assert worker.handle(work()) == []
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


def test_a_worker_that_dies_between_ledger_and_event_publishes_at_the_redelivery(worker: WorkerFunction) -> None:
    kill_before(worker.events, "PutEvents")
    with pytest.raises(Killed):
        worker.handle(work())
    again = work()
    again["attributes"]["ApproximateReceiveCount"] = "2"
    assert worker.handle(again) == []
    (event,) = worker.bus.published
    assert (event["deduplication_id"], event["result"]) == ("r/1/SUCCEEDED", {"manifest": "work/published/r.json"})
    assert event["started_at"] == "2027-01-15T08:00:00.000Z"


# The request after its last attempt.
EXHAUSTED = {"request_id": "r", "payload": {"fails": "not now"}, "retries": ["2027-01-14T08:00:00Z"] * 20}


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
    worker: WorkerFunction, work_account: AwsAccount, body: Any, code: str, expected: dict[str, Any]
) -> None:
    worker.handle(work("taken", message_id="m0"))
    assert worker.handle(record(body)) == []
    (_, event) = worker.bus.published
    (message,) = work_account.sent_to("work-dead")
    assert event == event | expected
    assert (event["flow"], event["code"], event["kept_in"]) == ("worker", code, "work-dead")
    assert event["reason"] == message["MessageAttributes"]["reason"]["StringValue"]


def test_a_dead_letter_that_was_not_sent_is_not_published(worker: WorkerFunction) -> None:
    refuse(worker.worker._consumer.dead_letters.sqs, "SendMessage", "AccessDenied")
    assert worker.handle(record(EXHAUSTED)) == ["m1"]
    assert worker.bus.published == []


@pytest.mark.parametrize("how", ["refused", "refused with HTTP 200"])
@pytest.mark.parametrize("body", ["junk", work()["body"]])
def test_a_message_is_consumed_although_its_event_cannot_be_published(
    worker: WorkerFunction, capsys: pytest.CaptureFixture[str], body: str, how: str
) -> None:
    if how == "refused":
        refuse(worker.events, "PutEvents", "AccessDeniedException")
    worker.bus.refuse_next = ["ThrottlingException"] * MAX_TRIES
    assert worker.handle(record(body)) == []
    output = capsys.readouterr().out
    assert '"EventsNotSent":[1.0]' in output
    assert "Could not publish an event" in output
