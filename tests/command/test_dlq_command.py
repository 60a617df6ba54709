"""`slotkeeper dlq`: a message is sent again under the same key, and none is lost."""

from __future__ import annotations

import json

import pytest

from slotkeeper.aws.sqs import text
from slotkeeper.retry.delivery import DeadLetterQueue
from slotkeeper.retry.message import Message
from slotkeeper.slots.request import MAX_BODY_BYTES
from slotkeeper_cli.formatting import local_time
from tests.command.account_contents import give_up, move_by_sqs, only_id, send_dead_letter, waiting
from tests.command.operator_account import Operator
from tests.simulation.account.boundary import refuse


def test_list_shows_all_queues_with_their_codes(operator: Operator) -> None:
    send_dead_letter(operator, "not JSON " + "x" * 300)
    give_up(operator)

    queues = {one["queue"]: one for one in operator.run("dlq", "list", "--json").json["queues"]}

    assert {name: (one["messages"], one["codes"]) for name, one in queues.items()} == {
        "request": (1, {"InvalidRequest": 1}),
        "work": (1, {"AttemptsExhausted": 1}),
        "schedule": (0, {}),
    }
    (dead_letter,) = queues["work"]["dead_letters"]
    assert (dead_letter["request_id"], dead_letter["attempt"]) == ("w", 2)
    shown = operator.run("dlq", "list").stdout.splitlines()
    first = shown.index("RequestDeadLetterQueue (request): 1  (1 InvalidRequest)")
    assert shown[first + 1] == "  m-1 (attempt 1)  InvalidRequest: because of InvalidRequest"
    assert shown[first + 2].endswith(f"  message {only_id(operator, 'RequestDeadLetterQueue')}")


def test_list_and_show_leave_every_message_visible(operator: Operator) -> None:
    send_dead_letter(operator)
    operator.run("dlq", "list")
    operator.run("dlq", "show", "request")
    assert len(waiting(operator, "RequestDeadLetterQueue")) == 1


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


