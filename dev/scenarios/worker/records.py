"""What was written down about the run: the downstream's calls, the ledger, S3, the queues and the schedules.

The functions here only read and translate; `checks` judges. Instants are seconds since the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dev.emulator.downstream import Call

from .sending import Sent

PUBLISHED, PARTS = "work/published/", "work/parts/"


@dataclass(frozen=True)
class Row:
    """A request in the ledger. Times as they stand there: they are compared with the dead letters' own."""

    request_id: str
    status: str
    attempts: int
    first_attempt_at: str
    last_attempt_at: str
    history: tuple[int, ...] = ()  # the numbers of the failed attempts
    last_error: str | None = None
    next_attempt_at: str | None = None  # while it is WAITING
    result: str | None = None  # JSON, once it has SUCCEEDED


@dataclass(frozen=True)
class DeadLetter:
    """A message of WorkDeadLetterQueue. None: it has no such attribute."""

    body: str
    sent: float
    code: str | None
    reason: str | None
    idempotency_key: str | None
    retry_count: int | None
    first_attempt_at: str | None
    last_attempt_at: str | None
    history: Sequence[Mapping[str, Any]] | None
    source_message_id: str | None = None  # of a message that nobody has worked on


@dataclass(frozen=True)
class Manifest:
    """A published result, and when S3 took it."""

    key: str
    request_id: str
    attempt: int
    parts: Mapping[str, str]  # value -> key
    at: float


@dataclass(frozen=True)
class Booking:
    """A schedule that was seen waiting, and the instant at which it was due."""

    name: str
    request_id: str
    due: float


@dataclass(frozen=True)
class Records:
    sent: Sequence[Sent]
    calls: Sequence[Call]
    rows: Sequence[Row]
    dead: Sequence[DeadLetter]
    manifests: Sequence[Manifest]
    parts: Mapping[str, bytes]  # key -> content, of every object under work/parts/
    bookings: Sequence[Booking]
    left: Mapping[str, int]  # what stands in the queue, the group and the group's dead-letter queue at the end


def parse_row(item: Mapping[str, Any]) -> Row:
    return Row(
        request_id=item["request_id"]["S"],
        status=item["status"]["S"],
        attempts=int(item["attempts"]["N"]),
        first_attempt_at=item.get("first_attempt_at", {}).get("S", ""),
        last_attempt_at=item.get("last_attempt_at", {}).get("S", ""),
        history=tuple(int(each["M"]["attempt"]["N"]) for each in item.get("history", {}).get("L", [])),
        last_error=item.get("last_error", {}).get("S"),
        next_attempt_at=item.get("next_attempt_at", {}).get("S"),
        result=item.get("result", {}).get("S"),
    )


def read_rows(dynamodb: Any, table: str) -> list[Row]:
    pages = dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    return [parse_row(item) for page in pages for item in page["Items"]]


def parse_dead_letter(message: Mapping[str, Any]) -> DeadLetter:
    told = {name: value.get("StringValue") for name, value in message.get("MessageAttributes", {}).items()}
    return DeadLetter(
        body=message["Body"],
        sent=int(message["Attributes"]["SentTimestamp"]) / 1000,
        code=told.get("code"),
        reason=told.get("reason"),
        idempotency_key=told.get("idempotency_key"),
        retry_count=int(told["retry_count"]) if "retry_count" in told else None,
        first_attempt_at=told.get("first_attempt_at"),
        last_attempt_at=told.get("last_attempt_at"),
        history=json.loads(told["history"]) if "history" in told else None,
        source_message_id=told.get("source_message_id"),
    )


def drain(sqs: Any, queue_url: str) -> list[DeadLetter]:
    """Every message of the queue, taken off it."""
    found: list[DeadLetter] = []
    while messages := sqs.receive_message(
        QueueUrl=queue_url,
        MaxNumberOfMessages=10,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["SentTimestamp"],
    ).get("Messages"):
        found += [parse_dead_letter(message) for message in messages]
        for message in messages:
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    return found


def read_objects(s3: Any, bucket: str, prefix: str) -> dict[str, tuple[bytes, float]]:
    """Key -> content, and when S3 took it."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return {
        entry["Key"]: (s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read(), entry["LastModified"].timestamp())
        for page in pages
        for entry in page.get("Contents", [])
    }


def parse_manifest(key: str, content: bytes, at: float) -> Manifest:
    told = json.loads(content)
    parts = {part["value"]: part["key"] for part in told["parts"]}
    return Manifest(key, told["request_id"], told["attempt"], parts, at)


def read_manifests(s3: Any, bucket: str) -> list[Manifest]:
    return [parse_manifest(key, content, at) for key, (content, at) in read_objects(s3, bucket, PUBLISHED).items()]


def read_bookings(scheduler: Any, group: str, known: Mapping[str, Booking]) -> list[Booking]:
    """The schedules that wait now. One that is gone between two calls has fired; `known` ones are not read again."""
    found = []
    for page in scheduler.get_paginator("list_schedules").paginate(GroupName=group):
        for entry in page["Schedules"]:
            name = entry["Name"]
            if name not in known:
                try:
                    known = {**known, name: parse_booking(scheduler.get_schedule(GroupName=group, Name=name))}
                except scheduler.exceptions.ResourceNotFoundException:
                    continue
            found.append(known[name])
    return found


def parse_booking(schedule: Mapping[str, Any]) -> Booking:
    """`at(2026-01-31T12:00:00)` is UTC (Scheduler guide, "Schedule types")."""
    due = datetime.fromisoformat(schedule["ScheduleExpression"].removeprefix("at(").removesuffix(")") + "+00:00")
    return Booking(schedule["Name"], json.loads(schedule["Target"]["Input"])["request_id"], due.timestamp())


def queue_depth(sqs: Any, queue_url: str) -> dict[str, int]:
    """Messages on the queue that are visible, in flight and delayed."""
    names = {"visible": "", "in flight": "NotVisible", "delayed": "Delayed"}
    asked = [f"ApproximateNumberOfMessages{name}" for name in names.values()]
    told = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=asked)["Attributes"]
    return {said: int(told.get(f"ApproximateNumberOfMessages{name}", 0)) for said, name in names.items()}
