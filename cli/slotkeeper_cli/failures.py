"""Requests that have failed, were rejected or too late, as the index `failed` has them, and groups of equal ones."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slotkeeper.slots.request_table import FAILURES
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.account import Account
from slotkeeper_cli.errors import NotFound
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.request_finder import RequestFinder
from slotkeeper_cli.requests import (
    GROUP_DIGITS,
    REDRIVABLE,
    attempt_as_dict,
    failed_at,
    grouped,
    hide_tokens,
    reason_of,
)

# Pages of 1 MB, each of some 500 failures with the longest reasons, and of 3,000 with short ones.
MAX_PAGES = 200
_GROUP = re.compile(rf"[0-9a-f]{{{GROUP_DIGITS}}}")
_LIST = "List the failures with: slotkeeper failed list"
# Codes of requests that ended without a start, and are no failures.
_NO_FAILURE = ("Skipped", "Cancelled")
_DAY = 86400.0
# The end of a period without one. The clocks of the functions that record ends may be ahead of this one.
_END = 1e11


@dataclass(frozen=True)
class Filters:
    """Which failures a command is about.

    Args:
        since, until: seconds since the epoch; None: without begin or end.
        process, code, key: None for any. A key of "" is that of requests without one.
        reason: a part of it, in upper or lower case.
    """

    since: float | None = None
    until: float | None = None
    process: str | None = None
    code: str | None = None
    reason: str = ""
    key: str | None = None

    def pass_on(self, row: RequestRow) -> bool:
        """Whether a row passes."""
        is_of = self.process in (None, row.process) and self.code in (None, row.code) and self.key in (None, row.key)
        is_in = (self.since or 0.0) <= failed_at(row) <= (_END if self.until is None else self.until)
        return is_of and is_in and self.reason.casefold() in reason_of(row).casefold()


class Failures:
    """The failures of a stack that pass filters.

    Attributes:
        search: what could not be read.
    """

    def __init__(self, account: Account, filters: Filters) -> None:
        self.account, self.filters = account, filters
        self._finder = RequestFinder(account.control)
        self.search = self._finder.search

    def read(self) -> list[RequestRow]:
        """Those of the index. It is eventually consistent: what changes one checks it again."""
        of, rows = self.filters, self.account.control.rows
        asked = (of.process, of.since or 0.0, _END if of.until is None else of.until)
        listed = self.account.kept(("failures", *asked), lambda: rows.failures(*asked, MAX_PAGES))
        found = self.search.rows(listed, "failures, and only these were read: give --process, --since or --until")
        return [row for row in found if of.pass_on(row)]

    def select(self, names: Sequence[str]) -> list[RequestRow]:
        """The rows of groups, and of requests by their ids or executions; without names, those of the index.

        Raises:
            NotFound: a name names nothing, or nothing passes the filters.
            CommandRefused: several requests have an id.
        """
        if not names:
            if rows := self.read():
                return rows
            raise NotFound(f"there is no such failure{self.search.limits}. {_LIST}. Nothing was changed.")
        is_group = any(map(_GROUP.fullmatch, names))
        groups = {group.id: group.rows for group in grouped(self.read() if is_group else ())}
        rows = [row for name in names for row in groups.get(name) or [self._find(name)]]
        return list({(row.process, row.execution): row for row in rows}.values())

    def _find(self, given: str) -> RequestRow:
        only = self.filters.process
        one = self._finder.only(given, only, lambda row: row.state in REDRIVABLE and self.filters.pass_on(row))
        if one is None or not self.filters.pass_on(one[-1]):
            raise NotFound(f"no group and no request {given} found{self.search.limits}. {_LIST}. Nothing was changed.")
        return one[-1]

    def share(self, process: str, since: float, until: float) -> dict[str, Any]:
        """How many of the requests of a process that ended in a period have failed: of the last ones, some 2,000.

        Args:
            since, until: seconds since the epoch.
        """
        listed = self.account.newest_ends(process)
        ended = [row for row in listed.rows if row.ended and since <= row.ended <= until]
        counted = [row for row in ended if row.state != "RETURNED" and row.code not in _NO_FAILURE]
        failed = sum(row.state in (*FAILURES, "REDRIVEN") for row in counted)
        has_more = listed.is_cut and (listed.rows[-1].ended or 0.0) >= since
        return {"failed": failed, "ended": len(counted), "since": iso(since), "has_more": has_more}

    def whole(self, found: RequestRow) -> dict[str, Any]:
        """A request in full, as JSON shows it."""
        # The index of failures has no cause.
        search, stack = self.account.control.row_search, self.account.stack
        row = search.row(found.process, found.execution) or found
        body = self.search.try_read("content", lambda: search.body(row.process, row.execution), "")
        more = {"body": hide_tokens(body), "link": "" if row.started is None else stack.execution_link(row.execution)}
        whole = {"process": row.process, "request_id": row.request_id, **attempt_as_dict(row)}
        return whole | {name: value for name, value in more.items() if value}


def failures(account: Account, filters: Filters, limit: int = 100) -> dict[str, Any]:
    """The failures that pass filters, in groups of equal ones, as JSON shows them; the newest failure first.

    `of_process` is the share of a group's process in the filters' period, by default in its last 24 hours.

    Args:
        limit: the number of groups.
    """
    found = Failures(account, filters)
    groups = grouped(found.read())
    until = _END if filters.until is None else filters.until
    since = min(time.time(), until) - _DAY if filters.since is None else filters.since
    names = list(dict.fromkeys(each.process for each in groups[:limit]))
    shares: dict[str, Any] = found.search.try_read(
        "RequestTable, index ended",
        lambda: dict(zip(names, in_parallel(lambda name: found.share(name, since, until), names), strict=True)),
        {},
    )
    return {
        "failures": sum(len(each.rows) for each in groups),
        "since": None if filters.since is None else iso(filters.since),
        "until": None if filters.until is None else iso(filters.until),
        "groups": [each.as_dict() | {"of_process": shares.get(each.process)} for each in groups[:limit]],
        "not_shown": max(0, len(groups) - limit),
        "not_read": [each.as_dict() for each in found.search.not_read],
    }
