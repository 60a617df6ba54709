"""The deployed worker from outside: its ledger and dead letters; a message is sent to it, and watched to its end."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from rich.text import Text

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import counted
from dev.emulator.queue_reading import attributes, drain, peek
from dev.emulator.sample_data import SPLIT_BY, content, months_as_json_lines

MONTH = "2012-01"  # of the sample data
INPUT_KEY = f"work/input/{MONTH}.jsonl"
# Seconds. A later attempt is not waited for: its time is shown to the sender.
MAX_WAIT = 60.0
# A worker that has taken a message claims it within this, or has failed before it could.
CLAIMED_WITHIN = 30.0
# An attempt ends within the function's 120 s, whatever its outcome.
STALLED_AFTER = 150.0
LEDGER_KEY = 128  # characters of a request id


@dataclass(frozen=True)
class LedgerRow:
    """A request in the ledger. Times as they are there: they are compared with the dead letters' own."""

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
    source_message_id: str | None = None  # of a message that was never worked on


def parse_row(item: Mapping[str, Any]) -> LedgerRow:
    def text(name: str) -> str | None:
        value: str | None = item.get(name, {}).get("S")
        return value

    return LedgerRow(
        request_id=item["request_id"]["S"],
        status=item["status"]["S"],
        attempts=int(item["attempts"]["N"]),
        first_attempt_at=text("first_attempt_at") or "",
        last_attempt_at=text("last_attempt_at") or "",
        history=tuple(int(each["M"]["attempt"]["N"]) for each in item.get("history", {}).get("L", [])),
        last_error=text("last_error"),
        next_attempt_at=text("next_attempt_at"),
        result=text("result"),
    )


def parse_dead_letter(message: dict[str, Any]) -> DeadLetter:
    texts = attributes(message)
    names = ("code", "reason", "idempotency_key", "first_attempt_at", "last_attempt_at", "source_message_id")
    return DeadLetter(
        body=message["Body"],
        sent=int(message["Attributes"]["SentTimestamp"]) / 1000,
        retry_count=int(texts["retry_count"]) if "retry_count" in texts else None,
        history=json.loads(texts["history"]) if "history" in texts else None,
        **{name: texts.get(name) for name in names},
    )


def read_ledger(dynamodb: Any, table: str) -> list[LedgerRow]:
    """Every row."""
    pages = dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    return [parse_row(item) for page in pages for item in page["Items"]]


def drain_dead_letters(sqs: Any, queue_url: str) -> list[DeadLetter]:
    """Every dead letter, taken off the queue."""
    return [parse_dead_letter(message) for message in drain(sqs, queue_url)]


def peek_dead_letters(sqs: Any, queue_url: str) -> list[DeadLetter]:
    """Every dead letter; all stay on the queue."""
    return [parse_dead_letter(message) for message in peek(sqs, queue_url)]


class End(Enum):
    """Where a request is when there is nothing more to wait for."""

    SUCCEEDED = "SUCCEEDED"
    DEAD_LETTERED = "DEAD_LETTERED"
    WAITING = "its next attempt is too late to wait for"
    DROPPED = "the ledger knew this attempt already"
    NOT_BEGUN = "the worker has taken the message without claiming its request"


@dataclass(frozen=True)
class Observation:
    """What can be seen of a message that was sent.

    Args:
        elapsed: seconds since then.
        visible, in_flight: messages on WorkQueue, others than this one among them.
        before: the request's row before it was sent; None: there was none, or the body has no request id.
        row: the row now.
        letter: the dead letter of this very message, or of the request whose row is DEAD_LETTERED.
        unworked: the letter is of this very message, which was never worked on.
        late: the next attempt is due later than `MAX_WAIT`.
    """

    elapsed: float
    visible: int
    in_flight: int
    before: LedgerRow | None = None
    row: LedgerRow | None = None
    letter: DeadLetter | None = None
    unworked: bool = False
    late: bool = False

    @property
    def changed(self) -> LedgerRow | None:
        """The row, if the ledger was written since the message was sent."""
        return self.row if self.row != self.before else None

    @property
    def end(self) -> End | None:
        """Where the request is, if there is nothing more to wait for."""
        if self.unworked:
            return End.DEAD_LETTERED
        if row := self.changed:
            if row.status == "WAITING":
                return End.WAITING if self.late else None
            return {"SUCCEEDED": End.SUCCEEDED, "DEAD_LETTERED": End.DEAD_LETTERED}.get(row.status)
        if self.visible:
            return None
        if not self.in_flight:
            return End.DROPPED
        return End.NOT_BEGUN if self.elapsed > CLAIMED_WITHIN else None

    @property
    def ended(self) -> bool:
        return self.end is not None

    @property
    def status(self) -> str:
        if row := self.changed:
            due = f", attempt {row.attempts + 1} begins at {row.next_attempt_at}" if row.next_attempt_at else ""
            return f"{row.status}: attempt {row.attempts}{due}"
        queued = self.visible + self.in_flight
        return f"on WorkQueue: {counted(queued, 'message')}, {self.in_flight} in flight" if queued else "off WorkQueue"

    def panel(self, _title: str) -> Text:
        return Text(f"{self.elapsed:6.1f} s  {self.status}")


