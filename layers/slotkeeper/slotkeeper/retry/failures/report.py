"""Failures of work by cause, by downstream and over time, compared with the period before.

A cause is an error type and a fingerprint (fingerprint.py). analysis.py counts the failures of rows,
which reading.py reads.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from slotkeeper.retry.downstream.breaker_history import BreakerHistory

BUCKETS = 24  # of the period, for the failures over time
MAX_CAUSES = 500  # the failures of the smallest causes beyond these are counted together
MAX_EXAMPLES = 10  # request ids and names of malformed rows
UNKNOWN = "unknown"
OTHER = ("other causes", f"beyond the largest {MAX_CAUSES}")


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
