"""`slotkeeper retry report`: causes, changes, breakers and next steps, as text, as JSON and as a page."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from slotkeeper.retry.delivery import DeadLetterQueue
from slotkeeper.retry.downstream.downstreams import DownstreamTable
from slotkeeper.retry.downstream.rules import force_closed, force_open
from slotkeeper.retry.failures.reading import Bounds
from slotkeeper.retry.message import Message, instant
from slotkeeper_cli.commands import report
from tests.command.account_contents import retry_work, start_work
from tests.command.operator_account import Operator
from tests.command.pages import read_page

HOUR = 3600.0


class Failures:
    """Requests that failed, as the worker records them."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.dead_letters = DeadLetterQueue(operator.sqs, operator.outputs["WorkDeadLetterQueueUrl"])
        self.downstreams = DownstreamTable(operator.dynamodb, operator.outputs["DownstreamTableName"])

    def waits(self, request_id: str, ago: float = HOUR, error: str = "Unavailable: HTTP 503 after 2 s") -> None:
        now = time.time()
        retry_work(self.operator, Message(request_id, {}), now - ago, now, error, "crm")

    def lost(self, request_id: str, error: str = "Unavailable: HTTP 503 after 3 s") -> None:
        message = Message(request_id, {})
        ledger, claim = start_work(self.operator, message, time.time() - HOUR, "crm")
        ledger.record(message, claim, {"when": 0.0, "counted": True}, error, error.partition(":")[0])
        self.dead_letters.send(message, claim.started_at, "AttemptsExhausted", error, claim.history)
        ledger.settle_dead_lettered(message, claim)


@pytest.fixture
def failures(operator: Operator) -> Failures:
    return Failures(operator)


def test_the_report_compares_with_the_period_before_and_has_the_breakers_history(
    operator: Operator, failures: Failures
) -> None:
    failures.waits("r1")
    failures.waits("r2")
    failures.waits("r3", ago=30 * HOUR)
    failures.waits("r4", ago=30 * HOUR, error="Refused: no")
    failures.waits("r5", ago=50 * HOUR, error="Old: no")
    now = time.time()
    failures.downstreams.change("crm", lambda health: (force_open(health, now - 3 * HOUR, "planned"), None))
    failures.downstreams.change("crm", lambda health: (force_closed(health, now - 2 * HOUR, "done"), None))
    found = operator.run("retry", "report", "--json").json
    assert [(each["type"], each["ratio"], each["new"]) for each in found["causes"]] == [("Unavailable", 2.0, False)]
    assert [(each["type"], each["failures"]) for each in found["gone"]] == [("Refused", 1)]
    (breaker,) = found["breakers"]
    assert [breaker[name] for name in ("openings", "closings", "open_seconds", "is_open")] == [1, 1, 3600, False]
    assert "slotkeeper retry breaker show crm" in str(found["causes"][0]["next_steps"])
    text = operator.run("retry", "report").stdout
    assert "2 failures, 1.0 times as many as in the period before (2)" in text
    assert "gone since the period before: Refused: no (1 failure)" in text
    assert "breaker of crm: 1 opening, 1 closing, open for 1 h" in text


def test_malformed_items_are_counted_and_named(operator: Operator, failures: Failures) -> None:
    failures.waits("good")
    for name, at in (("bad-row", None), ("bad-time", {"S": "yesterday"})):
        failures.waits(name)
        entry = {"M": {"attempt": {"N": "1"}, "error": {"S": "e"}} | ({"at": at} if at else {})}
        operator.dynamodb.update_item(
            TableName=operator.outputs["RequestLedgerTableName"],
            Key={"request_id": {"S": name}},
            UpdateExpression="SET history = :bad",
            ExpressionAttributeValues={":bad": {"L": [entry]}},
        )
    operator.dynamodb.put_item(
        TableName=operator.outputs["DownstreamTableName"], Item={"downstream": {"S": "odd"}, "health": {"S": "{"}}
    )
    ended = operator.run("retry", "report")
    assert ended.exit_code == 0
    assert "3 malformed items" in ended.stdout
    assert all(name in ended.stdout for name in ("'bad-row'", "'bad-time'", "'odd'"))
    assert "1 failure," in ended.stdout


def test_an_empty_ledger_has_an_empty_report(operator: Operator, tmp_path: Path) -> None:
    ended = operator.run("retry", "report", "--html", str(tmp_path / "report.html"))
    assert ended.exit_code == 0
    assert "0 failures, as in the period before" in ended.stdout
    assert "No attempt failed." in (tmp_path / "report.html").read_text()


def test_what_was_not_read_is_stated(operator: Operator, failures: Failures, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        failures.lost(f"r{number}")
    monkeypatch.setattr(report, "MAX_DEAD_LETTERS", 10)
    monkeypatch.setattr(report, "Bounds", lambda: Bounds(pages=1))
    found = operator.run("retry", "report", "--json").json
    assert found["read"]["left_out"] == ["about 2 messages of WorkDeadLetterQueue, of 12"]
    assert found["causes"][0]["lost"] == 12
    assert "other causes" in str(found["causes"][0]["next_steps"])
    assert "Not read: about 2 messages of WorkDeadLetterQueue" in operator.run("retry", "report").stdout


def test_help_states_the_maximum_number_of_calls(operator: Operator) -> None:
    assert f"{report.MAX_CALLS:,} calls" in " ".join(operator.run("retry", "report", "--help").stdout.split())


def test_the_page_is_well_formed_self_contained_and_escaped(
    operator: Operator, failures: Failures, tmp_path: Path
) -> None:
    failures.lost("<img src=x>", error="Refused: <script>alert()</script> & more")
    failures.waits("r1", ago=30 * HOUR)
    now = time.time()
    failures.downstreams.change("crm", lambda health: (force_open(health, now - HOUR, "<b>"), None))
    ended = operator.run("retry", "report", "--html", str(tmp_path / "report.html"), "--json")
    assert json.loads(ended.stdout)["failures"] == 1
    page = (tmp_path / "report.html").read_text()
    text = " ".join(read_page(page).texts)
    assert "Refused: <script>alert()</script> & more" in text
    assert "<img src=x>" in text
    assert "Failures of work on stack slotkeeper" in text
    assert f" {instant(now)[:10]} " in text


@pytest.mark.parametrize("columns", [80, 120])
def test_the_tables_fit_the_terminal(
    operator: Operator, failures: Failures, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    failures.lost("r1", error="AVeryLongNameOfAnErrorTypeThatSomeLibraryHasChosen: no")
    lines = operator.run("retry", "report").stdout.splitlines()
    start = next(place for place, line in enumerate(lines) if "error type" in line)
    assert max(len(line) for line in lines[start : start + 3]) <= columns
