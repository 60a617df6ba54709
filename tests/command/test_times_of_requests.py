"""Times that an operator gives: without a zone they are local, and the answer names the zone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from typer import BadParameter

from slotkeeper_cli.look.pages import when
from slotkeeper_cli.periods import period, start_time
from tests.command.account_contents import set_in_row, waiting
from tests.command.operator_account import Operator

FUTURE, PAST = "2099-11-28T08:00:00+01:00", "2020-11-28T08:00:00+01:00"
SUBMIT = ("request", "submit", "--process", "sample", "--request-id", "nightly")
BODY = {"process": "sample", "request_id": "nightly"}
pytestmark = pytest.mark.usefixtures("zone")


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


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
        (1_792_889_100, "2026-10-25T02:30", "2026-10-25T02:30:00+01:00"),
        (1_795_734_000, "2026-11-28T08:00", "2026-11-28T08:00:00+01:00"),
        (1_795_734_000, FUTURE, FUTURE),
        (1_795_734_000, "2099-11-28T08+01:00", FUTURE),  # which a request would not accept
    ],
)
def test_a_start_before_is_the_next_such_time_in_the_local_zone(now: int, text: str, expected: str) -> None:
    assert start_time(text, now) == expected


@pytest.mark.parametrize("text", ["8:00", "24:00", "tomorrow", "", "9999-01-01T00:00", PAST, "2020-11-28T08:00"])
def test_what_is_no_time_or_has_passed_is_no_start_before(text: str) -> None:
    with pytest.raises(BadParameter, match=r"has passed; it is 2026-11-27 00:00:00 CET|expected HH:MM, or a date and"):
        start_time(text, 1_795_734_000)


def test_a_period_has_all_of_an_hour_that_the_clock_shows_twice() -> None:
    assert period("2026-10-25T02:30", "2026-10-25T02:30", 1_792_892_700) == (1_792_888_200, 1_792_891_800)


def test_submit_sends_a_deadline_and_shows_it_with_date_and_zone(operator: Operator) -> None:
    assert "  to start before 2099-11-28 08:00:00 CET" in operator.run(*SUBMIT, "--start-before", FUTURE).stdout
    (sent,) = operator.run(*SUBMIT, "--skip-if-busy", "--start-before", "2099-11-28T08:00", "--json").json["sent"]
    assert (sent["when_busy"], sent["start_before"]) == ("skip", FUTURE)
    message = waiting(operator, "RequestQueue")[-1]
    expected = BODY | {"arguments": {}, "attempt": 1, "when_busy": "skip", "start_before": FUTURE}
    assert json.loads(message["Body"]) == expected


def test_submit_refuses_a_file_with_a_deadline_that_has_passed(operator: Operator) -> None:
    ended = operator.run("request", "submit", "--file", "-", stdin=json.dumps(BODY | {"start_before": PAST}))
    assert ended.exit_code == 2
    assert f"line 1: start_before {PAST} (2020-11-28 08:00:00 CET) has passed, so it would never start" in ended.stderr
    ended = operator.run("request", "submit", "--file", "-", "--skip-if-busy", stdin=json.dumps(BODY))
    assert ended.exit_code == 2


def test_each_printed_time_names_its_zone(operator: Operator) -> None:
    operator.processes.pause("sample")
    operator.wait("nightly", start_before=FUTURE)
    assert ", to start before 2099-11-28 08:00:00 CET" in operator.run("status").stdout
    heading, line, totals = operator.run("request", "list", "sample", "--since", "2026-09-01").stdout.splitlines()
    assert heading.split()[1:3] == ["sent", "(CEST)"]
    assert "09-21 16:13:20" in line
    assert "since 2026-09-01 00:00:00 CEST until" in totals


@pytest.mark.parametrize("zone_name", ["UTC", "Pacific/Kiritimati", "Pacific/Midway"])
def test_a_row_whose_time_is_no_date_does_not_end_an_answer(
    zone_name: str, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone_name)
    time.tzset()
    milliseconds = {"N": "1790000000000000"}
    set_in_row(operator, operator.wait("a"), sent=milliseconds, start_before=milliseconds)
    for command in ("explain a", "request list sample", "status", "status sample", "explain --process sample"):
        assert operator.run(*command.split()).exit_code == 0
    assert "9999-12-" in operator.run("explain", "a").stdout
    assert when(1.79e15) == when("9999-12-31T23:59:59Z")
