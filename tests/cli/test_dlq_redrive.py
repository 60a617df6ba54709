"""`slotkeeper dlq redrive`: messages are sent again under the same key, and no message is lost."""

from __future__ import annotations

import json

import pytest

from slotkeeper.aws.sqs import text
from slotkeeper.retry.delivery import DeadLetterQueue
from slotkeeper.retry.message import Message
from slotkeeper.slots.request import MAX_BODY_BYTES, execution_name
from slotkeeper_cli import redrive
from slotkeeper_cli.commands import dlq
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection
from tests.cli.account_contents import fail, fail_held, give_up, move_by_sqs, only_id, send_dead_letter, waiting
from tests.cli.operator_account import Operator, StubbedCalls
from tests.support.boundary import refuse


def test_f26_redrive_keeps_a_message_id_as_the_request_id(operator: Operator) -> None:
    """SQS itself has moved the message, since the starter failed again and again."""
    key = move_by_sqs(operator, '{"process": "sample", "weight": 3, "priority": "high"}')
    operator.run("dlq", "redrive", "request", "--all", "--yes")
    (message,) = waiting(operator, "RequestQueue")
    expected = {"process": "sample", "arguments": {}, "request_id": key, "attempt": 1, "weight": 3, "priority": "high"}
    assert json.loads(message["Body"]) == expected
    assert waiting(operator, "RequestDeadLetterQueue") == []


def test_redrive_queues_the_next_attempt_of_a_failed_request_and_rings(operator: Operator) -> None:
    operator.processes.set_limit("sample", 3)
    names = [fail(operator, priority="high", weight=3), fail(operator, "b", weight=2)]
    (first, _) = operator.run("dlq", "list", "failed", "--json").json["queues"][0]["dead_letters"]
    assert (first["process"], first["priority"], first["weight"]) == ("sample", "high", 3)
    assert "a (sample, attempt 1, high, weight 3)" in operator.run("dlq", "list", "failed").stdout

    ended = operator.run("dlq", "redrive", "failed", "--all", "--yes", "--json")

    assert ended.exit_code == 0
    again = [one["execution"] for one in ended.json["redriven"]]
    assert again == [execution_name("sample", each, 2) for each in "ab"]
    assert [operator.row(name).state for name in (*names, *again)] == ["REDRIVEN", "REDRIVEN", "QUEUED", "QUEUED"]
    assert [(row.priority, row.queued.weight) for row in operator.rows.queue("sample").rows] == [
        ("high", 3),
        ("normal", 2),
    ]
    assert (waiting(operator, "FailedRequestQueue"), waiting(operator, "RequestQueue")) == ([], [])
    assert operator.rings() == [{"process": "sample"}]
    (line,) = operator.audited()
    sent = [one["request_id"] for one in line["sent"]]
    assert (line["action"], line["queue"], sent) == ("dlq redrive", "FailedRequestQueue", ["a", "b"])


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
    (skipped,) = ended.json["skipped"]
    assert why in skipped["why"]
    assert (ended.exit_code, operator.contents(), operator.audited()) == (3, before, [])


def test_redrive_sends_cancelled_work_only_by_id_or_code(operator: Operator) -> None:
    give_up(operator, code="Cancelled")
    ended = operator.run("dlq", "redrive", "work", "--all", "--yes", "--json")
    assert ended.json["redriven"] == []
    assert "it was cancelled" in ended.json["skipped"][0]["why"]
    ended = operator.run("dlq", "redrive", "work", "--code", "Cancelled", "--yes", "--json")
    assert len(ended.json["redriven"]) == 1


@pytest.mark.parametrize("options", [("--code", "InvalidRequest"), ("--all", "--limit", "1")])
def test_redrive_sends_the_selected_messages_only(operator: Operator, options: tuple[str, ...]) -> None:
    send_dead_letter(operator, '{"process": "sample", "request_id": "a"}')
    send_dead_letter(operator, '{"process": "sample", "request_id": "b"}', "m-2", 2, code="Other")
    assert operator.run("dlq", "redrive", "request", *options, "--yes").exit_code == 0
    (left,) = waiting(operator, "RequestDeadLetterQueue")
    assert json.loads(left["Body"])["request_id"] == "b"


def test_redrive_by_id_is_refused_if_the_message_is_not_redrivable(operator: Operator) -> None:
    send_dead_letter(operator, "not JSON")
    message_id = only_id(operator, "RequestDeadLetterQueue")
    assert "not JSON" in operator.refuses("dlq", "redrive", "request", "--id", message_id, "--yes")


