"""A caller's task token and a sender's control characters are in no output, and the token is in no other record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.printable import printable
from slotkeeper.retry.failures.analysis import FailureAnalysis
from slotkeeper.retry.failures.report import DeadLetterNote, Period, mail
from slotkeeper.slots.request import execution_name, without_token
from slotkeeper_cli.commands.report import as_dict, page
from slotkeeper_cli.requests import hide_tokens
from tests.command.account_contents import HOSTILE, fail, give_up, is_harmless, move_by_sqs, send_dead_letter, waiting
from tests.command.operator_account import Operator

TOKEN = "AQCkAAAAKgAAAAMAAAAAAAAAAbMARKERtoken/+=="
WITH_TOKEN = {"process": "sample", "request_id": "moved", "arguments": {}, "task_token": TOKEN}


NAMES = ("holds", "waits", "failed", "refused", "work")


def _id(name: str) -> str:
    return f"{name}{HOSTILE}"


@pytest.fixture
def everywhere(operator: Operator) -> str:
    """Hostile requests with a token in holders, executions and dead-letter messages; returns the holder's execution."""
    operator.processes.set_limit("sample", 3)
    holds = operator.hold(_id("holds"), task_token=TOKEN)
    operator.hold(_id("reserved"), task_token=TOKEN, started=False, confirmed=False)
    operator.wait(_id("waits"), task_token=TOKEN)
    move_by_sqs(operator, json.dumps(WITH_TOKEN))
    move_by_sqs(operator, json.dumps(WITH_TOKEN)[:-2], task_token=TOKEN, note=f'{{"task_token": "{TOKEN}"}}')
    move_by_sqs(operator, json.dumps({"input": json.dumps(WITH_TOKEN)}))
    send_dead_letter(operator, json.dumps({**WITH_TOKEN, "request_id": _id("refused"), "odd": 1}), "m-2")
    fail(operator, _id("failed"), cause=json.dumps({"Input": WITH_TOKEN}), task_token=TOKEN)
    give_up(operator, _id("work"))
    operator.sqs.send_message(
        QueueUrl=operator.outputs["WorkDeadLetterQueueUrl"],
        MessageBody=json.dumps({"request_id": "w", "payload": {"task_token": TOKEN}}),
    )
    return holds


READS = [
    ("status",),
    ("process", "list"),
    ("request", "list", "sample"),
    *(("request", "show", name) for name in ("moved", "w", *map(_id, ("holds", "waits", "failed", "work")))),
    ("dlq", "list"),
    *(("dlq", "show", queue) for queue in ("request", "work")),
    *(("dlq", "redrive", queue, "--all", "--dry-run") for queue in ("request", "work")),
    ("request", "list", "sample", "--since", "1h"),
    *(("failed", *words) for words in (["list"], ["show", "--process", "sample"], ["show", _id("failed")])),
    ("failed", "redrive", _id("failed"), "--dry-run"),
    ("retry", "list"),
    ("retry", "report"),
]
OTHERS = [
    *(("request", "show", _id(name)) for name in ("reserved", "refused", "never")),
    ("stack", "reconcile", "--check"),
    ("process", "set-limit", "sample", "2"),
    ("holder", "release", _id("holds")),
    ("request", "cancel", _id("holds"), "--stop", "--yes"),
    ("request", "cancel", _id("waits"), "--process", "sample", "--yes"),
    ("dlq", "redrive", "request", "--all", "--yes"),
    ("failed", "redrive", _id("failed"), "--yes"),
    ("dlq", "discard", "request", "--code", "none", "--yes"),
    ("dlq", "discard", "work", "--code", "none", "--yes"),
]


@pytest.mark.usefixtures("everywhere")
def test_no_command_prints_a_token_or_a_senders_control_characters(operator: Operator) -> None:
    shown = set()
    for command in [*READS, *((*command, "--json") for command in READS), *OTHERS]:
        ended = operator.run(*command)
        printed = ended.stdout + ended.stderr
        assert printed, command
        assert "MARKER" not in printed, command
        assert is_harmless(printed), (command, printed)
        shown |= {(name, "--json" in command) for name in NAMES if f"{name}\\u001b" in ended.stdout}
    assert shown == {(name, as_json) for name in NAMES for as_json in (False, True)}
    assert "MARKER" not in json.dumps(operator.audited())
    (sent,) = waiting(operator, "RequestQueue")
    assert _body(sent)["request_id"] == "moved"
    assert operator.states()[f"{_id('failed')}-2"] == "QUEUED"


def _body(message: Any) -> Any:
    return json.loads(message["Body"])


