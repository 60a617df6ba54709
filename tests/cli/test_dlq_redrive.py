"""`slotkeeper dlq redrive`: messages are sent again under the same key, and no message is lost."""

from __future__ import annotations

import json

import pytest

from slotkeeper.aws.sqs import text
from slotkeeper.retry.delivery import DeadLetterQueue
from slotkeeper.retry.message import Message
from slotkeeper.slots.admission import Admitted
from slotkeeper.slots.request import MAX_BODY_BYTES, Delivery, execution_name, parse_request
from slotkeeper_cli import redrive
from slotkeeper_cli.commands import dlq
from slotkeeper_cli.stack_connection import StackConnection
from tests.cli.account_contents import fail, give_up, move_by_sqs, only_id, send_dead_letter, starter, waiting
from tests.cli.operator_account import Operator
from tests.support.boundary import refuse


@pytest.mark.parametrize("moved_by", ["the starter", "SQS itself"])
def test_f26_redrive_keeps_a_message_id_as_the_request_id(operator: Operator, moved_by: str) -> None:
    if moved_by == "the starter":
        send_dead_letter(operator, '{"process": "sample"}', message_id="the-first")
        key = "the-first"
    else:
        key = move_by_sqs(operator, '{"process": "sample"}')  # SQS keeps the message's id
    operator.run("dlq", "redrive", "request", "--all", "--yes")
    (message,) = waiting(operator, "RequestQueue")
    assert json.loads(message["Body"])["request_id"] == key


@pytest.mark.parametrize(
    ("queue", "dead_letters"), [("request", "RequestDeadLetterQueue"), ("failed", "FailedRequestQueue")]
)
def test_redrive_sends_the_next_attempt_with_priority_weight_and_message_group(
    operator: Operator, queue: str, dead_letters: str
) -> None:
    fields = {"process": "sample", "request_id": "a", "priority": "high", "weight": 3}
    if queue == "failed":
        fail(operator, priority="high", weight=3)
    else:
        send_dead_letter(operator, json.dumps(fields), group="sample")  # not that of its priority
    (listed,) = operator.run("dlq", "list", queue, "--json").json["queues"][0]["dead_letters"]
    assert (listed["process"], listed["priority"], listed["weight"]) == ("sample", "high", 3)
    assert "a (sample, attempt 1, high, weight 3)" in operator.run("dlq", "list", queue).stdout
    assert operator.run("dlq", "redrive", queue, "--all", "--yes").exit_code == 0
    (message,) = waiting(operator, "RequestQueue")
    assert json.loads(message["Body"]) == {**fields, "arguments": {}, "attempt": 2}
    assert message["Attributes"]["MessageGroupId"] == "sample#high"
    assert waiting(operator, dead_letters) == []
    (line,) = operator.audited()
    assert (line["action"], line["queue"], line["sent"][0]["request_id"]) == ("dlq redrive", dead_letters, "a")


def test_redrive_sends_a_request_of_the_maximum_size(operator: Operator) -> None:
    arguments = {"--text": "я" * 32_000}
    body = json.dumps({"process": "sample", "request_id": "a", "arguments": arguments}, ensure_ascii=False)
    send_dead_letter(operator, body + " " * (MAX_BODY_BYTES - len(body.encode())))
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
        ("request", "UnknownProcess", '{"process": "unknown"}', "there is no process 'unknown'"),
        ("request", "Expired", '{"process": "sample", "attempt": 1000000}', "which is the maximum"),
        ("request", "RequestIdReused", '{"process": "sample", "request_id": "a"}', "its id belongs to another request"),
        ("work", "RequestIdReused", "", "its id belongs to another request"),
        ("work", "TooLarge", "", "too large for WorkQueue"),
        ("work", "InvalidMessage", "{}", "it is not a valid work message"),
    ],
)
def test_redrive_leaves_a_message_that_would_be_refused_again(
    operator: Operator, queue: str, code: str, body: str, why: str
) -> None:
    if queue == "request":
        send_dead_letter(operator, body, code)
    elif body:
        DeadLetterQueue(operator.sqs, operator.outputs["WorkDeadLetterQueueUrl"]).send_invalid(body, "m", "no")
    else:
        give_up(operator, code=code)
    before = operator.contents()
    ended = operator.run("dlq", "redrive", queue, "--all", "--yes", "--json")
    (skipped,) = ended.json["skipped"]
    assert why in skipped["why"]
    assert (ended.exit_code, operator.contents(), operator.audited()) == (3, before, [])


