"""Counts the failures of work for a report. Pure.

The analysis receives the ledger's rows one by one and keeps none of them, so its memory depends on the number of
causes, which is limited. A request counts for each cause by which it failed. Its loss counts for the cause of its last
failure only.

The fingerprint of an error message is its text without the parts that differ from one failure to the next.

    HTTP 503 from https://api.example/orders/8812?try=2 after 1.5 s
    HTTP 503 from https://api.example/orders/<n>?<query> after <n> s

A status or an error code stays, because another one is another cause.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from http import HTTPStatus

from slotkeeper.retry.failures.report import (
    MAX_CAUSES,
    MAX_EXAMPLES,
    OTHER,
    UNKNOWN,
    BreakerHistory,
    Cause,
    DeadLetterNote,
    DownstreamFailures,
    FailureReport,
    Period,
    Reading,
)
from slotkeeper.retry.ledger import DEAD_LETTERED, MAX_ERROR_CHARACTERS, SUCCEEDED, Row
from slotkeeper.retry.message import epoch

# While rows are read, so many causes are kept: a large one may have begun small.
MOST_CAUSES_READ = 2 * MAX_CAUSES

MAX_FINGERPRINT_CHARACTERS = 160

# The name of a status after its number, as in `404 Not Found`; `Client Error` and `Server Error` are of the library
# Requests.
_NAMES = "|".join(["Client Error", "Server Error", *(re.escape(each.phrase) for each in HTTPStatus if each >= 400)])
# After a word for it: `HTTP 503`, `status code: 502`, `exit code 137`, `[Errno 111]`, `ORA-00942`; where a clause ends
# or continues: `the API failed with 503 after 2 s`; or before its name.
_STATUS = re.compile(
    r"\b(?:HTTP(?:/\d(?:\.\d)?)?|[Ss]tatus)[ :=]{1,2}[1-5]?\d{1,2}\b(?!\.\d)"
    r"|\b\w*(?:[Cc]ode|[Ee]rrno)[ :=]{1,2}\d{1,5}\b(?!\.\d)"
    r"|\b(?:(?:ORA|PLS)-\d{5}\b|SQLSTATE\W{1,2}\w{5}\b)"
    r"|\b(?:with|answered|answers|returned|returns|got|[Ee]rror)[ :=]{1,2}[45]\d\d"
    r"(?=$|[.,:;)]| (?:for|from|after|on)\b)(?!\.\d)"
    r"|^[45]\d\d(?=$|:| [A-Z][a-z])"
    rf"|(?<![\w.])[45]\d\d\)?:? (?:{_NAMES})\b"
)
_QUERY = re.compile(r"(https?://[^\s?#'\"]*)[?#][^\s'\"]*")
_QUOTED = re.compile(r"(?<!\w)('[^']*'|\"[^\"]*\"|`[^`]*`)(?!\w)")
_OPEN_QUOTE = re.compile(r"(?<!\w)['\"`][^'\"`]*$")
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?)?"
    r"|\b(?:[A-Z][a-z]{2}, )?\d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d(?: GMT)?"
)
_NUMBER = r"[+-]?\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?"
_WHOLE_NUMBER = re.compile(_NUMBER)
# A number, or a word. A word with a digit is an id; so are 16 hexadecimal digits of which each is from a to f.
_WORD = re.compile(rf"(?<![\w<]){_NUMBER}(?![\w-])|[A-Za-z0-9_]+(?:[.-][A-Za-z0-9_]+)*")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{16,}")
_LIST = re.compile(r"(<\w+>)(?:, ?\1)+")


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
            entries = [(entry["at"], entry.get("type", ""), entry["error"]) for entry in row.history]
            failures = [(epoch(at), self._cause(*of)) for at, *of in entries]
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
            last = now[-1][1]
            last.lost += 1
            if code := self._codes.get(request_id):
                _queue(last, code, request_id)
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
            self._causes.values(),
            key=lambda each: ((each.error_type, each.fingerprint) == OTHER, -each.failures, -each.before, each.code),
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
        cause = self._cause(note.code, note.reason)
        if note.at not in self.period:
            cause.before += 1
            return
        cause.saw(note.at, self.period)
        cause.requests += 1
        cause.example = note.request_id
        cause.downstreams[UNKNOWN] += 1
        cause.lost += 1
        _queue(cause, note.code, note.request_id)

    def _cause(self, error_type: str, error: str) -> Cause:
        key = (error_type or UNKNOWN, fingerprint(error, error_type))
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


def _queue(cause: Cause, code: str, request_id: str) -> None:
    cause.codes[code] += 1
    if request_id and len(cause.queued) < MAX_EXAMPLES:
        cause.queued.append(request_id)


def _unlisted(row: Row) -> int:
    """The failed attempts between the first entry of the history and the second."""
    numbers = [int(entry["attempt"]) for entry in row.history]
    return max(0, numbers[1] - numbers[0] - 1) if len(numbers) > 1 else 0


def fingerprint(error: str, error_type: str = "") -> str:
    """Return the message without its variable parts, and without the error type at its beginning.

    Numbers, ids (words with a digit), hexadecimals, times, quoted texts and the query of a URL are replaced by their
    kind in angle brackets.
    """
    text = " ".join(error.split())
    if error_type:
        text = text.removeprefix(f"{error_type}: ")
    if len(error) >= MAX_ERROR_CHARACTERS:
        # The ledger has cut the text, so its end depends on the length of the variable parts.
        text = text.rpartition(" ")[0] or text
    text = _QUERY.sub(r"\1?<query>", text)
    text = _QUOTED.sub("<value>", text)
    if len(error) >= MAX_ERROR_CHARACTERS:
        text = _OPEN_QUOTE.sub("<value>", text)
    text = _TIME.sub("<time>", text)
    kept: list[str] = []
    at = 0
    for status in _STATUS.finditer(text):
        kept += (_without_ids(text[at : status.start()]), status.group())
        at = status.end()
    text = "".join((*kept, _without_ids(text[at:])))
    return _LIST.sub(r"\1", text)[:MAX_FINGERPRINT_CHARACTERS].strip()


def _without_ids(text: str) -> str:
    return _WORD.sub(_kind, text)


def _kind(word: re.Match[str]) -> str:
    text = word.group()
    if _WHOLE_NUMBER.fullmatch(text):
        return "<n>"
    return "<id>" if any(character.isdigit() for character in text) or _HEXADECIMAL.fullmatch(text) else text