def test_redrive_takes_the_id_of_a_request_or_of_its_execution(operator: Operator) -> None:
    names = [fail(operator, request_id) for request_id in ("a", "b", "c")]
    ended = operator.run("dlq", "redrive", "failed", "--id", "a", "--id", names[1], "--yes", "--json")
    assert [message["request_id"] for message in ended.json["redriven"]] == ["a", "b"]
    (left,) = waiting(operator, "FailedRequestQueue")
    assert json.loads(left["Body"])["request_id"] == "c"
    assert f"would be sent: c, attempt 2  execution {execution_name('sample', 'c', 2)}" in (
        operator.run("dlq", "redrive", "failed", "--id", "c", "--dry-run").stdout
    )


def test_redrive_by_request_id_is_refused_if_several_processes_have_it(operator: Operator) -> None:
    operator.processes.create("other", 1, operator.outputs["GlueJobName"])
    fail(operator)
    message_id = only_id(operator, "FailedRequestQueue")
    fail(operator, process="other")
    reason = operator.refuses("dlq", "redrive", "failed", "--id", "a", "--yes")
    assert "several processes have a request a: give the id of the message" in reason
    assert f"{message_id} (sample)" in reason
    assert operator.run("dlq", "redrive", "failed", "--id", message_id, "--yes").exit_code == 0
    assert (operator.states(), operator.states("other")) == ({"a-1": "REDRIVEN", "a-2": "QUEUED"}, {"a-1": "FAILED"})


def test_redrive_sends_a_request_once_although_it_fails_again_meanwhile(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that fails fast is in the queue again before the command has read all of it."""
    fail(operator)

    def send_and_fail(stack: StackConnection, control: SlotControl, one: redrive.Redrive) -> None:
        redrive.send(stack, control, one)
        if one.attempt < 5:  # a command without the rule ends too, so that this test fails
            operator.start(one.execution)
            fail_held(operator, one.execution)

    monkeypatch.setattr(dlq, "send", send_and_fail)
    ended = operator.run("dlq", "redrive", "failed", "--all", "--yes", "--json")
    assert [(message["request_id"], message["attempt"]) for message in ended.json["redriven"]] == [("a", 2)]
    (left,) = ended.json["skipped"]
    assert (left["attempt"], left["why"]) == (2, "this command has sent the request, and it has failed again")
    assert len(waiting(operator, "FailedRequestQueue")) == 1


def test_redrive_leaves_a_message_that_cannot_be_sent(operator: Operator) -> None:
    move_by_sqs(operator, '{"process": "sample"}')
    refuse(operator.sqs, "SendMessage", "ServiceUnavailable")
    ended = operator.run("dlq", "redrive", "request", "--all", "--yes", "--json")
    assert ended.exit_code == 1
    assert "it was not sent" in ended.json["failed"][0]["error"]
    assert len(waiting(operator, "RequestDeadLetterQueue")) == 1


def test_redrive_leaves_a_message_whose_row_cannot_be_written(operator: Operator) -> None:
    fail(operator)
    refused = {"Error": {"Code": "ThrottlingException", "Message": "slow down"}}
    with StubbedCalls("dynamodb", {"TransactWriteItems": lambda _: refused}):
        ended = operator.run("dlq", "redrive", "failed", "--all", "--yes", "--json")
    assert (ended.exit_code, operator.states()) == (1, {"a-1": "FAILED"})
    assert "it was not sent (An error occurred (ThrottlingException)" in ended.json["failed"][0]["error"]
    assert len(waiting(operator, "FailedRequestQueue")) == 1


def test_f25_a_request_redriven_twice_runs_once(operator: Operator) -> None:
    """The delete fails, and the message is redriven again."""
    fail(operator)
    refuse(operator.sqs, "DeleteMessage", "ServiceUnavailable")
    ended = operator.run("dlq", "redrive", "failed", "--all", "--yes", "--json")
    assert ended.exit_code == 1
    assert "it was sent, but not deleted" in ended.json["failed"][0]["error"]
    assert operator.run("dlq", "redrive", "failed", "--all", "--yes").exit_code == 0
    assert operator.states() == {"a-1": "REDRIVEN", "a-2": "QUEUED"}
    assert waiting(operator, "FailedRequestQueue") == []
