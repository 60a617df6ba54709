"""The operator command knows requests that skip, and requests with a deadline."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.slots.admission import Skipped, Waiting
from slotkeeper.slots.protocol import Candidate
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.commands import audit, submit
from slotkeeper_cli.formatting import start_time
from tests.cli.account_contents import NOW, fail, receive, run_before, send_dead_letter, starter, waiting
from tests.cli.operator_account import Operator
from tests.support.module_time import replace_time

FUTURE, PAST = "2099-11-28T08:00:00+01:00", "2020-11-28T08:00:00+01:00"
SUBMIT = ("request", "submit", "--process", "sample", "--request-id", "nightly")
BODY = {"process": "sample", "request_id": "nightly"}
REASON = "it could not start when it was received, since the process is full"


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def fill(operator: Operator) -> None:
    """Reserve the only slot of the process."""
    operator.slots.reserve(Candidate("sample", "sample-another"), NOW)


def skip(operator: Operator, **fields: Any) -> str:
    """Let a request be skipped, since the process is full; return its message id."""
    fill(operator)
    operator.send("nightly", when_busy="skip", **fields)
    sent = receive(operator)
    assert isinstance(starter(operator).admit(sent, NOW), Skipped)
    return sent.message_id


def wait_with_deadline(operator: Operator, start_before: str = FUTURE) -> None:
    fill(operator)
    operator.send("nightly", start_before=start_before)
    sent = replace(receive(operator), sent_at=time.time())
    assert isinstance(starter(operator).admit(sent, time.time()), Waiting)


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
        (1_795_734_000, "8:00", "8:00"),
        (1_795_734_000, "24:00", "24:00"),
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
    assert f"line 1: start_before {PAST} has passed" in ended.stderr
    ended = operator.run("request", "submit", "--file", "-", "--skip-if-busy", stdin=json.dumps(BODY))
    assert ended.exit_code == 2


def test_submit_waits_until_a_request_is_skipped(operator: Operator) -> None:
    skip(operator)
    ended = operator.run(*SUBMIT, "--skip-if-busy", "--wait", "--json")
    assert ended.exit_code == 0
    assert {name: ended.json["sent"][0][name] for name in ("status", "reason")} == {
        "status": "skipped",
        "reason": REASON,
    }


def test_submit_waits_no_longer_than_until_a_request_is_too_late(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [time.time()]
    replace_time(monkeypatch, submit, time=lambda: clock[0], sleep=lambda _: clock.__setitem__(0, clock[0] + 1e12))
    ended = operator.run(*SUBMIT, "--start-before", FUTURE, "--wait", "--json")
    assert ended.exit_code == 1
    assert ended.json["sent"][0]["status"] == "too late"
    assert "had not started when start_before passed. List them with: slotkeeper dlq list request" in ended.stderr


# Show, explain, status and doctor ----------------------------------------------------------------------------------


def test_show_finds_a_skipped_request_by_its_id_its_execution_and_its_message(operator: Operator) -> None:
    message_id = skip(operator)
    name = execution_name("sample", "nightly", 1)
    for given in ("nightly", name, message_id):
        (found,) = operator.run("request", "show", given, "--json").json["found"]
        assert (found["state"], found["request_id"]) == ("skipped", "nightly")
        assert found["attempts"][0]["reason"] == REASON
        (step,) = found["next_steps"]
        assert '"attempt": 2' in step
    output = operator.run("explain", "nightly").stdout
    assert f"it was skipped at 2026-09-21 {NOW_TEXT}" in output
    assert f"{REASON}. Nothing of it runs" in output


NOW_TEXT = time.strftime("%H:%M:%S", time.localtime(NOW))


def test_show_finds_a_skipped_request_with_a_caller_and_one_of_a_later_attempt(operator: Operator) -> None:
    skip(operator, task_token="token", attempt=7)
    (found,) = [one for one in operator.run("request", "show", "nightly", "--json").json["found"] if one["attempts"]]
    assert [(one["attempt"], one["state"]) for one in found["attempts"]] == [(7, "skipped")]


def test_show_prefers_the_execution_of_a_request_that_was_sent_again(operator: Operator) -> None:
    skip(operator)
    operator.processes.set_limit("sample", 2)
    operator.hold("nightly", when_busy="skip")
    (found,) = operator.run("request", "show", "nightly", "--json").json["found"]
    assert found["state"] == "running"


def test_a_skipped_request_cannot_be_cancelled(operator: Operator) -> None:
    skip(operator)
    ended = operator.run("request", "cancel", "nightly", "--attempt", "1", "--yes")
    assert ended.exit_code == 3
    assert "was skipped: there is nothing to cancel" in ended.stderr


def test_status_and_explain_show_until_when_a_waiting_request_may_start(operator: Operator) -> None:
    wait_with_deadline(operator)
    (process,) = operator.run("status", "--json").json["processes"]
    assert process["waiting"][0]["start_before"] == "2099-11-28T07:00:00Z"
    assert ", to start before 2099-11-28 " in operator.run("status").stdout
    output = " ".join(operator.run("explain", "nightly").stdout.split())
    assert "If it has not started before 2099-11-28 " in output
    assert "it is dead-lettered as TooLate" in output


@pytest.mark.parametrize(("is_paused", "level"), [(True, "warn"), (False, "ok")])
def test_doctor_names_a_waiting_request_that_will_be_too_late(operator: Operator, is_paused: bool, level: str) -> None:
    wait_with_deadline(operator)
    if is_paused:
        operator.processes.pause("sample")
    (check,) = operator.run("doctor", "--only", "deadlines", "--json").json["checks"]
    assert check["level"] == level
    assert [f"before 2099-11-28 {END}" in each["saw"] for each in check["findings"]] == [True] * is_paused


END = time.strftime("%H:%M:%S", time.localtime(4_099_532_400))


# Redrive -----------------------------------------------------------------------------------------------------------


def _dead_letter(operator: Operator, start_before: str) -> None:
    send_dead_letter(operator, json.dumps(BODY | {"start_before": start_before}), "TooLate")


def test_a_redrive_after_the_deadline_is_refused_with_what_to_do(operator: Operator) -> None:
    _dead_letter(operator, PAST)
    ended = operator.run("dlq", "redrive", "request", "--all", "--yes", "--json")
    assert ended.exit_code == 3
    why = f"its start_before, {PAST}, has passed: give a later one with --start-before"
    assert [each["why"] for each in ended.json["skipped"]] == [why]
    (found,) = operator.run("explain", "nightly", "--json").json["found"]
    assert found["next_steps"] == ["slotkeeper dlq redrive request --id nightly --start-before HH:MM"]


def test_a_redrive_replaces_the_deadline_of_requests_that_state_one(operator: Operator) -> None:
    _dead_letter(operator, PAST)
    send_dead_letter(operator, '{"process": "sample", "request_id": "plain"}', message_id="m-2", sequence="2")
    ended = operator.run("dlq", "redrive", "request", "--all", "--yes", "--start-before", FUTURE)
    assert ended.exit_code == 0
    sent = [json.loads(each["Body"]) for each in waiting(operator, "RequestQueue")]
    assert [(each["request_id"], each["attempt"], each.get("start_before")) for each in sent] == [
        ("nightly", 2, FUTURE),
        ("plain", 2, None),
    ]


def test_a_failed_request_is_not_redriven_after_its_deadline(operator: Operator) -> None:
    fail(operator, "nightly", start_before=PAST)
    assert operator.run("dlq", "redrive", "failed", "--all", "--yes").exit_code == 3
    assert operator.run("dlq", "redrive", "failed", "--all", "--yes", "--start-before", PAST).exit_code == 2
    assert waiting(operator, "RequestQueue") == []


def test_the_audit_does_not_take_a_returned_request_that_was_skipped_for_a_lost_one(operator: Operator) -> None:
    run_before(operator, "RequestReturned")
    fill(operator)
    operator.send("a", when_busy="skip", attempt=2)
    assert isinstance(starter(operator).admit(receive(operator), NOW), Skipped)
    (check,) = [one for one in operator.run("audit", "--json").json["checks"] if one["id"] == "accounted"]
    assert check["numbers"]["ends"] == {"queued again, then skipped": 1}
