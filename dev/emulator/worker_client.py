"""A client of the deployed worker, and `make work`: sends a message, follows it to its end, prints the outcome."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from dev.emulator import queue_reading
from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import counted
from dev.emulator.queue_reading import attributes, drain, peek
from dev.tools.function_folders import own_module

# Seconds. For a later attempt, the command shows its time instead of waiting.
MAX_WAIT = 60.0
# Seconds within which a worker claims a received message, unless it fails before the claim.
CLAIMED_WITHIN = 30.0
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


class End(Enum):
    """The reason why the command stops waiting."""

    SUCCEEDED = "SUCCEEDED"
    DEAD_LETTERED = "DEAD_LETTERED"
    WAITING = "its next attempt is later than MAX_WAIT"
    DROPPED = "the ledger already had this attempt"
    NOT_BEGUN = "the worker has received the message without claiming its request"


@dataclass(frozen=True)
class Observation:
    """The state of a message that was sent.

    Args:
        elapsed: seconds since it was sent.
        visible, in_flight: messages on WorkQueue, including other messages.
        before: the request's row before it was sent. None: there was none, or the body has no request id.
        row: the row now.
        dead_letter: of this message, or of the request whose row is DEAD_LETTERED.
        unworked: `dead_letter` is of this message, which was refused without an attempt.
        late: the next attempt is due later than `MAX_WAIT`.
    """

    elapsed: float
    visible: int
    in_flight: int
    before: LedgerRow | None = None
    row: LedgerRow | None = None
    dead_letter: DeadLetter | None = None
    unworked: bool = False
    late: bool = False

    @property
    def changed(self) -> LedgerRow | None:
        """The row, if the ledger was written since the message was sent."""
        return self.row if self.row != self.before else None

    @property
    def end(self) -> End | None:
        """The reason to stop waiting; None while there is something to wait for."""
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
        self._sqs, self._dynamodb = aws.client("sqs"), aws.client("dynamodb")
        self._outputs = aws.outputs
        self.request_id = request_id_of(body)
        self.name = self.request_id or "a body without a request id"
        self._before = self._row()
        answer = self._sqs.send_message(QueueUrl=self._outputs["WorkQueueUrl"], MessageBody=body)
        self._message_id = answer["MessageId"]

    def observe(self, elapsed: float) -> Observation:
        """Read the state. The queue is read first: a message that has left it is in the ledger or a dead letter."""
        depth = queue_reading.depth(self._sqs, self._outputs["WorkQueueUrl"])
        row = self._row()
        gone = row == self._before and not depth["visible"] and not depth["in flight"]
        dead_letter = self._dead_letter_of(row) if gone or (row and row.status == "DEAD_LETTERED") else None
        return Observation(
            elapsed=elapsed,
            visible=depth["visible"],
            in_flight=depth["in flight"],
            before=self._before,
            row=row,
            dead_letter=dead_letter,
            unworked=dead_letter is not None and dead_letter.source_message_id == self._message_id,
            late=row is not None and row.next_attempt_at is not None and _seconds_until(row.next_attempt_at) > MAX_WAIT,
        )

    def _row(self) -> LedgerRow | None:
        if self.request_id is None:
            return None
        table = self._outputs["RequestLedgerTableName"]
        key = {"request_id": {"S": self.request_id}}
        item = self._dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
        return parse_row(item) if item else None

    def _dead_letter_of(self, row: LedgerRow | None) -> DeadLetter | None:
        queued = peek(self._sqs, self._outputs["WorkDeadLetterQueueUrl"])
        dead_letters = [parse_dead_letter(message) for message in queued]
        own = [each for each in dead_letters if each.source_message_id == self._message_id]
        if not own and row is not None:
            wanted = (row.request_id, row.attempts)  # an earlier attempt's dead letter stays after a manual redrive
            own = [each for each in dead_letters if (each.idempotency_key, each.retry_count) == wanted]
        return own[-1] if own else None


def _seconds_until(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp() - time.time()


# ---------------------------------------------------------------------------------------------------- what is printed


@dataclass(frozen=True)
class WorkResult:
    """What `make work` prints on the outcome of its message, and its exit code."""

    code: int
    lines: list[str]


def resend(body: str) -> str:
    """The shell command that sends a body unchanged."""
    return f"make work BODY={shlex.quote(body)}"


def describe(last: Observation, name: str, result_lines: Sequence[str]) -> WorkResult:
    """The report on the last observation. `name` is only displayed. `result_lines`: printed after a success."""
    if last.end is End.NOT_BEGUN:
        return WorkResult(
            NOTHING_RUNS,
            [
                "the worker has received the message and not claimed the attempt: it holds the message back "
                "(slotkeeper --local retry breaker show), or an earlier message makes the same attempt now, or the "
                "function fails at its start (its log states why)",
                "a message that is held back returns when the downstream may be called, any other 12 minutes after it "
                "was received",
            ],
        )
    if last.dead_letter is not None and last.unworked:
        return _unworked(name, last.dead_letter)
    if last.row is None:
        return WorkResult(
            NOTHING_RUNS, ["the message left WorkQueue without an outcome or a dead letter: see the functions' log"]
        )
    result = _by_row(name, last.row, last.dead_letter, result_lines)
    if last.end is End.DROPPED:
        first = f"dropped: the ledger already has this attempt of {name}. Its row:"
        return WorkResult(result.code, [first, *result.lines])
    return result


def _unworked(name: str, dead_letter: DeadLetter) -> WorkResult:
    code = dead_letter.code or "no code"
    lines = [f"{name} is dead-lettered without an attempt: {code}", dead_letter.reason or "no reason"]
    if code == "InvalidMessage":
        lines.append("correct the body, and send it again")
    return WorkResult(DEAD_LETTERED, lines)


def _by_row(name: str, row: LedgerRow, dead_letter: DeadLetter | None, result_lines: Sequence[str]) -> WorkResult:
    after = f"after {counted(row.attempts, 'attempt')}"
    if row.status == "SUCCEEDED":
        return WorkResult(SUCCEEDED, [f"{name} has succeeded {after}", *result_lines])
    if row.status == "DEAD_LETTERED":
        return _dead_lettered(f"{name} is dead-lettered {after}", row, dead_letter)
    lines = [f"{name} is {row.status} {after}"]
    if row.status == "WAITING":
        lines = [f"{name} is WAITING {after}; the next attempt begins at {row.next_attempt_at}"]
    if row.last_error:
        lines.append(f"last error: {row.last_error}")
    later = f"slotkeeper --local request show {shlex.quote(row.request_id)}"
    return WorkResult(SUCCEEDED, [*lines, f"its outcome later: {later}"])


def _dead_lettered(what: str, row: LedgerRow, dead_letter: DeadLetter | None) -> WorkResult:
    if dead_letter is None:
        missing = f"{what}; its dead letter is no longer in WorkDeadLetterQueue"
        return WorkResult(DEAD_LETTERED, [missing, row.last_error or "no error is recorded"])
    again = f"slotkeeper --local dlq redrive work --id {shlex.quote(row.request_id)}"
    lines = [f"{what}: {dead_letter.code}", dead_letter.reason or "no reason"]
    return WorkResult(DEAD_LETTERED, [*lines, f"correct the cause, and send it as attempt {row.attempts + 1}: {again}"])
