"""The scheduled report: its message, and its failures."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.retry.failures.analysis import FailureAnalysis
from slotkeeper.retry.failures.report import (
    MAX_CHARACTERS,
    MAX_MAILED_CAUSES,
    BreakerHistory,
    FailureReport,
    Period,
    mail,
)
from slotkeeper.retry.ledger import DEAD_LETTERED, MAX_ERROR_CHARACTERS, Row
from slotkeeper.retry.message import instant
from tests.simulation.account.cold_functions import Functions, invocation

NOW = 1_800_000_000.0
WEEK = 7 * 86400.0


def found(*rows: Row, breakers: tuple[BreakerHistory, ...] = ()) -> FailureReport:
    analysis = FailureAnalysis(Period(NOW - WEEK, NOW))
    for number, row in enumerate(rows):
        analysis.add_row(f"r{number}", row)
    return analysis.report(breakers)


def row(error_type: str, error: str = "e") -> Row:
    history = ({"attempt": 1, "at": instant(NOW - 60), "error": error, "type": error_type},)
    return Row(DEAD_LETTERED, 1, "c", 0.0, NOW, "h", history=history)


def test_the_message_has_the_causes_with_their_next_steps_and_the_command_for_more() -> None:
    sent = mail(found(row("RateLimited"), row("RateLimited"), row("Died")), "prod")
    assert sent.subject == "prod: 3 failures of work, 2 causes"
    lines = sent.text.splitlines()
    assert lines[0] == "Failures of work on stack prod, 2027-01-08 to 2027-01-15 (UTC)"
    assert "1. RateLimited: e" in lines
    assert "   2 failures (new) of 2 requests: 2 lost, 0 recovered, 0 waiting. Example: r1" in lines
    assert any(line.startswith("   - Raise the downstream's limit") for line in lines)
    assert any(line.startswith("   - Then redrive the 2 lost, if they are still in the queue") for line in lines)
    assert lines[-1].endswith("slotkeeper retry report --since 7d --stack prod")


def test_a_week_without_failures_is_reported_too() -> None:
    sent = mail(found(), "prod")
    assert sent.subject == "prod: 0 failures of work, 0 causes"
    assert "No attempt failed." in sent.text


def test_the_message_names_an_open_breaker() -> None:
    opened = BreakerHistory("crm", 2, 1, 5400.0, is_open=True, changes=(), incomplete=False)
    quiet = BreakerHistory("billing", 0, 0, 0.0, is_open=False, changes=(), incomplete=False)
    text = mail(found(breakers=(opened, quiet)), "prod").text
    assert "Breaker of crm: 2 openings, open for 90 min; it is open now." in text
    assert "billing" not in text


def test_the_message_stays_short_and_fits_sns() -> None:
    long = "é" * MAX_ERROR_CHARACTERS
    many = [row(f"{'T' * 60}{chr(97 + number)}", long) for number in range(20)]
    sent = mail(found(*many), "s" * 128)
    assert len(sent.subject) < 100
    assert len(sent.text) <= MAX_CHARACTERS
    assert f"{20 - MAX_MAILED_CAUSES} more causes." in sent.text


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> Any:
    with Functions(monkeypatch) as functions:
        yield functions


def _run(functions: Functions) -> Any:
    return functions.run(functions.load("retry_report"), {}, invocation(seconds=300))


def test_the_function_publishes_the_report_to_the_topic(function: Functions) -> None:
    ran = _run(function)
    assert ran.answer == {"failures": 0, "causes": 0, "rows": 0}
    (sent,) = function.account.published
    assert sent["TopicArn"].endswith(":failures")
    assert sent["Subject"] == "slotkeeper: 0 failures of work, 0 causes"
    assert "Published the retry report" in ran.logged


def test_a_failed_call_fails_the_invocation_so_that_its_alarm_rings(function: Functions) -> None:
    function.account.refuse = {"Publish": "AuthorizationErrorException"}
    ran = _run(function)
    assert isinstance(ran.raised, ClientError)
    assert "AuthorizationErrorException" in ran.logged
    assert function.account.published == []
