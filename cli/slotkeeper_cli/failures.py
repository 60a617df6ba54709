"""Requests that have failed, were rejected or too late, as the index `failed` has them, and groups of equal ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotkeeper.slots.request_table import ENDED_WITHOUT_START, State
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.errors import NotFound
from slotkeeper_cli.formatting import count, iso
from slotkeeper_cli.request_finder import RequestFinder, failure_of
from slotkeeper_cli.requests import hide_tokens
from slotkeeper_cli.slot_control import SlotControl

# Pages of 1 MB, each of some 500 failures with the longest reasons, and of 3,000 with short ones.
MAX_PAGES = 200
GROUP_DIGITS = 8
_GROUP = re.compile(rf"[0-9a-f]{{{GROUP_DIGITS}}}")
_WORD = re.compile(r"[\w.:-]+")
# Digits from which on a word is an id, a time or a large number. Those of an HTTP status, or of a line, are fewer.
_ID_DIGITS = 4
# Characters from which on a request's id, with a digit, is not a part of other words.
_ID_LENGTH = 4
_LIST = "List the failures with: slotkeeper failed list"
REDRIVABLE: tuple[State, ...] = ("FAILED", *ENDED_WITHOUT_START)


def alike(reason: str, request_id: str = "") -> str:
    """A reason without what differs between equal failures: the request's id, other ids, times and large numbers."""
    is_distinct = len(request_id) >= _ID_LENGTH and any(map(str.isdigit, request_id))
    text = reason.replace(request_id, "#") if is_distinct else reason
    return _WORD.sub(lambda word: "#" if sum(map(str.isdigit, word[0])) >= _ID_DIGITS else word[0], text)


@dataclass
class FailureGroup:
    """Failures of one process with the same code, whose reasons are alike. `rows`: the newest first."""

    process: str
    code: str
    reason: str
    rows: list[RequestRow] = field(default_factory=list)

    @property
    def id(self) -> str:
        """What commands take. It stays the same as long as code and reason do."""
        text = "\0".join((self.process, self.code, self.reason))
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:GROUP_DIGITS]

    def as_dict(self) -> dict[str, Any]:
        """The group as JSON shows it."""
        return {
            "group": self.id,
            "process": self.process,
            "code": self.code,
            "reason": self.reason,
            "requests": len(self.rows),
            "first": iso(failed_at(self.rows[-1])),
            "last": iso(failed_at(self.rows[0])),
        }


def failed_at(row: RequestRow) -> float:
    """When a failure ended, in seconds since the epoch."""
    return row.failed or row.ended or 0.0


def reason_of(row: RequestRow) -> str:
    """Why it failed, without what must not be shown."""
    return hide_tokens(failure_of(row))


def grouped(rows: Iterable[RequestRow]) -> list[FailureGroup]:
    """The groups of failures, that with the newest failure first."""
    groups: dict[tuple[str, str, str], FailureGroup] = {}
    for row in sorted(rows, key=lambda row: (failed_at(row), row.sent), reverse=True):
        key = (row.process, row.code, alike(reason_of(row), row.request_id))
        groups.setdefault(key, FailureGroup(*key)).rows.append(row)
    return list(groups.values())


@dataclass(frozen=True)
class Filters:
    """Which failures a command is about.

    Args:
        since, until: seconds since the epoch.
        process, code: None for any.
        reason: a part of it, in upper or lower case.
    """

    since: float
    until: float
    process: str | None = None
    code: str | None = None
    reason: str = ""

    def pass_on(self, row: RequestRow) -> bool:
        """Whether a row passes."""
        is_of = self.process in (None, row.process) and self.code in (None, row.code)
        is_in = self.since <= failed_at(row) <= self.until
        return is_of and is_in and self.reason.casefold() in reason_of(row).casefold()


class Failures:
    """The failures of a stack that pass filters.

    Attributes:
        search: what could not be read.
    """

    def __init__(self, control: SlotControl, filters: Filters) -> None:
        self.control, self._filters = control, filters
        self._finder = RequestFinder(control)
        self.search = self._finder.search

    def read(self) -> list[RequestRow]:
        """Those of the index. It is eventually consistent: what changes one checks it again."""
        of = self._filters
        listed = self.control.rows.failures(of.process, of.since, of.until, MAX_PAGES)
        if malformed := listed.malformed:
            more = f", and {len(malformed) - 1:,} more" * (len(malformed) > 1)
            why = f"{count(len(malformed), 'row is', 'rows are')} malformed: {malformed[0]}{more}"
            self.search.note_unread("RequestTable", why)
        if listed.is_cut:
            known = count(len(listed.rows), "failure")
            why = f"there are more than the {known} that were read: give --process, --since or --until"
            self.search.note_unread("RequestTable", why)
        return [row for row in listed.rows if of.pass_on(row)]

    def select(self, names: Sequence[str]) -> list[RequestRow]:
        """The rows of groups, and of requests by their ids or executions; without names, those of the index.

        Raises:
            NotFound: a name names nothing, or nothing passes the filters.
            CommandRefused: several requests have an id.
        """
        if not names:
            if rows := self.read():
                return rows
            raise NotFound(f"there is no such failure{self._unread}. {_LIST}. Nothing was changed.")
        is_group = any(map(_GROUP.fullmatch, names))
        groups = {group.id: group.rows for group in grouped(self.read() if is_group else ())}
        rows = [row for name in names for row in groups.get(name) or [self._find(name)]]
        return list({(row.process, row.execution): row for row in rows}.values())

    @property
    def _unread(self) -> str:
        return " in what could be read" if self.search.not_read else ""

    def _find(self, given: str) -> RequestRow:
        only = self._filters.process
        one = self._finder.only(given, only, lambda row: row.state in REDRIVABLE and self._filters.pass_on(row))
        if one is None or not self._filters.pass_on(one.last):
            raise NotFound(f"no group and no request {given} found{self._unread}. {_LIST}. Nothing was changed.")
        return one.last
