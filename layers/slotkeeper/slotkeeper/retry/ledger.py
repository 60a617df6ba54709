"""The request ledger: one DynamoDB item per request, one conditional UpdateItem per step.

    request_id        S, key
    status            S: RUNNING, FAILED, WAITING, SUCCEEDED or DEAD_LETTERED
    attempts          N: the number of the latest attempt that was claimed
    claim             S: the token of the delivery that works on that attempt
    lease_until       N: when that delivery's lease ends
    first_attempt_at, last_attempt_at, next_attempt_at   S: times for people
    last_error        S
    history           L of M {attempt N, at S, error S, type S}: the first failed attempt and the last nineteen.
                      `type` is the error type's name; entries without it have an unknown type
    downstream        S, optional: the name of the downstream that the latest attempt was claimed for
    plan              S, only while FAILED: the decision about the failed attempt, or its failure if no decision was
                      made yet
    result            S, only when SUCCEEDED: the result of the work, JSON
    payload_hash      S
    expires_at        N: TTL, seconds since the epoch

    claim     a delivery of attempt n          if no attempt up to n was claimed before, none succeeded, and attempt
                                               n - 1 is not running under a lease -> RUNNING
    take over a later delivery of attempt n    if the claim is still the one that it read, and its lease has ended
    record    the claim's delivery             stores the decision about its failure -> FAILED
    defer     the claim's delivery             stores its failure without a decision, and ends its lease -> FAILED
    settle    the claim's delivery             -> SUCCEEDED, WAITING (for attempt n + 1) or DEAD_LETTERED
    cancel    an operator                      if attempt n + 1 is waiting: fails it before it starts -> FAILED
    make due  an operator                      if attempt n + 1 is waiting: it is due now

No two attempts of a request run at the same time:

1. The message of attempt n + 1 is sent only after attempt n was decided. So if n + 1 is delivered while n runs, the
   message of n + 1 or n was sent manually. The claim of n + 1 then waits for the lease of n.
2. After the claim of n + 1, a late delivery of n finds a larger number in `attempts` and ends.

A cancelled attempt has an ended lease and a plan to dead-letter it. The delivery that brings its message, possibly days
later, takes the attempt over and carries out the plan, as after the death of a worker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Attributes, MalformedAttribute, Table, number
from slotkeeper.retry.message import Message, epoch, instant
from slotkeeper.retry.policy import MAX_AGE_SECONDS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

CLAIM_CONDITION = (
    "attribute_not_exists(request_id) OR "
    "(attempts < :attempt AND #status <> :succeeded AND (#status <> :running OR lease_until < :clock))"
)
TAKE_OVER_CONDITION = "attempts = :attempt AND claim = :seen AND #status IN (:running, :failed)"
HELD_CONDITION = "attempts = :attempt AND claim = :mine AND #status IN (:running, :failed)"
WAITING_CONDITION = "attempts = :before AND #status = :waiting"

CLAIM_UPDATE = (
    "REMOVE next_attempt_at, #plan, #result "
    "SET #status = :running, attempts = :attempt, claim = :mine, lease_until = :lease, payload_hash = :hash, "
    "first_attempt_at = if_not_exists(first_attempt_at, :first), last_attempt_at = :now, expires_at = :expires"
)
DOWNSTREAM_UPDATE = ", downstream = :downstream"  # added to CLAIM_UPDATE by a worker that watches its downstreams
TAKE_OVER_UPDATE = "SET claim = :mine, lease_until = :lease"
RECORD_UPDATE = "SET #status = :failed, #plan = :plan, last_error = :error, history = :history"
DEFER_UPDATE = f"{RECORD_UPDATE}, lease_until = :ended"
WAITING_UPDATE = "SET #status = :waiting, next_attempt_at = :next REMOVE #plan, lease_until"
DEAD_LETTERED_UPDATE = "SET #status = :dead_lettered REMOVE #plan, lease_until, next_attempt_at"
SUCCEEDED_UPDATE = "SET #status = :succeeded, #result = :result REMOVE #plan, lease_until"
CANCEL_UPDATE = (
    "SET #status = :failed, attempts = :attempt, claim = :mine, lease_until = :ended, last_attempt_at = :now, "
    "#plan = :plan, last_error = :error, history = :history, expires_at = :expires"
)
MAKE_DUE_UPDATE = "SET next_attempt_at = :now"

FailedAttempts = tuple[Mapping[str, Any], ...]  # failed attempts: {attempt, at, error}, and type if it is known

STATUSES = RUNNING, FAILED, WAITING, SUCCEEDED, DEAD_LETTERED = (
    "RUNNING",
    "FAILED",
    "WAITING",
    "SUCCEEDED",
    "DEAD_LETTERED",
)

# A row outlives every message of its request: the maximum age of retries, plus the retention of the queue and of the
# dead-letter queue (SQS quotas: at most 14 days each), plus a day for clocks and TTL. It starts again at each attempt.
RETENTION_SECONDS = MAX_AGE_SECONDS + 29 * 86400

MAX_HISTORY_ENTRIES = 20  # DynamoDB charges each read and write by the size of the whole row
MAX_ERROR_CHARACTERS = 300
# Twenty types of this length add less than 2 KB to a row, whose errors alone may have 6 KB.
MAX_TYPE_CHARACTERS = 64


@dataclass(frozen=True)
class Row:
    """An item of the ledger, without the attributes for people. Times are seconds since the epoch."""

    status: str
    attempts: int
    claim: str
    lease_until: float
    last_attempt_at: float
    payload_hash: str
    plan: Mapping[str, Any] | None = None
    history: FailedAttempts = field(default=(), repr=False)
    next_attempt_at: float | None = None
    last_error: str = ""
    result: str = field(default="", repr=False)
    downstream: str = ""


@dataclass(frozen=True)
class Claimed:
    """This delivery has claimed the attempt.

    Args:
        started_at: when the attempt started, as in the row; seconds since the epoch.
        died: an earlier delivery had claimed the attempt, and did not record how it ended.
        plan: the decision that an earlier delivery recorded and did not carry out, or the failure without a decision.
        history: the failed attempts before.
    """

    token: str
    started_at: float
    died: bool = False
    plan: Mapping[str, Any] | None = None
    history: FailedAttempts = field(default=(), repr=False)


@dataclass(frozen=True)
class InProgress:
    """Another delivery works on this attempt until its lease ends."""

    lease_until: float


@dataclass(frozen=True)
class AlreadySettled:
    """The attempt has ended, or a later one has started. `started_at` and `result` are those of the latest attempt."""

    status: str
    attempts: int
    started_at: float = field(default=0.0, compare=False)
    result: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class RequestIdReused:
    """The request id is already used by a request with another payload."""

    status: str
    attempts: int


Claim = Claimed | InProgress | AlreadySettled | RequestIdReused


class ClaimLost(Exception):
    """Another delivery has taken this attempt over. The message names the attempt."""


class NextAttemptClaimed(ClaimLost):
    """Another delivery has already claimed the request's next attempt, so the plan for this one was carried out."""