def test_show_prints_body_and_attributes_and_times_in_words(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    send_dead_letter(operator, '{"process": "sample", "urgent": true}')
    message_id = only_id(operator, "RequestDeadLetterQueue")
    (dead_letter,) = operator.run("dlq", "show", "request", "--id", message_id, "--json").json["dead_letters"]
    assert dead_letter["body"] == '{"process": "sample", "urgent": true}'
    assert dead_letter["attributes"]["source_message_id"] == "m-1"
    assert dead_letter["request_id"] == "m-1"
    shown = operator.run("dlq", "show", "request").stdout
    assert "because of InvalidRequest" in shown
    assert f"  sent at: {local_time(1_790_000_001)}\n" in shown


@pytest.mark.parametrize("name", ["show", "redrive", "discard"])
def test_an_unknown_id_changes_nothing(operator: Operator, name: str) -> None:
    move_by_sqs(operator, '{"process": "sample", "request_id": "b"}')
    ended = operator.run("dlq", name, "request", "--id", "b", "--id", "other", "--yes")
    assert ended.exit_code == 4
    assert "has no message with id other. List them with: slotkeeper dlq list request" in ended.stderr
    assert len(waiting(operator, "RequestDeadLetterQueue")) == 1


def test_discard_deletes_the_messages_of_a_request_and_audits_their_bodies(operator: Operator) -> None:
    for fields in ('"request_id": "a"', '"request_id": "a", "weight": 2', '"request_id": "b"'):
        move_by_sqs(operator, f'{{"process": "sample", {fields}}}')
    asked = operator.asks("dlq", "discard", "request", "--id", "a")
    assert "Delete 2 messages (a (sample, attempt 1), a (sample, attempt 1)) of RequestDeadLetterQueue" in asked
    assert operator.run("dlq", "discard", "request", "--id", "a", "--yes").exit_code == 0
    (left,) = waiting(operator, "RequestDeadLetterQueue")
    assert json.loads(left["Body"])["request_id"] == "b"
    assert [line["request_id"] for line in operator.audited()] == ["a", "a"]
    assert [json.loads(line["body"]).get("weight") for line in operator.audited()] == [None, 2]


# redrive -------------------------------------------------------------------------------------------------------------


def test_f26_redrive_keeps_a_message_id_as_the_request_id(operator: Operator) -> None:
    """SQS itself has moved the message, since the starter failed again and again."""
    key = move_by_sqs(operator, '{"process": "sample", "weight": 3, "priority": "high"}')
    operator.run("dlq", "redrive", "request", "--all", "--yes")
    (message,) = waiting(operator, "RequestQueue")
    expected = {"process": "sample", "arguments": {}, "request_id": key, "attempt": 1, "weight": 3, "priority": "high"}
    assert json.loads(message["Body"]) == expected
    assert waiting(operator, "RequestDeadLetterQueue") == []


def test_redrive_sends_a_request_of_the_maximum_size(operator: Operator) -> None:
    arguments = {"--text": "я" * 32_000}
    body = json.dumps({"process": "sample", "request_id": "a", "arguments": arguments}, ensure_ascii=False)
    move_by_sqs(operator, body + " " * (MAX_BODY_BYTES - len(body.encode())))
    operator.run("dlq", "redrive", "request", "--all", "--yes")
    (message,) = waiting(operator, "RequestQueue")
    assert json.loads(message["Body"])["arguments"] == arguments


def test_redrive_sends_work_with_its_history(operator: Operator) -> None:
    give_up(operator)
    (dead_letter,) = waiting(operator, "WorkDeadLetterQueue")
    operator.run("dlq", "redrive", "work", "--all", "--yes")
    (message,) = waiting(operator, "WorkQueue")
    assert message["Body"] == dead_letter["Body"]
    assert len(json.loads(message["Body"])["retries"]) == 2
    attributes = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
    assert attributes == {"idempotency_key": "w", "retry_count": "2"}
    assert waiting(operator, "WorkDeadLetterQueue") == []


def test_redrive_sends_a_retry_that_scheduler_could_not_send(operator: Operator) -> None:
    body = Message("w", {"n": 1}, (1_790_000_000.0,)).to_json()
    operator.sqs.send_message(
        QueueUrl=operator.outputs["RetryScheduleDeadLetterQueueUrl"],
        MessageBody=body,
        MessageAttributes={"ERROR_CODE": text("AccessDenied", 100), "ERROR_MESSAGE": text("no", 100)},
    )
    (listed,) = operator.run("dlq", "list", "schedule", "--json").json["queues"]
    assert (listed["codes"], listed["dead_letters"][0]["attempt"]) == ({"AccessDenied": 1}, 2)
    operator.run("dlq", "redrive", "schedule", "--all", "--yes")
    (message,) = waiting(operator, "WorkQueue")
    assert message["Body"] == body


@pytest.mark.parametrize(
    ("queue", "code", "body", "why"),
    [
        ("request", "InvalidRequest", "not JSON", "it is not a valid request: body is not JSON"),
        ("request", "InvalidRequest", '{"process": "unknown"}', "there is no process 'unknown'"),
        ("work", "RequestIdReused", "", "its id belongs to another request"),
        ("work", "TooLarge", "", "too large for WorkQueue"),
        ("work", "InvalidMessage", "{}", "it is not a valid work message"),
    ],
)
def test_redrive_leaves_a_message_that_would_be_refused_again(
    operator: Operator, queue: str, code: str, body: str, why: str
) -> None:
    if queue == "request":
        send_dead_letter(operator, body, code=code)
    elif body:
        DeadLetterQueue(operator.sqs, operator.outputs["WorkDeadLetterQueueUrl"]).send_invalid(body, "m", "no")
    else:
        give_up(operator, code=code)
    before = operator.contents()
    ended = operator.run("dlq", "redrive", queue, "--all", "--yes", "--json")
    (left,) = ended.json["left"]
    assert why in left["why"]
    assert (ended.exit_code, operator.contents(), operator.audited()) == (3, before, [])


def test_redrive_sends_cancelled_work_only_by_id_or_code(operator: Operator) -> None:
    give_up(operator, code="Cancelled")
    ended = operator.run("dlq", "redrive", "work", "--all", "--yes", "--json")
    assert ended.json["done"] == []
    assert "it was cancelled" in ended.json["left"][0]["why"]
    ended = operator.run("dlq", "redrive", "work", "--code", "Cancelled", "--yes", "--json")
    assert len(ended.json["done"]) == 1


@pytest.mark.parametrize("options", [("--code", "InvalidRequest"), ("--id", "a"), ("--id", "{message}")])
def test_redrive_sends_the_selected_messages_only(operator: Operator, options: tuple[str, ...]) -> None:
    send_dead_letter(operator, '{"process": "sample", "request_id": "a"}')
    chosen = [each.format(message=only_id(operator, "RequestDeadLetterQueue")) for each in options]
    send_dead_letter(operator, '{"process": "sample", "request_id": "b"}', "m-2", 2, code="Other")
    dry = operator.run("dlq", "redrive", "request", *chosen, "--dry-run").stdout
    assert "would be sent again: a (sample, attempt 1)\n" in dry
    assert operator.run("dlq", "redrive", "request", *chosen, "--yes").exit_code == 0
    (left,) = waiting(operator, "RequestDeadLetterQueue")
    assert json.loads(left["Body"])["request_id"] == "b"


def test_redrive_by_request_id_is_refused_if_several_processes_have_it(operator: Operator) -> None:
    operator.processes.create("other", 1, operator.outputs["GlueJobName"])
    send_dead_letter(operator, '{"process": "sample", "request_id": "a"}')
    message_id = only_id(operator, "RequestDeadLetterQueue")
    send_dead_letter(operator, '{"process": "other", "request_id": "a"}', "m-2")
    reason = operator.refuses("dlq", "redrive", "request", "--id", "a", "--yes")
    assert "several processes have a request a: give the id of the message" in reason
    assert f"{message_id} (sample)" in reason
    assert operator.run("dlq", "redrive", "request", "--id", message_id, "--yes").exit_code == 0
    (message,) = waiting(operator, "RequestQueue")
    assert json.loads(message["Body"])["process"] == "sample"


@pytest.mark.parametrize(("call", "sendings"), [("SendMessage", 1), ("DeleteMessage", 2)])
def test_f25_a_message_that_a_refused_call_has_left_is_redriven_again(
    operator: Operator, call: str, sendings: int
) -> None:
    """If it was sent and not deleted, it is sent twice, under the id of one request."""
    key = move_by_sqs(operator, '{"process": "sample"}')
    refuse(operator.sqs, call, "ServiceUnavailable")
    ended = operator.run("dlq", "redrive", "request", "--all", "--yes", "--json")
    assert ended.exit_code == 1
    assert f"0 of 1 message sent again, then {call} failed with ServiceUnavailable" in ended.stderr
    assert operator.run("dlq", "redrive", "request", "--all", "--yes").exit_code == 0
    sent = [json.loads(each["Body"])["request_id"] for each in waiting(operator, "RequestQueue")]
    assert (sent, waiting(operator, "RequestDeadLetterQueue")) == ([key] * sendings, [])