def test_redrive_sends_a_cancelled_request_only_by_id_or_code(operator: Operator) -> None:
    send_dead_letter(operator, code="Cancelled")
    ended = operator.run("dlq", "redrive", "request", "--all", "--yes", "--json")
    assert ended.json["redriven"] == []
    assert "it was cancelled" in ended.json["skipped"][0]["why"]
    ended = operator.run("dlq", "redrive", "request", "--code", "Cancelled", "--yes", "--json")
    assert len(ended.json["redriven"]) == 1


@pytest.mark.parametrize("options", [("--code", "Expired"), ("--all", "--limit", "1")])
def test_redrive_sends_the_selected_messages_only(operator: Operator, options: tuple[str, ...]) -> None:
    send_dead_letter(operator)
    send_dead_letter(operator, '{"process": "sample", "request_id": "b"}', "InvalidExecution", "m-2")
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
    (sent,) = waiting(operator, "RequestQueue")
    assert json.loads(sent["Body"])["process"] == "sample"


def test_redrive_sends_a_request_once_although_it_fails_again_meanwhile(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that fails fast is in the queue again before the command has read all of it."""
    fail(operator)

    def send_and_fail(stack: StackConnection, one: redrive.Redrive) -> None:
        redrive.send(stack, one)
        if one.attempt < 5:  # a command without the rule ends too, so that this test fails
            fail(operator, attempt=one.attempt)

    monkeypatch.setattr(dlq, "send", send_and_fail)
    ended = operator.run("dlq", "redrive", "failed", "--all", "--yes", "--json")
    assert [(message["request_id"], message["attempt"]) for message in ended.json["redriven"]] == [("a", 2)]
    (left,) = ended.json["skipped"]
    assert (left["attempt"], left["why"]) == (2, "this command has sent the request, and it has failed again")
    assert len(waiting(operator, "FailedRequestQueue")) == 1


def test_redrive_leaves_a_message_that_cannot_be_sent(operator: Operator) -> None:
    send_dead_letter(operator)
    refuse(operator.sqs, "SendMessage", "ServiceUnavailable")
    ended = operator.run("dlq", "redrive", "request", "--all", "--yes", "--json")
    assert ended.exit_code == 1
    assert "it was not sent" in ended.json["failed"][0]["error"]
    assert len(waiting(operator, "RequestDeadLetterQueue")) == 1


def test_f25_a_request_redriven_twice_runs_once(operator: Operator) -> None:
    """The delete fails, and the message is redriven again after SQS's deduplication interval."""
    send_dead_letter(operator)
    refuse(operator.sqs, "DeleteMessage", "ServiceUnavailable")
    ended = operator.run("dlq", "redrive", "request", "--all", "--yes", "--json")
    assert ended.exit_code == 1
    assert "it was sent, but not deleted" in ended.json["failed"][0]["error"]
    (first,) = waiting(operator, "RequestQueue")
    operator.sqs.purge_queue(QueueUrl=operator.outputs["RequestQueueUrl"])
    assert operator.run("dlq", "redrive", "request", "--all", "--yes").exit_code == 0
    receiving = starter(operator)
    for message_id in ("first", "second"):
        delivery = Delivery(message_id, first["Body"], "sample", "handle", "1", 1, 1_790_000_000.0)
        assert receiving.admit(delivery, 1_790_000_000.0) == Admitted(parse_request(delivery))
    arn = operator.outputs["WorkflowArn"]
    assert len(operator.stepfunctions.list_executions(stateMachineArn=arn)["executions"]) == 1
