"""`slotkeeper dlq list`, `show` and `discard`."""

from __future__ import annotations

import json

import pytest

from tests.cli.operator_account import Operator
from tests.cli.queue_contents import REQUEST, fail, give_up, only_id, send_dead_letter, waiting


def test_list_shows_all_queues_with_codes_and_reasons(operator: Operator) -> None:
    send_dead_letter(operator)
    name = fail(operator, "b")
    give_up(operator)

    queues = {one["queue"]: one for one in operator.run("dlq", "list", "--json").json["queues"]}

    assert {name: (one["messages"], one["codes"]) for name, one in queues.items()} == {
        "request": (1, {"Expired": 1}),
        "failed": (1, {"Glue.Failed": 1}),
        "work": (1, {"AttemptsExhausted": 1}),
        "schedule": (0, {}),
    }
    (dead_letter,) = queues["request"]["dead_letters"]
    assert (dead_letter["request_id"], dead_letter["attempt"], dead_letter["process"]) == ("a", 1, "sample")
    assert dead_letter["reason"] == "because of Expired"
    (dead_letter,) = queues["failed"]["dead_letters"]
    assert (dead_letter["request_id"], dead_letter["execution"], dead_letter["reason"]) == (
        "b",
        name,
        "the job failed",
    )
    (dead_letter,) = queues["work"]["dead_letters"]
    assert (dead_letter["request_id"], dead_letter["attempt"]) == ("w", 2)


def test_the_text_output_is_a_table(operator: Operator) -> None:
    send_dead_letter(operator)
    shown = operator.run("dlq", "list", "request").stdout
    assert "RequestDeadLetterQueue (request): 1  (1 Expired)" in shown
    assert "sample/a" in shown


def test_list_and_show_leave_every_message_visible(operator: Operator) -> None:
    send_dead_letter(operator)
    fail(operator)
    operator.run("dlq", "list")
    operator.run("dlq", "show", "request")
    assert len(waiting(operator, "RequestDeadLetterQueue")) == 1
    assert len(waiting(operator, "FailedRequestQueue")) == 1


def test_no_command_receives_from_request_queue_or_work_queue(operator: Operator) -> None:
    """Receiving a waiting request would invalidate the receipt handle with which it is woken (S6)."""
    asked: list[str] = []
    event = "provide-client-params.sqs.ReceiveMessage"
    operator.sqs.meta.events.register(event, note := lambda params, **_: asked.append(params["QueueUrl"]))
    for command in (("dlq", "list"), ("request", "show", "a"), ("dlq", "redrive", "request", "--all", "--yes")):
        operator.run(*command)
    operator.sqs.meta.events.unregister(event, note)
    assert asked
    assert not {operator.outputs["RequestQueueUrl"], operator.outputs["WorkQueueUrl"]} & set(asked)


def test_show_prints_body_and_attributes(operator: Operator) -> None:
    send_dead_letter(operator, '{"process": "sample"}')
    message_id = only_id(operator, "RequestDeadLetterQueue")
    (dead_letter,) = operator.run("dlq", "show", "request", "--id", message_id, "--json").json["dead_letters"]
    assert dead_letter["body"] == '{"process": "sample"}'
    assert dead_letter["attributes"]["source_message_id"] == "m-1"
    assert dead_letter["request_id"] == "m-1"
    assert operator.run("dlq", "show", "request", "--id", "nothing").exit_code == 4
    assert "because of Expired" in operator.run("dlq", "show", "request").stdout


def test_list_accepts_any_body(operator: Operator) -> None:
    for number, body in enumerate(
        ["not JSON", "[]", '"x"', '{"process": 5, "request_id": 6, "attempt": "x"}', "[" * 9999]
    ):
        send_dead_letter(operator, body, "InvalidRequest", f"m-{number}")
    assert operator.run("dlq", "list", "request", "--json").json["queues"][0]["messages"] == 5


def test_discard_deletes_messages_and_audits_their_bodies(operator: Operator) -> None:
    send_dead_letter(operator, code="Cancelled")
    send_dead_letter(operator, '{"process": "sample", "request_id": "b"}', message_id="m-2")
    assert operator.run("dlq", "discard", "request", "--code", "Cancelled").exit_code == 3
    assert len(waiting(operator, "RequestDeadLetterQueue")) == 2
    ended = operator.run("dlq", "discard", "request", "--code", "Cancelled", "--yes", "--json")
    assert [dead_letter["request_id"] for dead_letter in ended.json["deleted"]] == ["a"]
    (line,) = operator.audited()
    assert (line["action"], line["body"]) == ("dlq discard", REQUEST)
    (left,) = waiting(operator, "RequestDeadLetterQueue")
    assert json.loads(left["Body"])["request_id"] == "b"


def test_discard_is_refused_without_an_audit_line(operator: Operator) -> None:
    send_dead_letter(operator)
    operator.logs.delete_log_group(logGroupName=operator.outputs["AuditLogGroupName"])
    assert operator.run("dlq", "discard", "request", "--code", "Expired", "--yes").exit_code == 3
    assert len(waiting(operator, "RequestDeadLetterQueue")) == 1


@pytest.mark.parametrize(("options", "code"), [((), 2), (("--id", "nothing"), 4), (("--code", "None"), 4)])
def test_discard_rejects_an_empty_or_unknown_selection(operator: Operator, options: tuple[str, ...], code: int) -> None:
    send_dead_letter(operator)
    assert operator.run("dlq", "discard", "request", *options, "--yes").exit_code == code
    assert len(waiting(operator, "RequestDeadLetterQueue")) == 1
