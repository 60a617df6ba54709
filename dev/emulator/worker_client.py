"""A client of the deployed worker, and `make work`: sends a message, follows it to its end, prints the outcome."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import counted
from dev.emulator.queue_reading import attributes, drain, peek
from dev.tools.function_folders import own_module

# Seconds. For a later attempt, the command shows its time instead of waiting.
MAX_WAIT = 60.0
# Seconds. The function's timeout ends an attempt after 120 s.
STALLED_AFTER = 150.0
LEDGER_KEY = 128  # characters of a request id
SUCCEEDED, DEAD_LETTERED, NOTHING_RUNS = 0, 1, 2  # exit codes; a waiting request has not failed, so its code is 0


@dataclass(frozen=True)
class LedgerRow:
    """A request in the ledger. Its times are texts as stored, to be compared with those of dead letters."""

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
    """A message of WorkDeadLetterQueue. None means that it lacks the attribute."""

    body: str
    sent: float
    code: str | None
    reason: str | None
    idempotency_key: str | None
    retry_count: int | None
    first_attempt_at: str | None
    last_attempt_at: str | None
    history: Sequence[Mapping[str, Any]] | None
    source_message_id: str | None = None  # of a message that was refused without an attempt


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
    """Receive and delete every dead letter."""
    return [parse_dead_letter(message) for message in drain(sqs, queue_url)]


@dataclass(frozen=True)
class WorkResult:
    """What `make work` prints on the outcome of its message, and its exit code."""

    code: int
    lines: list[str]


NOT_BEGUN = WorkResult(
    NOTHING_RUNS,
    [
        "the worker has not claimed the attempt: it holds the message back (slotkeeper --local retry breaker show), or "
        "an earlier message makes the same attempt now, or the function fails at its start (its log states why)",
        "a message that is held back returns when the downstream may be called, any other after 12 minutes",
    ],
)


@dataclass(frozen=True)
class Observation:
    """The state of a message that was sent `elapsed` seconds ago. `result`: None while it is to be waited for."""

    elapsed: float
    status: str
    result: WorkResult | None = None

    @property
    def ended(self) -> bool:
        return self.result is not None


def request_id_of(body: str) -> str | None:
    """The request id of a body; None if it has none that can be a key of the ledger."""
    try:
        request_id = json.loads(body)["request_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return request_id if isinstance(request_id, str) and 0 < len(request_id) <= LEDGER_KEY else None


def result_lines(aws: EmbeddedAws, row: LedgerRow | None) -> list[str]:
    """What to print for the result of a request that has succeeded."""
    result = row.result if row else None
    sample = own_module("worker", "sample")
    if sample is None or result is None:
        return [f"its result: {result}"]
    lines: list[str] = sample.result_lines(aws.client("s3"), aws.outputs["DataBucketName"], json.loads(result))
    return lines


class SentMessage:
    """A message that was sent to WorkQueue, and its outcome."""

    def __init__(self, aws: EmbeddedAws, body: str) -> None:
        """Send it. Raises ClientError if SQS refuses it. `name` is only displayed."""
        self._aws, self._outputs = aws, aws.outputs
        self._sqs, self._dynamodb = aws.client("sqs"), aws.client("dynamodb")
        self.request_id = request_id_of(body)
        self.name = self.request_id or "a body without a request id"
        self._before = self._row()
        answer = self._sqs.send_message(QueueUrl=self._outputs["WorkQueueUrl"], MessageBody=body)
        self._message_id = answer["MessageId"]

    def observe(self, elapsed: float) -> Observation:
        """Read the state. The queue is read first: a message that has left it is in the ledger or a dead letter."""
        depth = queue_reading.depth(self._sqs, self._outputs["WorkQueueUrl"])
        row = self._row()
        if row is not None and row != self._before:
            return Observation(elapsed, f"{row.status}: attempt {row.attempts}", self._outcome(row))
        if queued := depth["visible"] + depth["in flight"]:
            return Observation(elapsed, f"on WorkQueue: {counted(queued, 'message')}, {depth['in flight']} in flight")
        refused = self._dead(lambda each: each.source_message_id == self._message_id)
        before = (self._outcome(row) or WorkResult(SUCCEEDED, [f"it is {row.status}"])) if row else None
        return Observation(elapsed, "off WorkQueue", without_attempt(self.name, refused, before))

    def _outcome(self, row: LedgerRow) -> WorkResult | None:
        if row.status == "SUCCEEDED":
            return outcome_of(row, time.time(), result=result_lines(self._aws, row))
        if row.status != "DEAD_LETTERED":
            return outcome_of(row, time.time())
        # The dead-letter message of an earlier attempt stays after a manual redrive.
        wanted = (row.request_id, row.attempts)
        return outcome_of(row, time.time(), self._dead(lambda each: (each.idempotency_key, each.retry_count) == wanted))

    def _dead(self, is_wanted: Callable[[DeadLetter], bool]) -> DeadLetter | None:
        messages = peek(self._sqs, self._outputs["WorkDeadLetterQueueUrl"])
        return next(filter(is_wanted, map(parse_dead_letter, messages)), None)

    def _row(self) -> LedgerRow | None:
        if self.request_id is None:
            return None
        table = self._outputs["RequestLedgerTableName"]
        key = {"request_id": {"S": self.request_id}}
        item = self._dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
        return parse_row(item) if item else None


def resend(body: str) -> str:
    """The shell command that sends a body unchanged."""
    return f"make work BODY={shlex.quote(body)}"


def outcome_of(
    row: LedgerRow, now: float, dead: DeadLetter | None = None, result: Sequence[str] = ()
) -> WorkResult | None:
    """The outcome by the ledger; None while an attempt is to come soon.

    Args:
        dead: the dead-letter message of the row's last attempt.
        result: printed after a success.
    """
    after, name = f"after {counted(row.attempts, 'attempt')}", row.request_id
    if row.status == "SUCCEEDED":
        return WorkResult(SUCCEEDED, [f"{name} has succeeded {after}", *result])
    error = row.last_error or "no error is recorded"
    if row.status == "DEAD_LETTERED":
        again = f"slotkeeper --local dlq redrive work --id {shlex.quote(name)}"
        return WorkResult(
            DEAD_LETTERED,
            [
                f"{name} is dead-lettered {after}: {dead.code if dead else 'its message has left WorkDeadLetterQueue'}",
                error,
                f"correct the cause, and send it as attempt {row.attempts + 1}: {again}",
            ],
        )
    due = row.next_attempt_at
    if due is None or datetime.fromisoformat(due).timestamp() - now <= MAX_WAIT:
        return None
    later = f"slotkeeper --local request show {shlex.quote(name)}"
    return WorkResult(
        SUCCEEDED,
        [
            f"{name} is WAITING {after}; the next attempt begins at {due}",
            f"last error: {error}",
            f"its outcome later: {later}",
        ],
    )


def without_attempt(name: str, refused: DeadLetter | None, before: WorkResult | None) -> WorkResult:
    """The outcome of a message that has left the queue, and whose row has not changed. `before`: that of the row."""
    if refused is not None:
        lines = [f"{name} is dead-lettered without an attempt: {refused.code}", refused.reason or "no reason"]
        return WorkResult(DEAD_LETTERED, lines)
    if before is not None:
        return WorkResult(before.code, [f"dropped: the ledger already has this attempt of {name}", *before.lines])
    return WorkResult(NOTHING_RUNS, ["the message left WorkQueue without an outcome: see the functions' log"])