def test_a_moved_request_is_shown_and_redriven_without_its_token_and_with_its_input(operator: Operator) -> None:
    """The token that a state machine's own task waits with is a field of its input, which is the sender's."""
    given = {name: value for name, value in WITH_TOKEN.items() if name != "arguments"}
    move_by_sqs(operator, json.dumps({**given, "input": {"task_token": "of-another-task", "day": 1}}))

    shown = operator.run("dlq", "show", "request").stdout
    assert "  task_token: (hidden)\n" in shown
    (message,) = operator.run("dlq", "show", "request", "--json").json["dead_letters"]
    assert message["task_token"] == "(hidden)"
    assert "task_token" not in json.loads(message["body"])
    dry = operator.run("dlq", "redrive", "request", "--all", "--dry-run").stdout
    assert "would be sent again: moved (sample, attempt 1)  without its task_token\n" in dry

    (redriven,) = operator.run("dlq", "redrive", "request", "--all", "--yes", "--json").json["done"]

    (sent,) = waiting(operator, "RequestQueue")
    fields = {"process": "sample", "request_id": "moved", "attempt": 1}
    assert _body(sent) == {**fields, "input": {"task_token": "of-another-task", "day": 1}}
    assert redriven["task_token"] == "removed"


def test_submit_refuses_a_token(operator: Operator) -> None:
    ended = operator.run("request", "submit", "--file", "-", stdin=json.dumps(WITH_TOKEN))

    assert ended.exit_code == 2
    assert "line 1: it has a task_token, which only the task that waits for the answer can send" in ended.stderr
    assert waiting(operator, "RequestQueue") == []


# Requests of callers are found by id, although their executions have other names -------------------------------------


def _states(operator: Operator, given: str) -> list[tuple[str, int, str]]:
    found = operator.run("request", "show", given, "--json").json["found"]
    return [(one["state"], a["attempt"], a["execution"]) for one in found for a in one["attempts"]]


def test_requests_of_several_callers_are_separate_and_the_next_attempt_has_no_caller(operator: Operator) -> None:
    operator.processes.set_limit("sample", 3)
    names = {operator.hold("same", task_token=token) for token in ("one", "two")}
    assert {name for _, _, name in _states(operator, "same")} == names
    reason = operator.refuses("request", "cancel", "same", "--stop", "--yes")
    assert "several requests have the id same: give --process, or the name of an execution" in reason
    assert all(name in reason for name in names)

    first, again = fail(operator, task_token=TOKEN), execution_name("sample", "a", 2)
    operator.run("failed", "redrive", "a", "--yes")
    assert operator.row(again).task_token == ""
    assert _states(operator, "a") == [("queued", 1, first), ("queued", 2, again)], "one request"


# Texts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(WITH_TOKEN),
        json.dumps(WITH_TOKEN)[:-1],
        json.dumps([WITH_TOKEN]),
        json.dumps({"deep": [{"task_token": [TOKEN, {"x": TOKEN}]}]}),
        json.dumps({"text": json.dumps(WITH_TOKEN)}),
        json.dumps({"text": json.dumps({"text": json.dumps(WITH_TOKEN)})}),
        json.dumps(WITH_TOKEN).replace("task_token", "task\\u005ftoken"),
        f"task_token={TOKEN}",
        f"{{'task_token': '{TOKEN}'}}",
        f"{{task_token: [{TOKEN}]",
        "[" * 100_000 + json.dumps(WITH_TOKEN),
    ],
)
def test_no_token_can_be_read_in_a_hidden_text(body: str) -> None:
    assert "MARKER" not in hide_tokens(body)
    assert hide_tokens(hide_tokens(body)) == hide_tokens(body)


@pytest.mark.parametrize("body", ["", "not JSON", '{"a":1,  "b": "tokens"}', '{"a": "\\u00e9"}', "[1]", "null"])
def test_a_text_without_a_token_is_unchanged(body: str) -> None:
    assert (hide_tokens(body), without_token(body)) == (body, body)


def test_an_errors_own_lines_are_shown_indented(operator: Operator) -> None:
    fail(operator, "a", cause="first\nsecond\u202e")
    assert "  reason: first\n    second\\u202e\n" in operator.run("failed", "show", "a").stdout


def test_the_report_of_failures_contains_no_control_character() -> None:
    notes = [DeadLetterNote(f"id{HOSTILE}", f"Code{HOSTILE}", f"reason{HOSTILE}", 99.0, attempted=False)]
    found = FailureAnalysis(Period(0, 100), notes).report([])
    assert is_harmless(mail(found, "slots").text)
    assert is_harmless(page(as_dict(found, "slots")))


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("Größe 7 😀", "Größe 7 😀"),
        ("a\tb\n", "a\\tb\\n"),
        ("\x1b[31m", "\\u001b[31m"),
        ("\U000e0041", "\\udb40\\udc41"),
    ],
)
def test_a_character_that_cannot_be_printed_is_shown_as_in_json(given: str, shown: str) -> None:
    assert printable(given) == shown
    assert json.loads(f'"{shown}"') == given
