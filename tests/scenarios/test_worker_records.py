"""Reading the records and sending, against moto."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dev.emulator import queue_reading
from dev.emulator.downstream import Downstream
from dev.emulator.worker_client import LedgerRow, drain_dead_letters, read_ledger
from dev.scenarios.worker import worker_records as records
from dev.scenarios.worker import worker_scenario as sending
from dev.scenarios.worker.worker_mix import draw
from dev.scenarios.worker.worker_outage import Retried
from dev.scenarios.worker.worker_scenario import Observer
from tests.support.tables import create_table

BUCKET = "bucket"


@pytest.fixture
def queue(clients: Any) -> str:
    url: str = clients("sqs").create_queue(QueueName="work")["QueueUrl"]
    return url


def test_requests_are_sent_in_order_ten_per_call(clients: Any, queue: str) -> None:
    requests = draw(21, 1, 0.02, 25)
    sender = sending.Sender(clients("sqs"), queue, requests)
    sender.send_all()
    sent = sender.sent
    assert [each.request for each in sent] == requests
    assert queue_reading.depth(clients("sqs"), queue) == {"visible": 21, "in flight": 0, "delayed": 0}
    assert sent[0].at <= sent[10].at <= sent[20].at


def test_in_a_run_with_an_outage_the_requests_are_sent_evenly(clients: Any, queue: str) -> None:
    sender = sending.Sender(clients("sqs"), queue, draw(40, 1, 0.02, 25), seconds=20.0)
    counts = []
    for elapsed in (0.0, 0.1, 5.0, 5.0, 10.2, 30.0, 31.0):
        sender.send_due(elapsed)
        counts.append(len(sender.sent))
    assert counts == [1, 1, 10, 10, 21, 40, 40]
    assert [each.request for each in sender.sent] == sender.requests
    assert queue_reading.total(clients("sqs"), queue) == 40


def health(**fields: Any) -> dict[str, Any]:
    return {"health": {"S": json.dumps({"state": "CLOSED", "limit": 0, "limit_set": None} | fields)}}


@pytest.mark.parametrize(
    ("item", "read"),
    [
        ({}, ("CLOSED", 3)),
        (health(), ("CLOSED", 3)),
        (health(limit=2), ("CLOSED", 2)),
        (health(limit=9), ("CLOSED", 3)),
        (health(limit=3, limit_set=1), ("CLOSED", 1)),
        (health(state="OPEN", limit=3), ("OPEN", 0)),
        (health(state="HALF_OPEN", limit=3), ("HALF_OPEN", 1)),
    ],
)
def test_the_breakers_state_is_read_with_the_permitted_callers(item: dict[str, Any], read: tuple[str, int]) -> None:
    dynamodb: Any = SimpleNamespace(get_item=lambda **_: {"Item": item} if item else {})
    assert records.read_breaker(dynamodb, "table", 3) == read


def test_the_retries_are_read_from_the_functions_log(tmp_path: Path) -> None:
    line = {"message": "The attempt failed; scheduled the next one", "timestamp": "1970-01-01 00:16:41,500+0000"}
    other = {"message": "The work succeeded", "timestamp": "1970-01-01 00:16:41,500+0000"}
    log = tmp_path / "engine.log"
    log.write_text(f"START\n{json.dumps(other)}\n{json.dumps(line | {'request_id': 'a', 'counted': False})}\n")
    assert records.read_retried(log) == [Retried("a", 1001.5, False)]


def test_all_inputs_but_the_missing_one_are_uploaded(clients: Any) -> None:
    s3, requests = clients("s3"), draw(40, 1, 0.15, 25)
    s3.create_bucket(Bucket=BUCKET)
    sending.upload(s3, BUCKET, requests)
    objects = records.read_objects(s3, BUCKET, "work/input/")
    assert set(objects) == {request.key for request in requests if request.content is not None}
    assert objects[requests[0].key][0] == requests[0].content


def test_a_row_of_the_ledger_is_read(clients: Any) -> None:
    ledger = clients("dynamodb")
    entry = {"M": {"attempt": {"N": "1"}, "at": {"S": "then"}, "error": {"S": "Retryable: no"}}}
    ledger.put_item(
        TableName="ledger",
        Item={
            "request_id": {"S": "a"},
            "status": {"S": "WAITING"},
            "attempts": {"N": "1"},
            "first_attempt_at": {"S": "then"},
            "last_attempt_at": {"S": "then"},
            "last_error": {"S": "Retryable: no"},
            "history": {"L": [entry]},
        },
    )
    assert read_ledger(ledger, "ledger") == [LedgerRow("a", "WAITING", 1, "then", "then", (1,), "Retryable: no")]


def test_a_dead_letter_is_read_with_its_history_and_removed(clients: Any, queue: str) -> None:
    sqs = clients("sqs")
    texts = {"code": "Poison", "reason": "no", "idempotency_key": "a", "first_attempt_at": "then"}
    attributes = {name: {"DataType": "String", "StringValue": value} for name, value in texts.items()}
    attributes["retry_count"] = {"DataType": "Number", "StringValue": "1"}
    attributes["history"] = {"DataType": "String", "StringValue": json.dumps([{"attempt": 1}])}
    sqs.send_message(QueueUrl=queue, MessageBody="body", MessageAttributes=attributes)
    sqs.send_message(QueueUrl=queue, MessageBody="bare")
    full, bare = sorted(drain_dead_letters(sqs, queue), key=lambda message: message.code is None)
    assert (full.code, full.idempotency_key, full.retry_count, full.history) == ("Poison", "a", 1, [{"attempt": 1}])
    assert (bare.body, bare.code, bare.retry_count, bare.history) == ("bare", None, None, None)
    assert drain_dead_letters(sqs, queue) == []


def test_a_manifest_is_read_with_its_time_in_s3(clients: Any) -> None:
    s3 = clients("s3")
    s3.create_bucket(Bucket=BUCKET)
    texts = {"request_id": "a", "attempt": 2, "parts": [{"value": "sun", "key": "work/parts/a/2/0/sun.jsonl"}]}
    s3.put_object(Bucket=BUCKET, Key="work/published/a.json", Body=json.dumps(texts).encode())
    taken = s3.head_object(Bucket=BUCKET, Key="work/published/a.json")["LastModified"].timestamp()
    (manifest,) = records.read_manifests(s3, BUCKET)
    assert (manifest.request_id, manifest.attempt, manifest.parts) == ("a", 2, {"sun": "work/parts/a/2/0/sun.jsonl"})
    assert manifest.at == pytest.approx(taken, abs=1)


def test_a_schedule_is_counted_until_it_fires_and_then_kept(clients: Any, queue: str, tmp_path: Any) -> None:
    scheduler = clients("scheduler")
    scheduler.create_schedule_group(Name="retries")
    scheduler.create_schedule(
        Name="one",
        GroupName="retries",
        ScheduleExpression="at(2030-01-01T00:01:00)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": "arn:aws:sqs:us-east-1:000000000000:work", "RoleArn": "r" * 20, "Input": '{"request_id": "a"}'},
    )
    outputs = {
        "RetryScheduleGroupName": "retries",
        "WorkQueueUrl": queue,
        "WorkDeadLetterQueueUrl": queue,
        "RequestLedgerTableName": "ledger",
        "DownstreamTableName": "downstreams",
    }
    create_table(clients("dynamodb"), "downstreams", "downstream")
    stack: Any = SimpleNamespace(client=clients, outputs=outputs)
    observer = Observer(stack, Downstream(tmp_path))
    assert observer.progress(1, 3, 0.5).counts["scheduled"] == 1
    scheduler.delete_schedule(Name="one", GroupName="retries")
    assert observer.progress(1, 3, 1.5).counts["scheduled"] == 0
    assert [(each.breaker, each.permitted, each.backlog) for each in observer.samples] == [("CLOSED", 3, 0)] * 2
    assert observer.schedules == {"one": records.Schedule("one", "a", 1893456060.0)}
