"""`slotkeeper web`: what its pages read, with how many calls, and what they show of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.client import BaseClient

from slotkeeper.chatbot.token import ITEM_NAME
from slotkeeper.next_step import next_step
from slotkeeper_cli import account
from slotkeeper_cli.errors import NeedsYes, NotFound
from slotkeeper_cli.stack_connection import StackConnection, StackResource
from slotkeeper_cli.web import reading
from slotkeeper_cli.web.actions import READ_ONLY, Actions, Outcome
from slotkeeper_cli.web.failure_pages import _failure_row
from slotkeeper_cli.web.reading import HISTORY_KEPT, LONGEST_GAP, REFRESH, Seen, StackReader, Timeline
from slotkeeper_cli.web.timeline import spark
from tests.cli.account_contents import fail
from tests.cli.operator_account import NOW, Operator
from tests.support.module_time import replace_time


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the readings, to be changed by a test."""
    clock = [NOW]
    replace_time(monkeypatch, reading, time=lambda: clock[0])
    return clock


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The operations that were called."""
    made: list[str] = []
    real = BaseClient._make_api_call

    def counted(client: BaseClient, operation: str, arguments: Any) -> Any:
        made.append(operation)
        return real(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", counted)
    return made


@pytest.fixture
def reader(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> StackReader:
    # The account of these tests has no CloudFormation resources.
    monkeypatch.setattr(account, "resources", lambda _: [StackResource("Alarm", "alarm", "AWS::CloudWatch::Alarm")])
    return StackReader(StackConnection("slotkeeper"))


def test_an_overview_needs_the_calls_that_the_module_states(
    operator: Operator, reader: StackReader, calls: list[str], now: list[float]
) -> None:
    reader.overview()
    calls.clear()
    for number in range(50):
        operator.processes.create(f"process-{number}", 5, "job")
    operator.hold("a")
    calls.clear()
    now[0] += REFRESH
    shown = reader.overview().data
    assert len(shown.processes) == 51
    assert shown.not_read == []
    counted = {name: calls.count(name) for name in dict.fromkeys(calls)}
    assert counted == {"Scan": 2, "Query": 51, "GetQueueAttributes": 7, "DescribeAlarms": 1}


def test_a_process_has_its_queue_in_order_with_positions_and_reasons(
    operator: Operator, reader: StackReader, now: list[float]
) -> None:
    operator.hold("running")
    operator.wait("second")
    operator.wait("heavy", weight=9)
    operator.wait("first", priority="high")
    now[0] += 60
    shown = reader.process("sample").data["requests"]
    assert [(each["request_id"], each["position"], each["age_seconds"]) for each in shown] == [
        ("first", 1, 59),
        ("second", 2, 59),
        ("heavy", None, 59),
    ]
    assert [each["because"].partition(";")[0] for each in shown] == [
        "1 of 1 slot in use",
        "behind first, which is next",
        "blocked: weight 9 above the limit 1",
    ]
    queue = reader.overview().data.waiting["sample"]
    assert queue.number == "3"


def test_pages_that_are_open_at_the_same_time_share_a_reading(
    reader: StackReader, calls: list[str], now: list[float]
) -> None:
    first = reader.overview()
    calls.clear()
    assert reader.overview() is first
    assert calls == []
    now[0] += REFRESH
    assert reader.overview() is not first
    reader.forget()  # after an action
    calls.clear()
    reader.overview()
    assert "Scan" in calls


def test_what_no_page_shows_any_more_is_not_kept(reader: StackReader, now: list[float]) -> None:
    reader.request("a", None)
    reader.overview()
    assert len(reader._kept) == 2
    now[0] += HISTORY_KEPT + 1
    reader.overview()
    assert [*reader._kept] == [("overview",)]


def test_a_refresh_of_a_process_does_not_grow_with_what_has_ended(
    operator: Operator, reader: StackReader, calls: list[str], now: list[float]
) -> None:
    operator.hold("running")
    reader.process("sample")
    calls.clear()
    now[0] += REFRESH
    reader.process("sample")
    before = sorted(calls)
    for number in range(20):
        operator.stepfunctions.stop_execution(
            executionArn=operator.stepfunctions.start_execution(
                stateMachineArn=operator.outputs["WorkflowArn"], name=f"ended-{number}", input="{}"
            )["executionArn"]
        )
    calls.clear()
    now[0] += REFRESH
    reader.process("sample")
    assert sorted(calls) == before


def test_a_process_that_does_not_exist_is_named(reader: StackReader) -> None:
    with pytest.raises(NotFound, match="there is no process 'other'"):
        reader.process("other")


def test_what_could_not_be_read_is_named_and_the_rest_is_shown(
    reader: StackReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = BaseClient._make_api_call

    def denied(client: BaseClient, operation: str, arguments: Any) -> Any:
        if operation != "DescribeAlarms":
            return real(client, operation, arguments)
        raise client.exceptions.ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, operation)

    monkeypatch.setattr(BaseClient, "_make_api_call", denied)
    shown = reader.overview().data
    assert [each.partition(":")[0] for each in shown.not_read] == ["alarms"]
    assert shown.processes


def test_equal_failures_are_one_row_whose_group_the_commands_take(
    operator: Operator, reader: StackReader, calls: list[str]
) -> None:
    for request_id in "ab":
        fail(operator, request_id, "no such key")
    calls.clear()
    groups, not_read = reader.failures().data
    assert ([len(each.rows) for each in groups], not_read, calls) == ([2], [], ["Scan"])
    shown = _failure_row(groups[0])
    assert (shown["code"], shown["reason"], shown["requests"]) == ("Glue.Failed", "no such key", 2)
    assert shown["href"] == f"request?id={shown['newest']}&process=sample"
    ended = operator.run("--yes", *next_step("failed redrive", shown["group"]).arguments)
    assert "2 requests redriven, 0 left." in ended.stdout, ended.stderr
    reader.forget()
    assert reader.failures().data == ([], [])


def test_the_page_of_the_token_never_has_the_token(operator: Operator, reader: StackReader) -> None:
    item = {"token_name": {"S": ITEM_NAME}, "access_token": {"S": "the-secret"}}
    item |= {name: {"N": str(value)} for name, value in (("generation", 3), ("stored_at", NOW))}
    operator.dynamodb.put_item(TableName=operator.outputs["TokenTableName"], Item=item)
    shown = reader.token().data
    assert shown["generation"] == 3
    assert "the-secret" not in json.dumps(shown)


# ---------------------------------------------------------------------------------------------------------- timelines


def test_where_no_page_was_open_a_timeline_has_a_gap() -> None:
    timeline = Timeline()
    timeline.add(NOW, 1, 3)
    timeline.add(NOW + REFRESH, 1, 3)
    timeline.add(NOW + REFRESH + LONGEST_GAP + 1, 2, 3)
    assert timeline.until_now() == [
        Seen(NOW, 1, 3),
        Seen(NOW + REFRESH),
        Seen(NOW + REFRESH + LONGEST_GAP + 1, 2, 3),
        Seen(NOW + REFRESH + LONGEST_GAP + 1, 2, 3),
    ]


def test_a_row_shows_the_last_minutes_as_a_line_and_in_words() -> None:
    timeline = Timeline()
    assert spark(timeline, NOW) == {"recent": "", "recent_text": "not seen yet"}
    for at, in_use in ((0, 2), (20, 2), (40, 0), (60, 0)):
        timeline.add(NOW + at, in_use, 2)
    shown = spark(timeline, NOW + 60)
    assert shown["recent"] == "M112.0 1.0L117.3 1.0L117.3 19.0L120.0 19.0"
    assert shown["recent_text"] == "between 0 and 2 as seen in the last 15 minutes"


# ------------------------------------------------------------------------------------------------------------ actions


def test_a_command_s_question_is_found_in_what_it_prints(operator: Operator) -> None:
    operator.hold("a")
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--stop")
    assert Outcome(ended.exit_code, ended.stderr).question.startswith("Stop")
    assert Outcome(3, f"slotkeeper: no holder named '{NeedsYes.why}'. Nothing was changed.").question == ""


def test_a_sender_s_text_does_not_cut_a_question(operator: Operator) -> None:
    request_id = f"a {NeedsYes.why}"
    operator.hold(request_id)
    ended = operator.run("request", "cancel", request_id, "--process", "sample", "--stop")
    question = Outcome(ended.exit_code, ended.stderr.strip()).question
    assert question.startswith(f"Stop {request_id}, running since")
    assert question.endswith("?")


def test_the_shown_command_names_the_stack(operator: Operator) -> None:
    actions = Actions(StackConnection("other", profile="night"), False, lambda: None)
    assert actions.shown(next_step("process pause", "a b")).startswith(
        "slotkeeper --stack other --profile night --region "
    )
    assert actions.shown(next_step("process pause", "a b")).endswith("process pause 'a b'")


def test_a_process_of_the_address_is_no_option_of_a_command(operator: Operator) -> None:
    refused = operator.run(*next_step("process pause", "--all").arguments)
    assert refused.exit_code == 4
    assert not operator.process().paused


def test_without_write_no_command_runs(operator: Operator) -> None:
    actions = Actions(StackConnection("slotkeeper"), False, lambda: None)
    refused = asyncio.run(actions.run(next_step("process pause", "sample"), confirmed=True))
    assert refused == Outcome(3, READ_ONLY)
    assert not operator.process().paused
