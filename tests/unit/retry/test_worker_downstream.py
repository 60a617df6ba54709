"""Metrics and log lines of a worker that watches its downstream."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from slotkeeper.retry import Retryable, WorkRequest
from slotkeeper.retry.downstream.downstreams import DownstreamTable
from slotkeeper.retry.downstream.health import Health
from slotkeeper.retry.downstream.rules import force_open
from tests.support.boundary import refuse
from tests.support.tables import create_table
from tests.unit.conftest import NOW
from tests.unit.work_account import WorkAccount, invocation, record

TABLE = "downstreams"
PERMITTED = 3


@pytest.fixture
def worker(work_account: WorkAccount, load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Any:
    create_table(work_account.dynamodb, TABLE, "downstream")
    monkeypatch.setenv("DOWNSTREAM_TABLE_NAME", TABLE)
    monkeypatch.setenv("WORKER_CONCURRENCY", str(PERMITTED))
    return load("worker")


def handle(worker: ModuleType, perform: Callable[[WorkRequest, float], Any]) -> int:
    """The number of messages that stay on the queue."""
    worker._worker._perform = perform
    answer = worker.handler({"Records": [record({"request_id": "r", "payload": {}})]}, invocation())
    return len(answer["batchItemFailures"])


def lines(output: str) -> dict[str, dict[str, Any]]:
    """The log lines by their message."""
    parsed = [json.loads(line) for line in output.splitlines() if '"message"' in line]
    return {line["message"]: line for line in parsed}


def test_a_permitted_attempt_reports_state_and_permitted_callers(
    worker: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert handle(worker, lambda *_: {}) == 0
    output = capsys.readouterr().out
    assert f'"PermittedCallers":[{PERMITTED}.0,{PERMITTED}.0]' in output  # asked and reported
    assert '"BreakerOpen":[0.0,0.0]' in output
    assert "WorkHeldBack" not in output


def test_a_message_that_is_held_back_is_no_error(
    worker: ModuleType, work_account: WorkAccount, capsys: pytest.CaptureFixture[str]
) -> None:
    table = DownstreamTable(work_account.dynamodb, TABLE)
    table.change("default", lambda _new: (force_open(Health(), NOW, "planned"), None))
    assert handle(worker, lambda *_: {}) == 1
    output = capsys.readouterr().out
    line = lines(output)["Held the message back"]
    assert (line["level"], line["request_id"]) == ("INFO", "r")
    assert line["reason"].startswith("downstream 'default': breaker; the message comes back in about ")
    assert '"WorkHeldBack":[1.0]' in output
    assert '"BreakerOpen":[1.0]' in output
    assert "WorkLeft" not in output


def test_an_outcome_that_cannot_be_reported_is_logged_and_counted(
    worker: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def perform(_request: WorkRequest, _seconds: float) -> None:
        refuse(worker._worker._consumer._downstreams._table._table.dynamodb, "GetItem", "ThrottlingException")
        raise Retryable("not now")

    assert handle(worker, perform) == 0
    output = capsys.readouterr().out
    line = lines(output)["Could not report an attempt's outcome to the downstream's state"]
    assert (line["level"], "ThrottlingException" in line["reason"]) == ("WARNING", True)
    assert '"OutcomeNotReported":[1.0]' in output
