"""Counts the failures of work for a report. Pure.

The analysis receives the ledger's rows one by one and keeps none of them, so its memory depends on the number of
causes, which is limited. A request counts for each cause by which it failed. Its loss counts for the cause of its last
failure only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from slotkeeper.retry.downstream.breaker_history import BreakerHistory
from slotkeeper.retry.failures.fingerprint import fingerprint
from slotkeeper.retry.failures.report import (
    MAX_CAUSES,
    MAX_EXAMPLES,
    OTHER,
    UNKNOWN,
    Cause,
    DeadLetterNote,
    DownstreamFailures,
    FailureReport,
    Period,
    Reading,
)
from slotkeeper.retry.ledger import DEAD_LETTERED, SUCCEEDED, Row
from slotkeeper.retry.message import epoch

# While rows are read, so many causes are kept: a large one may have begun small.
MOST_CAUSES_READ = 2 * MAX_CAUSES


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
        self._merge_the_smallest(MOST_CAUSES_READ)

    def add_malformed(self, problem: str) -> None:
        """Count an item that could not be parsed."""
        self.reading.malformed += 1
        if len(self.reading.malformed_names) < MAX_EXAMPLES:
            self.reading.malformed_names.append(problem)

    def report(self, breakers: Iterable[BreakerHistory] = ()) -> FailureReport:
        """Return the report of the rows and messages so far."""
        self._merge_the_smallest(MAX_CAUSES)
        causes = sorted(
            self._causes.values(), key=lambda each: (_is_other(each), -each.failures, -each.before, each.code)
        )
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
        self._merge_the_smallest(MOST_CAUSES_READ)
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
        return self._causes.setdefault(key, Cause(*key))

    def _merge_the_smallest(self, most: int) -> None:
        """If there are more causes than `most`, keep the MAX_CAUSES largest, and count the others together.

        It must not run between the lookup of a cause and its last count.
        """
        if len(self._causes.keys() - {OTHER}) <= most:
            return
        other = self._causes.pop(OTHER, Cause(*OTHER))
        ranked = sorted(self._causes.items(), key=lambda each: each[1].failures + each[1].before, reverse=True)
        for _, cause in ranked[MAX_CAUSES:]:
            other.add(cause)
        self._causes = {**dict(ranked[:MAX_CAUSES]), OTHER: other}


def _is_other(cause: Cause) -> bool:
    return (cause.error_type, cause.fingerprint) == OTHER


def _queue(cause: Cause, code: str, request_id: str) -> None:
    cause.codes[code] += 1
    if request_id and len(cause.queued) < MAX_EXAMPLES:
        cause.queued.append(request_id)


def _unlisted(row: Row) -> int:
    """The failed attempts between the first entry of the history and the second."""
    numbers = [int(entry["attempt"]) for entry in row.history]
    return max(0, numbers[1] - numbers[0] - 1) if len(numbers) > 1 else 0
