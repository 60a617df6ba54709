"""The report of failures: by cause, by downstream and over time, compared with the period before. Pure.

It contains the breakers' history. `next_steps` suggests what an operator should do, and `mail` is the report as a
message to the alarm topic. A cause is an error type and a fingerprint. analysis.py counts the failures of rows, which
reading.py reads.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from slotkeeper.next_step import ToFillIn, next_step
from slotkeeper.printable import printable
from slotkeeper.retry.downstream.health import THROTTLE_ERRORS, Change, Health, State
from slotkeeper.retry.downstream.rules import MAX_CHANGES
from slotkeeper.retry.message import instant

BUCKETS = 24  # of the period, for the failures over time
MAX_CAUSES = 500  # the failures of the smallest causes beyond these are counted together
MAX_EXAMPLES = 10  # request ids and names of malformed rows
UNKNOWN = "unknown"
OTHER = ("other causes", f"beyond the largest {MAX_CAUSES}")

MAX_MAILED_CAUSES = 5
MAX_BREAKERS = 10
# SNS accepts 256 KB (SNS API Reference, Publish). The texts of five causes have a tenth of this.
MAX_CHARACTERS = 20_000
MAX_SUBJECT_CHARACTERS = 99  # less than 100, in ASCII and on one line (SNS API Reference, Publish)

# The failures that the next attempt would have again, because the message itself is at fault.
_SENDER = ("Poison", "InvalidMessage", "TooLarge", "RequestIdReused")
_CREDENTIALS = (
    "CredentialsRefused",
    "AccessDenied",
    "AccessDeniedException",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
)
_THROTTLED = (*THROTTLE_ERRORS, "ProvisionedThroughputExceededException", "RequestLimitExceeded", "NotPermitted")
_STEPS: Mapping[str, str] = {
    "Died": "Raise the worker's memory or timeout if its log shows that it ran out of them",
    "TooSlow": "Raise the worker's timeout, or reduce the work of one message",
    "TooOld": "Find out why the downstream was closed to these requests, or raise max_age_seconds in the retry policy",
    "Cancelled": "None: an operator cancelled them",
    "none": "SQS moved them after too many receives: read the worker's log for what failed before each attempt",
    OTHER[0]: "Choose a shorter period with --since",
}


@dataclass(frozen=True)
class Period:
    """From `start` up to `end`, epoch seconds."""

    start: float
    end: float

    @property
    def before(self) -> Period:
        """The period of the same length before this one."""
        return Period(2 * self.start - self.end, self.start)

    def __contains__(self, moment: float) -> bool:
        return self.start <= moment < self.end

    def bucket(self, moment: float) -> int:
        """The number of the bucket of a moment in the period."""
        return min(BUCKETS - 1, int((moment - self.start) / (self.end - self.start) * BUCKETS))


@dataclass(frozen=True)
class DeadLetterNote:
    """The fields of a dead-letter message that the report uses.

    Args:
        at: when it was sent, epoch seconds.
        attempted: whether an attempt was made, so that the ledger has the request's failures.
    """

    request_id: str
    code: str
    reason: str
    at: float
    attempted: bool


@dataclass
class Cause:
    """The failures of one cause in the period.

    Args:
        failures: failed attempts, and messages that were dead-lettered without an attempt.
        attempts: failed attempts, including those that a policy does not count.
        before: `failures` of the period before.
        first, last: when the first and the last of the failures began, epoch seconds; 0 without one.
        requests: with at least one of the failures. Of these, `recovered` have succeeded, `waiting` are waiting for an
            attempt or have one under way, and `lost` were dead-lettered by a failure of this cause.
        codes: the codes of its messages that are in the dead-letter queue, as far as they were read.
        queued: request ids of some of these messages.
        buckets: failures over time.
    """

    error_type: str
    fingerprint: str
    failures: int = 0
    attempts: int = 0
    before: int = 0
    first: float = 0.0
    last: float = 0.0
    requests: int = 0
    recovered: int = 0
    waiting: int = 0
    lost: int = 0
    example: str = ""
    downstreams: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    queued: list[str] = field(default_factory=list)
    buckets: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    @property
    def code(self) -> str:
        """A short name of the cause, the same in each report."""
        return hashlib.sha256(f"{self.error_type}\n{self.fingerprint}".encode()).hexdigest()[:8]

    @property
    def is_new(self) -> bool:
        """It has failures in the period, and had none in the period before."""
        return bool(self.failures) and not self.before

    def add(self, other: Cause) -> None:
        """Count the failures of another cause as this one's. A request that failed by both is counted twice."""
        for name in ("failures", "attempts", "before", "requests", "recovered", "waiting", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first = min(filter(None, (self.first, other.first)), default=0.0)
        self.last = max(self.last, other.last)
        self.example = self.example or other.example
        self.downstreams += other.downstreams
        self.codes += other.codes
        self.queued = (self.queued + other.queued)[:MAX_EXAMPLES]
        self.buckets = [mine + more for mine, more in zip(self.buckets, other.buckets, strict=True)]

    def saw(self, moment: float, period: Period) -> None:
        """Count a failure in the period."""
        self.failures += 1
        self.first = min(self.first or moment, moment)
        self.last = max(self.last, moment)
        self.buckets[period.bucket(moment)] += 1


@dataclass
class DownstreamFailures:
    """The failures of one downstream. The fields are as in Cause."""

    failures: int = 0
    before: int = 0
    requests: int = 0
    lost: int = 0


@dataclass
class Reading:
    """The numbers of items that were read, and the items that were not.

    Args:
        rows: of the ledger, including those without a failure.
        calls: of AWS.
        left_out: the parts that were not read, with the reason.
        malformed: how many items could not be parsed; `malformed_names` names the first.
        unlisted: failed attempts that no history names any more: a row has the first failure and the last 19.
    """

    rows: int = 0
    dead_letters: int = 0
    calls: int = 0
    left_out: list[str] = field(default_factory=list)
    malformed: int = 0
    malformed_names: list[str] = field(default_factory=list)
    unlisted: int = 0


@dataclass(frozen=True)
class BreakerHistory:
    """The breaker of one downstream in a period.

    Args:
        openings, closings: how often it opened and closed; probes in between are not changes.
        open_seconds: for how long it was open.
        is_open: now.
        changes: those of the period, the oldest first.
        incomplete: the item has the last changes only, and older ones were in the period. Then the numbers are minima.
    """

    downstream: str
    openings: int
    closings: int
    open_seconds: float
    is_open: bool
    changes: tuple[Change, ...]
    incomplete: bool


@dataclass(frozen=True)
class FailureReport:
    """The report. `causes` have failures in the period, most failures first; `gone` only in the period before.

    `codes` has the number of messages of each code that were read from the dead-letter queue.
    """

    period: Period
    causes: tuple[Cause, ...]
    gone: tuple[Cause, ...]
    downstreams: Mapping[str, DownstreamFailures]
    breakers: tuple[BreakerHistory, ...]
    codes: Mapping[str, int]
    reading: Reading

    @property
    def failures(self) -> int:
        return sum(cause.failures for cause in self.causes)

    @property
    def before(self) -> int:
        """The failures of the period before."""
        return sum(cause.before for cause in (*self.causes, *self.gone))

    @property
    def buckets(self) -> list[int]:
        """The failures over time."""
        return [sum(counts) for counts in zip(*(cause.buckets for cause in self.causes), strict=True)] or [0] * BUCKETS


def breaker_history(downstream: str, health: Health, start: float, end: float) -> BreakerHistory:
    """Compute the history from `start` to `end`, epoch seconds, from the changes that the item has."""
    opened: float | None = None
    seconds = 0.0
    openings = closings = 0
    for change in health.breaker.changes:
        if change.at >= end:
            break
        if change.to == State.OPEN and opened is None:
            opened = change.at
            openings += change.at >= start
        elif change.to == State.CLOSED and opened is not None:
            seconds += max(0.0, change.at - max(opened, start))
            closings += change.at >= start
            opened = None
    if opened is not None:
        seconds += end - max(opened, start)
    return BreakerHistory(
        downstream,
        openings,
        closings,
        seconds,
        health.breaker.state != State.CLOSED,
        tuple(change for change in health.breaker.changes if start <= change.at < end),
        incomplete=len(health.breaker.changes) >= MAX_CHANGES and health.breaker.changes[0].at > start,
    )


def next_steps(cause: Cause, report: FailureReport, stack: str) -> tuple[str, ...]:
    """Return what an operator should do: the repair, then the command for the messages in the dead-letter queue."""
    repair = _repair(cause, report, stack)
    if not cause.lost or cause.error_type == "Cancelled":
        return (repair,)
    return (repair, _redrive(cause, report, stack))


def _repair(cause: Cause, report: FailureReport, stack: str) -> str:
    if cause.error_type in _SENDER or set(cause.codes) & set(_SENDER):
        return "Correct the sender: no attempt can perform these messages"
    if cause.error_type in _THROTTLED:
        return "Raise the downstream's limit, or lower the rate: slotkeeper retry limit, or WorkerConcurrency"
    if cause.error_type in _CREDENTIALS:
        return "Renew the worker's credentials or permissions for the downstream"
    if step := _STEPS.get(cause.error_type):
        return step
    opened = [each.downstream for each in report.breakers if each.openings or each.is_open]
    if names := [name for name in opened if name in cause.downstreams]:
        return f"Find out what is wrong with downstream {names[0]}, whose breaker opened: " + next_step(
            "retry breaker show", names[0], stack=stack
        )
    if not cause.example:
        return "Read the worker's log"
    return f"Read the worker's log of the example: {next_step('request show', cause.example, stack=stack)}"


def _redrive(cause: Cause, report: FailureReport, stack: str) -> str:
    """The command that sends the lost messages again: by code if the code has no other messages, otherwise by ids."""
    if cause.error_type in _SENDER:
        return f"List the messages: {next_step('dlq show', 'work', stack=stack)}"
    redrive = partial(next_step, "dlq redrive", "work", stack=stack)
    if not cause.codes:
        command = redrive(code=ToFillIn("CODE"))
        return f"Then redrive the {cause.lost:,} lost, if they are still in the queue: {command}, or --id ID"
    # A queue of which only a part was read may have other messages of the same code.
    all_read = not any("WorkDeadLetterQueue" in part for part in report.reading.left_out)
    if all_read and all(report.codes[code] == number for code, number in cause.codes.items()):
        return f"After the repair: {redrive(code=[*cause.codes])}"
    if sum(cause.codes.values()) == len(cause.queued) and (all_read or cause.lost == len(cause.queued)):
        return f"After the repair: {redrive(id=[*cause.queued])}"
    return (
        f"After the repair: {redrive(code=[*cause.codes])} (it may also send messages of other causes: "
        "see them with --dry-run)"
    )


@dataclass(frozen=True)
class Mail:
    """The subject and the text of a message."""

    subject: str
    text: str


def mail(found: FailureReport, stack: str) -> Mail:
    """Return the message: the causes with the most failures, their next steps, and the command for more."""
    subject = f"{stack}: {found.failures:,} failures of work, {len(found.causes):,} causes"
    return Mail(subject[:MAX_SUBJECT_CHARACTERS], "\n".join(map(printable, _lines(found, stack)))[:MAX_CHARACTERS])


def _lines(found: FailureReport, stack: str) -> Iterator[str]:
    days = (found.period.end - found.period.start) / 86400
    yield f"Failures of work on stack {stack}, {_day(found.period.start)} to {_day(found.period.end)} (UTC)"
    yield f"{found.failures:,} failures; {found.before:,} in the {days:.0f} days before."
    if not found.failures:
        yield "No attempt failed."
    for number, cause in enumerate(found.causes[:MAX_MAILED_CAUSES], 1):
        yield ""
        yield from _cause(number, cause, found, stack)
    if len(found.causes) > MAX_MAILED_CAUSES:
        yield ""
        yield f"{len(found.causes) - MAX_MAILED_CAUSES:,} more causes."
    if found.gone:
        yield ""
        yield f"{len(found.gone):,} causes of the {days:.0f} days before did not occur again."
    opened = [each for each in found.breakers if each.openings or each.is_open]
    if opened:
        yield ""
    for each in opened[:MAX_BREAKERS]:
        yield _breaker(each)
    yield ""
    yield f"Read {found.reading.rows:,} rows of RequestLedgerTable, and no dead-letter message."
    for part in found.reading.left_out:
        yield f"Not read: {part}. The numbers above are minima."
    if found.reading.malformed:
        yield f"{found.reading.malformed:,} malformed items were not counted."
    yield f"More, with the dead-letter messages: {next_step('retry report', since=f'{days:.0f}d', stack=stack)}"


def _cause(number: int, cause: Cause, found: FailureReport, stack: str) -> Iterator[str]:
    change = "new" if cause.is_new else f"{cause.before:,} before"
    yield f"{number}. {cause.error_type}: {cause.fingerprint}"
    yield (
        f"   {cause.failures:,} failures ({change}) of {cause.requests:,} requests: {cause.lost:,} lost, "
        f"{cause.recovered:,} recovered, {cause.waiting:,} waiting. Example: {cause.example}"
    )
    for step in next_steps(cause, found, stack):
        yield f"   - {step}"


def _breaker(each: BreakerHistory) -> str:
    minutes = each.open_seconds / 60
    now = "open" if each.is_open else "closed"
    return f"Breaker of {each.downstream}: {each.openings} openings, open for {minutes:,.0f} min; it is {now} now."


def _day(moment: float) -> str:
    return instant(moment)[:10]
