"""Metrics, log lines and events of a worker that watches its downstream.

It publishes each change of a breaker that it has written, once, after the message's outcome.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from slotkeeper.retry import Retryable, WorkRequest
from slotkeeper.retry.downstream.downstreams import DownstreamTable
from slotkeeper.retry.downstream.rules import force_open
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.boundary import refuse
from tests.simulation.account.quick_clients import shared_client
from tests.template.metrics import in_output
from tests.unit.conftest import NOW, Load
from tests.unit.work_messages import invocation
from tests.unit.worker_function import WorkerFunction, work

TABLE = "downstreams"
THRESHOLD = 18
PERMITTED = 3


class Worker(WorkerFunction):
    """The worker of a stack that watches its downstreams."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module)
        self.table = DownstreamTable(shared_client("dynamodb"), TABLE)

    def fail(self, times: int = THRESHOLD) -> None:
        for number in range(times):
            self.handle(work(f"failing-{number}", fails="the downstream is down"))

    def lines(self, output: str) -> dict[str, dict[str, Any]]:
        """The log lines by their message."""
        parsed = [json.loads(line) for line in output.splitlines() if '"message"' in line]
        return {line["message"]: line for line in parsed}

    @property
    def changes(self) -> list[dict[str, Any]]:
        return [event for event in self.bus.published if "downstream" in event]


@pytest.fixture
def worker(work_account: AwsAccount, load: Load, monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setenv("DOWNSTREAM_TABLE_NAME", TABLE)
    monkeypatch.setenv("WORKER_CONCURRENCY", str(PERMITTED))
    return Worker(load("worker"))


def test_opening_and_closing_are_published_once(worker: Worker) -> None:
    worker.fail(THRESHOLD - 1)
    assert worker.changes == []
    worker.handle(work("the-last-failure", fails="the downstream is down"))
    worker.handle(work("held-back"))
    opened = {"version": "1", "stack": "test", "downstream": "default", "state": "OPEN", "epoch": 1}
    change = {"reason": "18 of the last 18 calls failed", "at": "2027-01-15T08:00:00.000Z"}
    assert [event | {"stack": "test"} for event in worker.changes] == [opened | change]

    worker.at(NOW + 31)
    worker.handle(work("probe"))
    worker.handle(work("after-it"))
    (_, closed) = worker.changes
    assert (closed["state"], closed["reason"], closed["epoch"]) == ("CLOSED", "the probe succeeded", 3)


def test_a_change_is_published_after_the_outcome_is_recorded(worker: Worker) -> None:
    calls: list[str] = []
    for client, operation in (
        (worker.events, "events.PutEvents"),
        (worker.consumer.ledger._table.dynamodb, "dynamodb"),
    ):
        client.meta.events.register_first(f"before-call.{operation}", lambda model, **_: calls.append(model.name))
    worker.fail()
    assert calls[-2:] == ["UpdateItem", "PutEvents"]


def test_a_change_is_published_in_the_time_that_recording_has_left(worker: Worker) -> None:
    """The work may use the whole invocation except the seconds for recording, as it does when the downstream hangs."""
    worker.fail(THRESHOLD - 1)
    left = iter([120.0] * 3)
    context = invocation()
    context.get_remaining_time_in_millis = lambda: int(next(left, 14.0) * 1000)
    worker.module.handler({"Records": [work("slow", fails="the downstream is down")]}, context)
    assert [event["state"] for event in worker.changes] == ["OPEN"]


def test_a_change_that_cannot_be_published_changes_nothing_else(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse(worker.events, "PutEvents", "AccessDeniedException", times=THRESHOLD)
    worker.fail()
    assert worker.handle(work("next")) == ["m1"]
    assert worker.table.read("default").breaker.state == "OPEN"
    assert worker.changes == []
    assert "EventsNotSent" in {metric.name for metric in in_output(capsys.readouterr().out)}


def test_a_permitted_attempt_reports_state_and_permitted_callers(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert worker.handle(work()) == []
    output = capsys.readouterr().out
    assert f'"PermittedCallers":[{PERMITTED}.0,{PERMITTED}.0]' in output  # asked and reported
    assert '"BreakerOpen":[0.0,0.0]' in output
    assert "WorkDeferred" not in output


def test_a_message_that_is_held_back_is_no_error_and_an_operators_change_is_not_published(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.table.change("default", lambda health: (force_open(health, NOW, "maintenance"), None))
    assert worker.handle(work()) == ["m1"]
    output = capsys.readouterr().out
    line = worker.lines(output)["Held the message back"]
    assert (line["level"], line["request_id"], worker.bus.calls) == ("INFO", "r", 0)
    assert line["reason"].startswith("downstream 'default': breaker; the message comes back in about ")
    assert '"WorkDeferred":[1.0]' in output
    assert '"BreakerOpen":[1.0]' in output
    assert "WorkLeft" not in output


def test_an_outcome_that_cannot_be_reported_is_logged_and_counted(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    def perform(_request: WorkRequest, _seconds: float) -> None:
        refuse(worker.consumer.downstreams.table._table.dynamodb, "GetItem", "ThrottlingException")
        raise Retryable("not now")

    worker.worker._perform = perform
    assert worker.handle(work()) == []
    output = capsys.readouterr().out
    line = worker.lines(output)["Could not report an attempt's outcome to the downstream's state"]
    assert (line["level"], "ThrottlingException" in line["reason"]) == ("WARNING", True)
    assert '"OutcomeNotReported":[1.0]' in output
