"""`slotkeeper dlq list`, `show` and `discard`."""

from __future__ import annotations

import json

import pytest

from slotkeeper.slots.request import execution_name
from slotkeeper_cli.formatting import local_time
from tests.cli.account_contents import fail, fail_held, give_up, job_run, only_id, send_dead_letter, waiting
from tests.cli.operator_account import Operator


def test_list_shows_all_queues_with_their_codes(operator: Operator) -> None:
    send_dead_letter(operator)
    fail(operator, "b")
    give_up(operator)

    queues = {one["queue"]: one for one in operator.run("dlq", "list", "--json").json["queues"]}

    assert {name: (one["messages"], one["codes"]) for name, one in queues.items()} == {
        "request": (1, {"InvalidRequest": 1}),
        "failed": (1, {"Glue.Failed": 1}),
        "work": (1, {"AttemptsExhausted": 1}),
        "schedule": (0, {}),
    }
    (dead_letter,) = queues["work"]["dead_letters"]
    assert (dead_letter["request_id"], dead_letter["attempt"]) == ("w", 2)


def test_list_names_request_and_reason_on_one_line(operator: Operator) -> None:
    send_dead_letter(operator)
    execution = fail(operator, "b", cause=job_run("ValueError:\n  no month " + "x" * 300))
    message_id = only_id(operator, "FailedRequestQueue")
    shown = operator.run("dlq", "list").stdout.splitlines()
    assert "RequestDeadLetterQueue (request): 1  (1 InvalidRequest)" in shown
    assert "  m-1 (attempt 1)  InvalidRequest: because of InvalidRequest" in shown
    failed = shown.index("FailedRequestQueue (failed): 1  (1 Glue.Failed)")
    assert shown[failed + 1].startswith("  b (sample, attempt 1)  Glue.Failed: ValueError: no month xxx")
    assert shown[failed + 1].endswith("xxx...")
    assert shown[failed + 2].endswith(f"  execution {execution}  message {message_id}")
    (queue,) = operator.run("dlq", "list", "failed", "--json").json["queues"]
    assert queue["dead_letters"][0]["reason"] == "ValueError:\n  no month " + "x" * 300


def test_list_and_show_leave_every_message_visible(operator: Operator) -> None:
    send_dead_letter(operator)
    fail(operator)
    operator.run("dlq", "list")
    operator.run("dlq", "show", "request")
    assert len(waiting(operator, "RequestDeadLetterQueue")) == 1
    assert len(waiting(operator, "FailedRequestQueue")) == 1


def test_no_command_receives_from_request_queue_or_work_queue(operator: Operator) -> None:
    """What a command receives, the function does not."""
    asked: list[str] = []
    event = "provide-client-params.sqs.ReceiveMessage"
    operator.sqs.meta.events.register(event, note := lambda params, **_: asked.append(params["QueueUrl"]))
    for command in (("dlq", "list"), ("request", "show", "a"), ("dlq", "redrive", "request", "--all", "--yes")):
        operator.run(*command)
    operator.sqs.meta.events.unregister(event, note)
    assert asked
    assert not {operator.outputs["RequestQueueUrl"], operator.outputs["WorkQueueUrl"]} & set(asked)


def test_show_prints_body_and_attributes(operator: Operator) -> None:
    send_dead_letter(operator, '{"process": "sample", "urgent": true}')
    message_id = only_id(operator, "RequestDeadLetterQueue")
    (dead_letter,) = operator.run("dlq", "show", "request", "--id", message_id, "--json").json["dead_letters"]
    assert dead_letter["body"] == '{"process": "sample", "urgent": true}'
    assert dead_letter["attributes"]["source_message_id"] == "m-1"
    assert dead_letter["request_id"] == "m-1"
    assert "because of InvalidRequest" in operator.run("dlq", "show", "request").stdout


def test_show_prints_glue_s_message_once_and_times_in_words(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    send_dead_letter(operator)
    fail(operator, "b", cause=job_run("no such month"))
    shown = operator.run("dlq", "show", "failed").stdout
    assert "  reason: no such month\n" in shown
    assert "  glue run: jr_1\n" in shown
    assert shown.count("no such month") == 1
    assert "JobRunState" not in shown
    (message,) = operator.run("dlq", "show", "failed", "--json").json["dead_letters"]
    assert message["attributes"]["cause"] == job_run("no such month")
    assert f"  sent at: {local_time(1_790_000_001)}\n" in operator.run("dlq", "show", "request").stdout


def test_show_cuts_a_very_long_message(operator: Operator) -> None:
    fail(operator, cause="x" * 5000)
    assert f"reason: {'x' * 4000}... (the whole text: --json)\n" in operator.run("dlq", "show", "failed").stdout


def test_an_unknown_id_is_answered_with_what_the_queue_has(operator: Operator) -> None:
    for name in ("show", "redrive", "discard"):
        ended = operator.run("dlq", name, "failed", "--id", "other", "--yes")
        assert ended.exit_code == 4
        assert "FailedRequestQueue has no message with id other. The queue is empty" in ended.stderr
    fail(operator, "b")
    ended = operator.run("dlq", "redrive", "failed", "--id", "b", "--id", "other", "--yes")
    assert ended.exit_code == 4
    has_b = "It has: b (sample, attempt 1). List them with: slotkeeper dlq list failed"
    assert f"has no message with id other. {has_b}" in ended.stderr
    assert len(waiting(operator, "FailedRequestQueue")) == 1


def test_discard_deletes_the_messages_of_a_request_and_audits_their_bodies(operator: Operator) -> None:
    fail(operator, "a")
    operator.run("request", "redrive", "sample", "a", "--yes")
    again = execution_name("sample", "a", 2)
    operator.start(again)
    fail_held(operator, again)
    fail(operator, "a", process="sample", task_token="t" * 100)
    fail(operator, "b")
    asked = operator.asks("dlq", "discard", "failed", "--id", "a")
    assert "Delete 2 messages (a (sample, attempt 2), a (sample, attempt 1)) of FailedRequestQueue" in asked
    assert operator.run("dlq", "discard", "failed", "--id", "a", "--yes").exit_code == 0
    (left,) = waiting(operator, "FailedRequestQueue")
    assert json.loads(left["Body"])["request_id"] == "b"
    lines = [line for line in operator.audited() if line["action"] == "dlq discard"]
    assert [line["request_id"] for line in lines] == ["a", "a"]
    assert [json.loads(line["body"])["attempt"] for line in lines] == [2, 1]


@pytest.mark.parametrize(("options", "code"), [((), 2), (("--code", "None"), 4)])
def test_discard_rejects_an_empty_or_unknown_selection(operator: Operator, options: tuple[str, ...], code: int) -> None:
    send_dead_letter(operator)
    assert operator.run("dlq", "discard", "request", *options, "--yes").exit_code == code
    assert len(waiting(operator, "RequestDeadLetterQueue")) == 1
