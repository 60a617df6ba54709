"""`slotkeeper web`: the readings of its pages, their calls, long tables, and the commands that pages may run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from botocore.client import BaseClient

from slotkeeper.next_step import NextStep, next_step
from slotkeeper_cli.errors import CommandRefused, NeedsYes
from slotkeeper_cli.formatting import local_time
from slotkeeper_cli.look.pages import render
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.unread import UnreadSource
from slotkeeper_cli.web import pages
from slotkeeper_cli.web.actions import READ_ONLY, Actions, Outcome, reads
from slotkeeper_cli.web.frame import PAGE_ROWS, View
from slotkeeper_cli.web.reading import PageReadings, badges
from tests.command.account_contents import fail, send_dead_letter, succeed
from tests.command.operator_account import NOW, Operator, StubbedCalls, stack_of
from tests.command.situations import set_clock


@pytest.fixture
def readings(operator: Operator, a_minute_later: None) -> Iterator[PageReadings]:
    with stack_of(("SomeAlarm", "some-alarm", "AWS::CloudWatch::Alarm")):
        yield PageReadings(StackConnection("slotkeeper"))


def _view(writes: bool = True, **query: str) -> View:
    return View(writes, "page", query, str)


def _overview(data: Mapping[str, Any], **query: str) -> Mapping[str, Any]:
    return pages._overview(data, _view(**query), lambda _: {})


# ------------------------------------------------------------------------------------------------------------- readings


def test_no_start_is_expected_while_the_starter_receives_no_message(operator: Operator, readings: PageReadings) -> None:
    operator.wait("a")
    assert readings.process("sample").read()["requests"][0]["expected_start"] is not None
    operator.event_source = "Disabled"
    readings.account.forget()
    assert readings.process("sample").read()["requests"][0]["expected_start"] is None


def test_a_refresh_needs_few_calls_also_with_many_processes_and_much_that_has_ended(
    operator: Operator, readings: PageReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    real = BaseClient._make_api_call
    monkeypatch.setattr(BaseClient, "_make_api_call", lambda *asked: made.append(asked[1]) or real(*asked))

    def refreshed() -> list[list[str]]:
        found = []
        for page in (readings.overview(), readings.process("sample")):
            readings.account.forget()
            made.clear()
            page.read()
            found.append(sorted(made))
        return found

    operator.hold("running")
    refreshed()  # readings that are made once
    before = refreshed()
    for number in range(50):
        operator.processes.create(f"process-{number}", 5, "job")
    for number in range(30):
        succeed(operator, f"ended-{number}", f"process-{number}")
    assert refreshed() == before
    assert len(before[0]) <= 40, before


def test_what_could_not_be_read_is_named_and_taken_for_neither_absent_nor_dead(
    operator: Operator, readings: PageReadings
) -> None:
    operator.hold("running")
    denied = {"Error": {"Code": "AccessDenied", "Message": "no"}}
    calls = dict.fromkeys(("ListExecutions", "DescribeExecution"), lambda _: denied)
    with StubbedCalls("cloudwatch", {"DescribeAlarms": lambda _: denied}), StubbedCalls("stepfunctions", calls):
        data = readings.overview().read()
        (holder,) = pages._queue(readings.process("sample").read(), _view())["holders"]
    shown = _overview(data)
    assert "alarms" in [each["source"] for each in shown["not_read"]]
    assert [each["value"] for each in shown["tiles"]] == ["0", "1", "0", "not read"]
    assert "Alarms" not in badges(data)
    assert holder["dead"] == ""


def test_a_button_of_a_cause_redrives_all_of_its_failures(operator: Operator, readings: PageReadings) -> None:
    for request_id in "ab":
        fail(operator, request_id, "no such key")
    fail(operator, "c", "another cause")
    view = _view(q="no such")
    render("failures.html", **pages._failures(readings.failures(86400.0).read(), view, period="24h"), view=view)
    (step,) = [each.step for each in view.offers.values() if each.title == "Redrive"]
    assert isinstance(step, NextStep)
    assert step.endswith("--since 24h")  # as many as the page shows
    ended = operator.run("--yes", *step.arguments)
    assert "2 requests redriven, 0 left." in ended.stdout, ended.stderr


# ----------------------------------------------------------------------------------------------------- what is shown of


def test_processes_in_trouble_come_first_then_busy_ones_and_idle_ones_are_folded(
    operator: Operator, readings: PageReadings
) -> None:
    for name in ("busy", "idle", "stopped", "paused"):
        operator.processes.create(name, 2, "job")
    operator.hold("a", "busy")
    operator.processes.set_limit("stopped", 0)
    operator.wait("b", "stopped")
    operator.processes.pause("paused")
    shown = _overview(readings.overview().read())
    assert [(each["name"], each["state"]) for each in shown["paged"]["rows"]] == [
        ("stopped", "no slots"),
        ("busy", "running"),
        ("paused", "paused"),
    ]
    assert [each["name"] for each in shown["idle"]] == ["idle", "sample"]
    assert badges(readings.overview().read())["Processes"] == len(shown["attention"])


def test_a_thousand_processes_are_found_by_name_in_pages(readings: PageReadings) -> None:
    data = dict(readings.overview().read())
    (one,) = data["processes"]
    data["processes"] = [{**one, "name": f"process-{number:04}", "slots_in_use": 1} for number in range(1000)]
    shown = _overview(data, page="20")
    assert (len(shown["paged"]["rows"]), shown["paged"]["first"], shown["paged"]["all"]) == (PAGE_ROWS, 951, 1000)
    found = _overview(data, q="SS-0999", page="7")
    assert [each["name"] for each in found["paged"]["rows"]] == ["process-0999"]


def test_of_ten_thousand_queued_requests_a_page_is_shown_and_the_number_is_right(
    operator: Operator, readings: PageReadings
) -> None:
    operator.hold("running")
    operator.wait("first", priority="high")
    data = dict(readings.process("sample").read())
    (one,) = data["requests"]
    data |= {"requests": [{**one, "execution": f"e-{n}"} for n in range(10_000)], "queued": 10_000}
    shown = pages._queue(data, _view(page="200"))
    assert (shown["queued"], len(shown["paged"]["rows"]), shown["paged"]["last"]) == ("10,000", PAGE_ROWS, 10_000)
    assert pages._queue({**data, "is_cut": True}, _view())["queued"] == "more than 10,000"


def test_a_reason_that_is_an_address_is_no_link_to_the_aws_console(operator: Operator, readings: PageReadings) -> None:
    fail(operator, cause="https://example.com/sign-in")
    view = _view()
    shown = render("request.html", **pages._request(readings.request("a", None).read(), view, "a"), view=view)
    assert "<dd>https://example.com/sign-in</dd>" in shown


def test_a_time_in_a_text_of_a_command_is_shown_in_the_zone_of_the_page() -> None:
    shown = _view().timed(f"It <failed> at {local_time(NOW)}, and since 2026-09-21T14:13:20Z.")
    assert shown.startswith("It &lt;failed&gt; at <time datetime=")
    assert shown.count('datetime="2026-09-21T14:13:20.000000Z"') == 2


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        ({}, "immediately"),
        ({"slots_in_use": 1}, "when a slot is free"),
        ({"paused": True}, "after the pause"),
        ({"slot_limit": 0}, "when the limit is 1 or more"),
        ({"rate": "1/hour"}, "when its rate permits it"),
        ({"target": "none"}, "leases only"),
    ],
)
def test_of_an_empty_queue_the_page_says_when_a_request_starts(
    settings: dict[str, Any], starts: str, readings: PageReadings
) -> None:
    data = readings.process("sample").read()
    shown = pages._queue({**data, "process": data["process"] | settings}, _view())
    assert starts in shown["none"]
    assert (shown["submit"] is None) == (starts == "leases only")


def test_a_reservation_without_an_execution_is_not_dead(operator: Operator, readings: PageReadings) -> None:
    operator.processes.set_limit("sample", 3)
    operator.hold("reserved", started=False, confirmed=False)
    operator.hold("lost", started=False)
    operator.lease("just-ended", NOW)
    data = readings.process("sample").read()
    shown = {each["request_id"] or each["execution"]: each["dead"] for each in pages._queue(data, _view())["holders"]}
    assert shown == {"reserved": "", "lost": "execution not found", "just-ended": "expired"}


def test_a_process_whose_queue_was_not_read_is_not_idle(readings: PageReadings) -> None:
    (process,) = readings.overview().read()["processes"]
    assert pages._state(process) == ("idle", "off")
    assert pages._state(process | {"queue": process["queue"] | {"queued": None}}) == ("queue not read", "warn")


@pytest.mark.parametrize("text", ["0000-00-00 00:00:00 UTC", "2026-09-21T25:00:00Z", "2026-09-21 14:13:20 XYZ"])
def test_a_time_that_no_command_has_written_stays_as_it_is(text: str) -> None:
    assert _view().timed(f"failed at {text}.") == f"failed at {text}."


def test_a_page_of_the_address_is_not_trusted() -> None:
    for given in ("0", "-3", "x", "9" * 40, "²"):
        assert _view(page=given).page_of(range(10))["page"] == 1
    assert _view(page="99").page_of(range(60))["page"] == 2


# -------------------------------------------------------------------------------------------------------------- actions


@pytest.mark.parametrize("given", [{}, *({"limit": [each]} for each in ("0", "-1", "1.5", "--all", ""))])
def test_a_limit_that_is_no_number_is_no_command(given: dict[str, list[str]]) -> None:
    with pytest.raises(CommandRefused, match="whole number from 1"):
        pages._limit(given, 1)


def test_the_buttons_of_dead_letters_and_breakers_are_commands(operator: Operator, readings: PageReadings) -> None:
    send_dead_letter(operator)
    view = _view()
    render("dead_letters.html", **readings.dead_letters().read(), view=view)
    offered: list[Any] = [each.step for each in view.offers.values()]
    assert len(offered) == 4
    (mail,) = pages._downstreams(readings.downstreams().read(), view)["downstreams"]
    breaker: Any = mail["step"]
    with pytest.raises(CommandRefused, match="Say why"):
        breaker({"why": [" "]})
    for step in (*offered, breaker({"why": ["-it's slow"]})):
        ended = operator.run(*step.arguments)
        assert (ended.exit_code, NeedsYes.why in ended.stderr) == (NeedsYes.exit_code, True), (step, ended.stderr)


def test_a_page_without_what_could_not_be_read_does_not_say_that_there_is_nothing() -> None:
    unread = UnreadSource("a source", "denied", 3).as_dict()
    view, nothing = _view(), {"groups": [], "not_read": []}
    assert pages._failures(nothing, view, "24h")["none"] == "Nothing has failed in this period."
    failures = pages._failures({**nothing, "not_read": [unread]}, view, "24h")
    assert failures["none"] == "Nothing has failed in this period in what could be read."
    queue = {"queue": "work", "name": "WorkDeadLetterQueue", "messages": [], "codes": [], "not_read": [unread]}
    shown = render("dead_letters.html", queues=[queue], view=view)
    assert "WorkDeadLetterQueue: 0 read<" in shown
    assert "No message could be read." in shown


def test_the_small_picture_has_what_holds_a_slot_since_before_the_hour(
    operator: Operator, readings: PageReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = operator.hold("a")
    operator.fail(name, "Glue.Failed", "no such month")  # its slot is released later
    set_clock(monkeypatch, NOW + 3 * 3600)
    svg = readings.spark("sample").read()["svg"]
    assert "at most 1 slots of sample in use in the last hour" in svg
    assert 'class="use" d="M0.0,100V8.0H1000.0' in svg, svg


def test_what_if_is_asked_of_the_period_of_the_page(readings: PageReadings) -> None:
    make = pages._period(readings.process("sample").read(), _view(), hours=3)["what_if"]
    assert make({"limit": ["5"]}) == "slotkeeper what-if sample --limit 5 --since 3h"


def test_a_read_only_console_offers_the_commands_that_change_nothing() -> None:
    view = _view(writes=False)
    for step in (next_step("explain", "a"), next_step("failed show", "a"), next_step("retry breaker show", "mail")):
        assert reads(step)
        assert view.runs(step)
    for step in (next_step("process pause", "list"), next_step("request cancel", "show", process="x")):
        assert not reads(step)
        assert view.runs(step) is None


def test_a_command_s_question_is_found_in_what_it_prints(operator: Operator) -> None:
    request_id = f"a {NeedsYes.why}"  # a sender's text does not cut it
    operator.hold(request_id)
    ended = operator.run("request", "cancel", request_id, "--process", "sample", "--stop")
    question = Outcome(ended.exit_code, ended.stderr.strip()).question
    assert question.startswith(f"Stop {request_id}, running since")
    assert question.endswith("?")
    assert Outcome(3, f"slotkeeper: no holder named '{NeedsYes.why}'. Nothing was changed.").question == ""


def test_the_shown_command_names_the_stack(operator: Operator) -> None:
    actions = Actions(StackConnection("other", profile="night"), False)
    shown = actions.whole(next_step("process pause", "a b"))
    assert shown.startswith("slotkeeper --stack other --profile night --region ")
    assert shown.endswith("process pause 'a b'")
    reconcile = actions.whole("slotkeeper stack reconcile")
    assert reconcile == shown.replace("process pause 'a b'", "stack reconcile")
    assert actions.whole("aws lambda list-functions") == "aws lambda list-functions"


def test_without_write_no_command_runs(operator: Operator) -> None:
    actions = Actions(StackConnection("slotkeeper"), False)
    refused = asyncio.run(actions.run(next_step("process pause", "sample"), confirmed=True))
    assert refused == Outcome(3, READ_ONLY)
    assert not operator.process().paused
