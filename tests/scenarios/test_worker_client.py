"""`make work`: the observation of a sent message, and the printed outcome."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from dev.emulator import next_steps, work_result
from dev.emulator import worker_client as worker
from dev.emulator.aws import EngineError
from dev.emulator.worker_client import DeadLetter, End, LedgerRow, Observation
from tests.support.tables import create_table

FIRST = "1970-01-01T00:16:40.500Z"
UNREAD = DeadLetter("the body", 1002.0, "InvalidMessage", "body is not JSON", None, None, None, None, None)
DEAD_LETTER = DeadLetter("the body", 1001.8, "Poison", "Poison: no such object", "a", 1, FIRST, FIRST, [{"attempt": 1}])
SUCCEEDED = LedgerRow("a", "SUCCEEDED", 1, FIRST, FIRST, result='{"manifest": "m", "parts": 1}')
WAITING = LedgerRow(
    "a", "WAITING", 1, FIRST, FIRST, last_error="Retryable: no", next_attempt_at="2030-01-01T00:00:00.000Z"
)
DEAD = LedgerRow("a", "DEAD_LETTERED", 1, FIRST, FIRST, last_error="Poison: no")
RUNNING = LedgerRow("a", "RUNNING", 1, FIRST, FIRST)
NEW = Observation(elapsed=1.0, visible=0, in_flight=0)


@pytest.mark.parametrize(
    ("seen", "end"),
    [
        ({"visible": 1}, None),
        ({"in_flight": 1}, None),
        ({"in_flight": 1, "elapsed": 31.0}, End.NOT_BEGUN),
        ({"in_flight": 1, "visible": 1, "elapsed": 31.0}, None),  # other messages may be first
        ({"in_flight": 1, "elapsed": 31.0, "row": RUNNING}, None),
        ({"row": RUNNING}, None),
        ({"row": SUCCEEDED}, End.SUCCEEDED),
        ({"row": DEAD}, End.DEAD_LETTERED),
        ({"row": WAITING}, None),
        ({"row": WAITING, "late": True}, End.WAITING),
        ({"dead_letter": UNREAD, "unworked": True}, End.DEAD_LETTERED),
        ({"dead_letter": UNREAD, "unworked": True, "before": SUCCEEDED, "row": SUCCEEDED}, End.DEAD_LETTERED),
        ({"before": SUCCEEDED, "row": SUCCEEDED}, End.DROPPED),
        ({"before": WAITING, "row": WAITING, "late": True}, End.DROPPED),
        ({"before": SUCCEEDED, "row": SUCCEEDED, "in_flight": 1}, None),
        ({"before": DEAD, "row": replace(SUCCEEDED, attempts=2)}, End.SUCCEEDED),
        ({}, End.DROPPED),
    ],
)
def test_a_message_has_ended_by_the_ledger_or_a_dead_letter(seen: dict[str, Any], end: End | None) -> None:
    assert replace(NEW, **seen).end == end


@pytest.mark.parametrize(
    ("seen", "code", "texts"),
    [
        (
            {"row": DEAD, "dead_letter": DEAD_LETTER},
            1,
            ["1 attempt: Poison", "Poison: no such object", "as attempt 2:"],
        ),
        ({"row": DEAD}, 1, ["no longer in WorkDeadLetterQueue", "Poison: no"]),
        ({"row": WAITING, "late": True}, 0, ["begins at 2030-01-01T00:00:00.000Z", "last error: Retryable: no"]),
        ({"in_flight": 1, "elapsed": 31.0}, 2, ["its log states why"]),
    ],
)
def test_the_outcome_is_shown_with_its_cause(seen: dict[str, Any], code: int, texts: list[str]) -> None:
    answer = work_result.describe(replace(NEW, **seen), "a", "{}", [])
    assert (answer.code, [text in line for text, line in zip(texts, answer.lines, strict=False)]) == (
        code,
        [True] * len(texts),
    )


@pytest.mark.parametrize(("body", "copied"), [('{"request_id": "it\'s $HOME"}', True), ("x" * 5000, False)])
def test_a_dead_letter_is_sent_again_unchanged_by_a_command_that_can_be_copied(body: str, copied: bool) -> None:
    last = replace(NEW, row=DEAD, dead_letter=replace(DEAD_LETTER, body=body))
    command = work_result.describe(last, "a", "{}", []).command
    assert (command and shlex.split(command)) == (["make", "work", f"BODY={body}"] if copied else None)


def test_own_work_has_no_sample_and_its_result_is_shown_unchanged(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (worker, next_steps):
        monkeypatch.setattr(module, "own_module", lambda *_: None)
    assert worker.result_lines(aws, replace(SUCCEEDED, result="[1]")) == ["its result: [1]"]
    with pytest.raises(EngineError, match=r"BODY is empty: .* as in make work BODY=.*request_id.*Nothing was sent"):
        next_steps.sample_body()


@pytest.mark.parametrize(
    ("body", "name"),
    [('{"request_id": "a"}', "a"), (json.dumps({"request_id": "x" * 129}), None), ("[]", None), ("[" * 100_000, None)],
)
def test_only_an_id_that_the_ledger_can_know_is_looked_up(body: str, name: str | None) -> None:
    assert worker.request_id_of(body) == name


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A worker's queues and ledger. The test acts as the worker."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        clients: dict[str, Any] = {name: boto3.client(name, "us-east-1") for name in ("dynamodb", "sqs")}
        create_table(clients["dynamodb"], "ledger", "request_id")
        queues = ("WorkQueue", "WorkDeadLetterQueue")
        urls = {f"{name}Url": clients["sqs"].create_queue(QueueName=name)["QueueUrl"] for name in queues}
        yield SimpleNamespace(client=clients.__getitem__, outputs={**urls, "RequestLedgerTableName": "ledger"})


def put_row(aws: Any, status: str, attempts: int, **texts: str) -> None:
    item = {"request_id": "a", "status": status, **texts}
    fields: dict[str, Any] = {name: {"S": value} for name, value in item.items()}
    aws.client("dynamodb").put_item(TableName="ledger", Item={**fields, "attempts": {"N": str(attempts)}})


def put_dead_letter(aws: Any, **texts: str) -> None:
    attributes = {name: {"DataType": "String", "StringValue": value} for name, value in texts.items()}
    url = aws.outputs["WorkDeadLetterQueueUrl"]
    aws.client("sqs").send_message(QueueUrl=url, MessageBody="dead letter", MessageAttributes=attributes)


def consume(aws: Any) -> None:
    sqs, url = aws.client("sqs"), aws.outputs["WorkQueueUrl"]
    for message in sqs.receive_message(QueueUrl=url)["Messages"]:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_the_dead_letter_of_a_body_without_an_id_is_found_by_its_message_id(aws: Any) -> None:
    sent = worker.SentMessage(aws, "no JSON")
    answer = aws.client("sqs").receive_message(QueueUrl=aws.outputs["WorkQueueUrl"], VisibilityTimeout=0)
    put_dead_letter(aws, code="InvalidMessage", reason="mine", source_message_id=answer["Messages"][0]["MessageId"])
    put_dead_letter(aws, code="InvalidMessage", reason="another one's", source_message_id="another")
    consume(aws)
    last = sent.observe(1.0)
    assert (last.end, last.dead_letter and last.dead_letter.reason) == (End.DEAD_LETTERED, "mine")


def test_the_dead_letter_of_an_earlier_attempt_is_ignored(aws: Any) -> None:
    put_dead_letter(aws, code="Poison", idempotency_key="a", retry_count="2")
    put_dead_letter(aws, code="TooOld", idempotency_key="a", retry_count="1")
    put_row(aws, "WAITING", 1, next_attempt_at=FIRST)
    sent = worker.SentMessage(aws, '{"request_id": "a"}')
    put_row(aws, "DEAD_LETTERED", 2)
    last = sent.observe(1.0)
    assert last.dead_letter is not None
    assert (last.end, last.dead_letter.code, last.unworked) == (End.DEAD_LETTERED, "Poison", False)


def test_peeking_removes_no_dead_letter(aws: Any) -> None:
    for number in range(12):
        put_dead_letter(aws, code=str(number))
    sqs, url = aws.client("sqs"), aws.outputs["WorkDeadLetterQueueUrl"]
    assert len(worker.peek_dead_letters(sqs, url)) == len(worker.peek_dead_letters(sqs, url)) == 12


@pytest.mark.parametrize(("due", "late"), [("2999-01-01T00:00:00.000Z", True), ("1999-01-01T00:00:00.000Z", False)])
def test_only_a_late_attempt_is_not_waited_for(aws: Any, due: str, late: bool) -> None:
    sent = worker.SentMessage(aws, '{"request_id": "a"}')
    put_row(aws, "WAITING", 1, next_attempt_at=due)
    assert sent.observe(1.0).late == late