def upload_sample(aws: EmbeddedAws) -> None:
    """The input of the sample request: a month of the sample data as JSON Lines, into DataBucket."""
    aws.client("s3").put_object(
        Bucket=aws.outputs["DataBucketName"],
        Key=INPUT_KEY,
        Body=content(months_as_json_lines()[MONTH]),
        ContentType="application/x-ndjson",
    )


def sample_body(request_id: str = "") -> str:
    """A message body for WorkQueue that has the sample split, under a fresh id if none is given."""
    payload = {"input_key": INPUT_KEY, "split_by": SPLIT_BY}
    return json.dumps({"request_id": request_id or f"sample-{secrets.token_hex(4)}", "payload": payload})


def request_id_of(body: str) -> str | None:
    """The request id of a body; None if it has none by which the ledger could know it."""
    try:
        request_id = json.loads(body)["request_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return request_id if isinstance(request_id, str) and 0 < len(request_id) <= LEDGER_KEY else None


class SentMessage:
    """A message that WorkQueue has taken, and where to read its outcome."""

    def __init__(self, aws: EmbeddedAws, body: str) -> None:
        """Sends it. `name` is for people. What SQS refuses is raised as ClientError."""
        self._sqs, self._dynamodb, self._s3 = aws.client("sqs"), aws.client("dynamodb"), aws.client("s3")
        self._outputs = aws.outputs
        self.body, self.request_id = body, request_id_of(body)
        self.name = self.request_id or "a body that names no request"
        self._before = self._row()
        answer = self._sqs.send_message(QueueUrl=self._outputs["WorkQueueUrl"], MessageBody=body)
        self._message_id = answer["MessageId"]

    def observe(self, elapsed: float) -> Observation:
        """The queue is read first: what has left it by then is in the ledger or in a dead letter."""
        depth = queue_reading.depth(self._sqs, self._outputs["WorkQueueUrl"])
        row = self._row()
        gone = row == self._before and not depth["visible"] and not depth["in flight"]
        letter = self._letter(row) if gone or (row and row.status == "DEAD_LETTERED") else None
        return Observation(
            elapsed=elapsed,
            visible=depth["visible"],
            in_flight=depth["in flight"],
            before=self._before,
            row=row,
            letter=letter,
            unworked=letter is not None and letter.source_message_id == self._message_id,
            late=row is not None and row.next_attempt_at is not None and _seconds_until(row.next_attempt_at) > MAX_WAIT,
        )

    def manifest(self, row: LedgerRow | None) -> dict[str, Any] | None:
        """What the shipped work has published, by its result; None for a result of another form."""
        result = json.loads(row.result) if row and row.result else None
        if not isinstance(result, dict) or not isinstance(result.get("manifest"), str):
            return None
        bucket, key = self._outputs["DataBucketName"], result["manifest"]
        manifest: dict[str, Any] = json.loads(self._s3.get_object(Bucket=bucket, Key=key)["Body"].read())
        return {"bucket": bucket, "key": key, "parts": manifest["parts"]}

    def _row(self) -> LedgerRow | None:
        if self.request_id is None:
            return None
        table = self._outputs["RequestLedgerTableName"]
        key = {"request_id": {"S": self.request_id}}
        item = self._dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
        return parse_row(item) if item else None

    def _letter(self, row: LedgerRow | None) -> DeadLetter | None:
        letters = peek_dead_letters(self._sqs, self._outputs["WorkDeadLetterQueueUrl"])
        own = [letter for letter in letters if letter.source_message_id == self._message_id]
        if not own and row is not None:
            wanted = (row.request_id, row.attempts)  # not an earlier one's, which stays there after a manual redrive
            own = [letter for letter in letters if (letter.idempotency_key, letter.retry_count) == wanted]
        return own[-1] if own else None


def _seconds_until(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp() - time.time()
