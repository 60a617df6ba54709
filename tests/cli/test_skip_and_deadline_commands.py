"""The operator command knows requests that skip, and requests with a deadline."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from slotkeeper_cli.commands import audit
from slotkeeper_cli.periods import start_time
from tests.cli.account_contents import waiting
from tests.cli.operator_account import Operator

FUTURE, PAST = "2099-11-28T08:00:00+01:00", "2020-11-28T08:00:00+01:00"
SUBMIT = ("request", "submit", "--process", "sample", "--request-id", "nightly")
BODY = {"process": "sample", "request_id": "nightly"}


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


# Submit ------------------------------------------------------------------------------------------------------------


def test_submit_sends_both_fields_and_shows_the_deadline(operator: Operator) -> None:
    ended = operator.run(*SUBMIT, "--skip-if-busy", "--start-before", FUTURE, "--json")
    (sent,) = ended.json["sent"]
    assert (sent["when_busy"], sent["start_before"]) == ("skip", FUTURE)
    (message,) = waiting(operator, "RequestQueue")
    expected = BODY | {"arguments": {}, "attempt": 1, "when_busy": "skip", "start_before": FUTURE}
    assert json.loads(message["Body"]) == expected


@pytest.mark.usefixtures("zone")
def test_submit_takes_a_time_of_day_and_shows_it_with_date_and_zone(operator: Operator) -> None:
    output = operator.run(*SUBMIT, "--start-before", "08:00").stdout
    assert "  to start before 20" in output
    assert " 08:00:00 CE" in output  # CET or CEST


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        (1_795_734_000, "08:00", "2026-11-27T08:00:00+01:00"),  # 2026-11-27 00:00 CET
        (1_795_762_800, "08:00", "2026-11-28T08:00:00+01:00"),  # it is 08:00
        # 02:00 to 03:00 on 2026-03-29 does not exist: it is 00:30 CET, 03:15 CEST.
        (1_774_740_600, "03:30", "2026-03-29T03:30:00+02:00"),
        (1_774_740_600, "02:30", "2026-03-29T03:00:00+02:00"),
        (1_774_746_900, "02:30", "2026-03-30T02:30:00+02:00"),
        # 02:00 to 03:00 on 2026-10-25 comes twice: it is 02:10 and 02:45 CEST, 02:15 and 02:45 CET.
        (1_792_887_000, "02:30", "2026-10-25T02:30:00+02:00"),
        (1_792_889_100, "02:30", "2026-10-25T02:30:00+01:00"),
        (1_792_890_900, "02:30", "2026-10-25T02:30:00+01:00"),
        (1_792_892_700, "02:30", "2026-10-26T02:30:00+01:00"),
        (1_795_734_000, "2026-11-28T08:00", "2026-11-28T08:00:00+01:00"),
        (1_792_889_100, "2026-10-25T02:30", "2026-10-25T02:30:00+01:00"),
        (1_795_734_000, "2099-11-28T08+01:00", "2099-11-28T08:00:00+01:00"),
        (1_795_734_000, FUTURE, FUTURE),
    ],
)
def test_a_time_of_day_is_the_next_one_in_the_local_zone(now: int, text: str, expected: str) -> None:
    assert start_time(text, now) == expected


@pytest.mark.usefixtures("zone")
def test_the_period_of_an_audit_has_all_of_an_hour_that_the_clock_shows_twice() -> None:
    window = audit._window("2026-10-25T02:30", "2026-10-25T02:30", now=1_792_892_700)
    assert (window.since, window.until) == (1_792_888_200, 1_792_891_800)


def test_submit_refuses_a_file_with_a_deadline_that_has_passed(operator: Operator) -> None:
    ended = operator.run("request", "submit", "--file", "-", stdin=json.dumps(BODY | {"start_before": PAST}))
    assert ended.exit_code == 2
    assert f"line 1: start_before {PAST} (2020-11-28 07:00:00 UTC) has passed, so it would never start" in ended.stderr
    ended = operator.run("request", "submit", "--file", "-", "--skip-if-busy", stdin=json.dumps(BODY))
    assert ended.exit_code == 2


def test_status_shows_until_when_a_queued_request_may_start(operator: Operator) -> None:
    operator.processes.pause("sample")
    operator.wait("nightly", start_before=FUTURE)
    (process,) = operator.run("status", "--json").json["processes"]
    assert process["queue"]["first"]["start_before"] == "2099-11-28T07:00:00Z"
    assert ", to start before 2099-11-28 " in operator.run("status").stdout


@pytest.mark.parametrize(("is_paused", "level"), [(True, "warn"), (False, "ok")])
def test_doctor_names_a_queued_request_that_will_be_too_late(operator: Operator, is_paused: bool, level: str) -> None:
    operator.wait("nightly", start_before=FUTURE)
    if is_paused:
        operator.processes.pause("sample")
    (check,) = operator.run("doctor", "--only", "deadlines", "--json").json["checks"]
    assert check["level"] == level
    assert [f"before 2099-11-28 {END}" in each["what"] for each in check["findings"]] == [True] * is_paused


END = time.strftime("%H:%M:%S", time.localtime(4_099_532_400))