class MalformedRow(Exception):
    """The item does not have the documented types. The message names the item and the attribute."""


Found = tuple[str, Row | MalformedRow]


class Ledger:
    """The steps against one table. Errors of DynamoDB itself pass through as ClientError or BotoCoreError."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "request_id")

    def claim(self, message: Message, token: str, now: float, lease: float, downstream: str = "") -> Claim:
        """Claim the message's attempt for the delivery with the token `token`, for `lease` seconds.

        Args:
            downstream: the name of the downstream that the attempt will call; empty if it is not watched.
        """
        named = {":downstream": {"S": downstream}} if downstream else {}
        values = {
            **named,
            ":mine": {"S": token},
            ":lease": number(now + lease),
            ":attempt": number(message.attempt),
            ":hash": {"S": message.payload_hash},
            ":first": {"S": instant(message.retries[0] if message.retries else now)},
            ":now": {"S": instant(now)},
            ":clock": number(now),
            ":expires": {"N": str(int(now) + RETENTION_SECONDS)},
        }
        row = self._update(message.request_id, CLAIM_UPDATE + DOWNSTREAM_UPDATE * len(named), CLAIM_CONDITION, values)
        if row.claim == token and row.attempts == message.attempt:  # also if botocore retried after a lost answer
            return Claimed(token, row.last_attempt_at, history=row.history)
        if row.payload_hash != message.payload_hash:
            return RequestIdReused(row.status, row.attempts)
        if row.attempts < message.attempt and row.status == RUNNING:
            return InProgress(row.lease_until)
        if row.attempts != message.attempt or row.status not in (RUNNING, FAILED):
            return AlreadySettled(row.status, row.attempts, row.last_attempt_at, row.result)
        if now < row.lease_until:
            return InProgress(row.lease_until)
        return self._take_over(message, row, token, now, lease)

    def would_begin(self, message: Message, now: float) -> bool:
        """Whether a claim of the message's attempt would now begin its work, by a consistent read. Raises MalformedRow.

        It would not if the attempt is settled, under way, decided, or cut off by the death of its worker.
        """
        row = self.read(message.request_id)
        return row is None or (
            row.payload_hash == message.payload_hash
            and row.attempts < message.attempt
            and row.status != SUCCEEDED
            and (row.status != RUNNING or row.lease_until < now)
        )

    def _take_over(self, message: Message, seen: Row, token: str, now: float, lease: float) -> Claim:
        values = {
            ":seen": {"S": seen.claim},
            ":mine": {"S": token},
            ":lease": number(now + lease),
            ":attempt": number(message.attempt),
        }
        row = self._update(message.request_id, TAKE_OVER_UPDATE, TAKE_OVER_CONDITION, values)
        if row.claim != token:
            return InProgress(row.lease_until)  # or settled since; the next delivery of this message reads that
        return Claimed(token, row.last_attempt_at, row.status == RUNNING, row.plan, row.history)

    def record(
        self, message: Message, claimed: Claimed, plan: Mapping[str, Any], error: str, error_type: str = ""
    ) -> FailedAttempts:
        """Record the decision about a failed attempt, before it is carried out; return the history.

        Args:
            error_type: the name of the error type, for the history; empty if unknown.

        Raises:
            ClaimLost: the lease had ended, and another delivery has taken the attempt over.
        """
        return self._note(message, claimed, plan, (error, error_type), RECORD_UPDATE)

    def defer(
        self, message: Message, claimed: Claimed, failure: Mapping[str, Any], error: str, error_type: str = ""
    ) -> None:
        """Record a failure about which no decision could be made, and end the lease.

        The next delivery of the message takes the attempt over and decides. Raises ClaimLost.
        """
        self._note(message, claimed, failure, (error, error_type), DEFER_UPDATE, {":ended": number(0)})

    def _note(
        self,
        message: Message,
        claimed: Claimed,
        plan: Mapping[str, Any],
        error: tuple[str, str],
        update: str,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> FailedAttempts:
        history = _longer(claimed.history, message.attempt, claimed.started_at, *error)
        values = {
            ":plan": {"S": json.dumps(dict(plan))},
            ":error": {"S": error[0][:MAX_ERROR_CHARACTERS]},
            ":history": {"L": [_entry(entry) for entry in history]},
            **more,
        }
        self._held(message, claimed, update, values, FAILED)
        return history

    def settle_waiting(self, message: Message, claimed: Claimed, due: float) -> None:
        """Record that the next attempt is scheduled for `due`, epoch seconds. Raises ClaimLost."""
        self._held(message, claimed, WAITING_UPDATE, {":next": {"S": instant(due)}}, WAITING)

    def settle_dead_lettered(self, message: Message, claimed: Claimed) -> None:
        """Record that the message was dead-lettered. Raises ClaimLost."""
        self._held(message, claimed, DEAD_LETTERED_UPDATE, {}, DEAD_LETTERED)

    def settle_succeeded(self, message: Message, claimed: Claimed, result: str) -> None:
        """Record that the work succeeded. `result` is JSON. Raises ClaimLost."""
        self._held(message, claimed, SUCCEEDED_UPDATE, {":result": {"S": result}}, SUCCEEDED)

    def read(self, request_id: str) -> Row | None:
        """Read the row consistently; None if there is none. Raises MalformedRow."""
        item = self._table.read(request_id)
        return _parse(request_id, item) if item else None

    def cancel(
        self, request_id: str, seen: Row, token: str, plan: Mapping[str, Any], error: str, now: float
    ) -> Row | None:
        """Fail the waiting attempt before it starts, with this plan; None if no attempt is waiting any more.

        Its lease has ended by every clock, so the delivery that brings its message carries out the plan.

        Args:
            seen: the row as it was read. A waiting row does not change, so its history is current.
            token: unique for this call, so that a retry after a lost answer recognizes its own write.
        """
        attempt = seen.attempts + 1
        history = _longer(seen.history, attempt, now, error, str(plan.get("code", "")))
        values = {
            ":before": number(seen.attempts),
            ":attempt": number(attempt),
            ":mine": {"S": token},
            ":ended": number(0),
            ":now": {"S": instant(now)},
            ":plan": {"S": json.dumps(dict(plan))},
            ":error": {"S": error[:MAX_ERROR_CHARACTERS]},
            ":history": {"L": [_entry(entry) for entry in history]},
            ":expires": {"N": str(int(now) + RETENTION_SECONDS)},
        }
        row = self._update(request_id, CANCEL_UPDATE, WAITING_CONDITION, values)
        return row if row.claim == token else None

    def make_due(self, request_id: str, seen: Row, now: float) -> bool:
        """Set the waiting attempt due now; False if none is waiting any more. The caller must send its message."""
        values = {":before": number(seen.attempts), ":now": {"S": instant(now)}}
        row = self._update(request_id, MAKE_DUE_UPDATE, WAITING_CONDITION, values)
        return (row.status, row.attempts) == (WAITING, seen.attempts)

    def rows(self, statuses: Collection[str], on_page: Callable[[int], None] = lambda _rows: None) -> Iterator[Found]:
        """Scan for the rows of these statuses, with their request ids. The scan is eventually consistent and unordered.

        It reads the whole table, at half a read unit per 4 KB of row size.

        Args:
            on_page: receives for each page the number of rows that were read.
        """
        wanted = {f":{status.lower()}": {"S": status} for status in statuses}
        return self._scan(
            on_page,
            lambda: True,
            FilterExpression=f"#status IN ({', '.join(wanted)})",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues=wanted,
        )

    def failed_rows(self, on_page: Callable[[int], None], may_continue: Callable[[], bool]) -> Iterator[Found]:
        """Scan for the rows with a failed attempt, of any status, as `rows` does.

        Args:
            may_continue: called before each page after the first; False ends the scan.
        """
        return self._scan(on_page, may_continue, FilterExpression="attribute_exists(history)")

    def _scan(
        self, on_page: Callable[[int], None], may_continue: Callable[[], bool], **options: Any
    ) -> Iterator[Found]:
        for page in self._table.dynamodb.get_paginator("scan").paginate(TableName=self._table.name, **options):
            for item in page["Items"]:
                request_id = item["request_id"]["S"]
                try:
                    yield request_id, _parse(request_id, item)
                except MalformedRow as error:
                    yield request_id, error
            on_page(page["ScannedCount"])
            if "LastEvaluatedKey" in page and not may_continue():
                return

    def _held(self, message: Message, claimed: Claimed, update: str, values: Mapping[str, Any], becomes: str) -> None:
        mine = {":mine": {"S": claimed.token}, ":attempt": number(message.attempt)}
        row = self._update(message.request_id, update, HELD_CONDITION, {**mine, **values})
        # Compare the row, because after a lost answer botocore's retry fails on the write that it made itself.
        if (row.claim, row.attempts, row.status) != (claimed.token, message.attempt, becomes):
            lost = NextAttemptClaimed if row.attempts > message.attempt else ClaimLost
            raise lost(
                f"another delivery has taken over attempt {message.attempt} of {message.request_id!r}: its row is "
                f"{row.status}, attempt {row.attempts}. Nothing was recorded"
            )

    def _update(self, request_id: str, update: str, condition: str, values: Mapping[str, Any]) -> Row:
        """Make the update if its condition holds, and return the current row."""
        expression = f"{update} {condition}"
        statuses = {f":{status.lower()}": {"S": status} for status in STATUSES}
        # DynamoDB refuses names and values that its expressions do not use.
        names = {n: n[1:] for n in ("#status", "#plan", "#result") if n in expression}
        used = {k: v for k, v in statuses.items() if k in expression}
        return _parse(
            request_id, self._table.update_and_read(request_id, update, condition, {**values, **used}, names).item
        )


def _longer(history: FailedAttempts, attempt: int, started_at: float, error: str, error_type: str) -> FailedAttempts:
    """Add a failed attempt to the history, once. A history that is too long loses entries in its middle."""
    before = (entry for entry in history if entry["attempt"] != attempt)  # a deferred attempt is in it already
    entry: dict[str, Any] = {"attempt": attempt, "at": instant(started_at), "error": error[:MAX_ERROR_CHARACTERS]}
    if error_type:
        entry["type"] = error_type[:MAX_TYPE_CHARACTERS]
    longer = (*before, entry)
    return longer if len(longer) <= MAX_HISTORY_ENTRIES else (longer[0], *longer[1 - MAX_HISTORY_ENTRIES :])


def _entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: {"S": entry[name]} for name in ("at", "error", "type") if name in entry}
    return {"M": {"attempt": number(entry["attempt"]), **texts}}


def _parse(request_id: str, item: Mapping[str, Any]) -> Row:
    row = Attributes(item)
    try:
        status = STATUSES[row.parsed("status", STATUSES.index)]
        return Row(
            status=status,
            attempts=row.whole("attempts"),
            claim=row.text("claim"),
            lease_until=row.number("lease_until", 0.0),
            last_attempt_at=row.parsed("last_attempt_at", epoch),
            payload_hash=row.text("payload_hash"),
            plan=row.parsed("plan", _plan) if status == FAILED else row.parsed("plan", _plan, None),
            history=tuple(_failed_attempt(entry) for entry in row.list_of_maps("history", ())),
            next_attempt_at=row.parsed("next_attempt_at", epoch, None),
            last_error=row.text("last_error", ""),
            result=row.text("result", ""),
            downstream=row.text("downstream", ""),
        )
    except MalformedAttribute as error:
        raise MalformedRow(
            f"item {request_id!r} of the request ledger: {error.attribute} is missing or not of its documented type"
        ) from None


def _failed_attempt(entry: Attributes) -> Mapping[str, Any]:
    known = {"attempt": entry.whole("attempt"), "at": entry.text("at"), "error": entry.text("error")}
    error_type = entry.text("type", "")
    return {**known, "type": error_type} if error_type else known


def _plan(text: str) -> Mapping[str, Any]:
    return dict(json.loads(text))
