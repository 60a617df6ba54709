"""The check of `slotkeeper audit` that no more requests started than the rate allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotkeeper.slots.rate import Rate
from slotkeeper_cli.audit import judge
from slotkeeper_cli.audit.history_checks import CheckResult, Result
from slotkeeper_cli.audit.work_history import AuditBounds, OperatorAct, Sending, WorkHistory
from slotkeeper_cli.stack_connection import UnreadSource
from tests.cli.work_histories import START, attempt, history, name, process

SIX_A_MINUTE = Rate(6, 60, 2)
EXACT = AuditBounds(reservation=-5.0)  # without the difference of two clocks


def _started(*seconds: float, rate: Rate | None = SIX_A_MINUTE, **fields: object) -> WorkHistory:
    """Requests that started so many seconds after START."""
    attempts = [attempt(f"r{number}", at, 1) for number, at in enumerate(seconds)]
    return history(attempts, **{"processes": {"sample": process(9, rate=rate)}, "bounds": EXACT, **fields})


def _rate(of: WorkHistory) -> CheckResult:
    (result,) = [each for each in judge(of) if each.id == "rate"]
    return result


@pytest.mark.parametrize(
    ("seconds", "result"),
    [
        ((0, 0, 10, 20, 30), Result.HOLDS),
        ((0, 0, 9.9), Result.FAILS),
        ((0, 100, 200, 200, 205), Result.FAILS),
        ((0, 100, 200, 200, 210), Result.HOLDS),
        ((0,), Result.NOT_SHOWN),
    ],
)
def test_more_starts_than_the_rate_allows_fail(seconds: tuple[float, ...], result: Result) -> None:
    assert _rate(_started(*seconds)).result is result


def test_a_failure_names_the_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    (example,) = _rate(_started(0, 100, 200, 200, 205)).examples
    assert example.startswith("sample: 3 starts within 5 s from ")
    assert example.endswith("its rate is 6/minute, burst 2")


def test_starts_that_were_granted_earlier_are_no_failure() -> None:
    """After six minutes the janitor would have freed a reservation without an execution."""
    many = [n / 10 for n in range(35)]
    assert _rate(_started(*many, bounds=AuditBounds())).result is Result.HOLDS
    assert _rate(_started(*many, *many, bounds=AuditBounds())).result is Result.FAILS


def test_starts_before_the_rate_was_set_are_left_out() -> None:
    change = OperatorAct(START + 100, "process set-rate", "sample")
    assert _rate(_started(0, 0, 0, 0, 200, acts=[change])).result is Result.NOT_SHOWN
    assert _rate(_started(0, 0, 200, 200, 200, acts=[change])).result is Result.FAILS


def test_without_the_audit_log_it_is_not_shown() -> None:
    unread = (UnreadSource("AuditLogGroup", "denied"),)
    assert _rate(replace(_started(0, 10, 20), not_read=unread)).result is Result.NOT_SHOWN


@pytest.mark.parametrize(("rate", "fails"), [(None, ["free"]), (SIX_A_MINUTE, [])], ids=str)
def test_a_request_may_wait_for_the_rate_while_a_slot_is_free(rate: Rate | None, fails: list[str]) -> None:
    sent = [Sending(name("r1"), START + 1, 7)]
    of = _started(0, 1200, rate=rate, sendings=sent, bounds=AuditBounds())
    assert [each.id for each in judge(of) if each.result is Result.FAILS] == fails


def test_without_a_rate_there_is_no_such_check() -> None:
    assert "rate" not in [each.id for each in judge(_started(0, 0, rate=None))]
