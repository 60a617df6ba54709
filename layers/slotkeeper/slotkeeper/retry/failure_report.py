"""Failures of work by cause, by downstream and over time, and what has changed against the period before.

A cause is an error type and a fingerprint (failure_fingerprint.py). `FailureAnalysis` receives the ledger's rows one by
one and keeps none of them, so its memory depends on the number of causes, which is limited. It makes no calls;
failure_reading.py reads.

A request counts for each cause by which it failed. Its loss counts for the cause of its last failure only.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slotkeeper.retry.breaker_history import BreakerHistory
from slotkeeper.retry.failure_fingerprint import fingerprint
from slotkeeper.retry.ledger import DEAD_LETTERED, SUCCEEDED, Row
from slotkeeper.retry.message import epoch

BUCKETS = 24  # of the period, for the failures over time
MAX_CAUSES = 500  # failures of further causes are counted together
MAX_EXAMPLES = 10  # request ids and names of malformed rows
UNKNOWN = "unknown"
OTHER = ("other causes", f"beyond the first {MAX_CAUSES}")


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
    """What the report needs of a dead-letter message.

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
    """What was read.

    Args:
        rows: of the ledger, including those without a failure.
        calls: of AWS.
        left_out: what was not read, and why.
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


class FailureAnalysis:
    """Counts the failures of a period and of the period before.

    Args:
        dead_letters: messages of the dead-letter queue.
    """

    def __init__(self, period: Period, dead_letters: Iterable[DeadLetterNote] = ()) -> None:
        self.period = period
        self.reading = Reading()
        self._causes: dict[tuple[str, str], Cause] = {}
        self._downstreams: dict[str, DownstreamFailures] = {}
        self._codes: dict[str, str] = {}
        self._totals = Counter[str]()
        for note in dead_letters:
            self._add_dead_letter(note)

    def add_row(self, request_id: str, row: Row) -> None:
        """Count the failures of a row of the ledger."""
        try:
            failures = [(epoch(entry["at"]), self._cause_of(entry)) for entry in row.history]
        except ValueError:
            self.add_malformed(f"item {request_id!r} of the request ledger: history has an `at` that is not a time")
            return
        now = [(at, cause) for at, cause in failures if at in self.period]
        before = [cause for at, cause in failures if at in self.period.before]
        if not (now or before):
            return
        if now:
            self.reading.unlisted += _unlisted(row)
        name = row.downstream or UNKNOWN
        downstream = self._downstreams.setdefault(name, DownstreamFailures())
        downstream.failures += len(now)
        downstream.before += len(before)
        downstream.requests += bool(now)
        for cause in before:
            cause.before += 1
        for at, cause in now:
            cause.saw(at, self.period)
            cause.attempts += 1
            cause.downstreams[name] += 1
        for cause in {id(cause): cause for _, cause in now}.values():
            cause.requests += 1
            cause.example = request_id
            cause.recovered += row.status == SUCCEEDED
            cause.waiting += row.status not in (SUCCEEDED, DEAD_LETTERED)
        if row.status == DEAD_LETTERED and now and now[-1] == failures[-1]:
            downstream.lost += 1
            self._add_loss(now[-1][1], request_id)

    def add_malformed(self, problem: str) -> None:
        """Count an item that could not be parsed."""
        self.reading.malformed += 1
        if len(self.reading.malformed_names) < MAX_EXAMPLES:
            self.reading.malformed_names.append(problem)

    def report(self, breakers: Iterable[BreakerHistory] = ()) -> FailureReport:
        """Return the report of what was added so far."""
        causes = sorted(self._causes.values(), key=lambda cause: (-cause.failures, -cause.before, cause.code))
        return FailureReport(
            self.period,
            tuple(cause for cause in causes if cause.failures),
            tuple(cause for cause in causes if cause.before and not cause.failures),
            dict(sorted(self._downstreams.items(), key=lambda each: (-each[1].failures, each[0]))),
            tuple(breakers),
            dict(self._totals),
            self.reading,
        )

    def _add_dead_letter(self, note: DeadLetterNote) -> None:
        self.reading.dead_letters += 1
        self._totals[note.code] += 1
        if note.attempted:
            self._codes[note.request_id] = note.code
            return
        if note.at not in self.period and note.at not in self.period.before:
            return
        cause = self._cause(note.code, fingerprint(note.reason, note.code))
        if note.at not in self.period:
            cause.before += 1
            return
        cause.saw(note.at, self.period)
        cause.requests += 1
        cause.example = note.request_id
        cause.downstreams[UNKNOWN] += 1
        cause.lost += 1
        _queue(cause, note.code, note.request_id)

    def _add_loss(self, cause: Cause, request_id: str) -> None:
        cause.lost += 1
        if code := self._codes.get(request_id):
            _queue(cause, code, request_id)

    def _cause_of(self, entry: Mapping[str, str]) -> Cause:
        error_type = entry.get("type", "")
        return self._cause(error_type or UNKNOWN, fingerprint(entry["error"], error_type))

    def _cause(self, error_type: str, text: str) -> Cause:
        key = (error_type, text)
        if key not in self._causes and len(self._causes) >= MAX_CAUSES:
            key = OTHER
        return self._causes.setdefault(key, Cause(*key))


def _queue(cause: Cause, code: str, request_id: str) -> None:
    cause.codes[code] += 1
    if request_id and len(cause.queued) < MAX_EXAMPLES:
        cause.queued.append(request_id)


def _unlisted(row: Row) -> int:
    """The failed attempts between the first entry of the history and the second."""
    numbers = [int(entry["attempt"]) for entry in row.history]
    return max(0, numbers[1] - numbers[0] - 1) if len(numbers) > 1 else 0
