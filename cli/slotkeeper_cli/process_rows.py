"""The requests of a process in a period, from its rows alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

from slotkeeper.slots.rows import QueuedRow, RequestRow, RequestRows
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.row_search import RowSearch
from slotkeeper_cli.unread import Search

# Pages of 1 MB, each of some 2,000 requests: of the queue, of open requests, and of each part of the ended requests.
MAX_HISTORY_PAGES = 50
PARTS = 48
# With a page that shows whether there are parts, and the rows that have started.
MAX_HISTORY_CALLS = (2 + PARTS) * MAX_HISTORY_PAGES + 1 + MAX_HISTORY_PAGES


class ProcessRows:
    """Reads the requests of a process.

    Args:
        search: where what could not be read is noted.
    """

    def __init__(self, search: Search, rows: RequestRows, row_search: RowSearch, process: str) -> None:
        self._search, self._rows, self._row_search, self._process = search, rows, row_search, process

    def started(self) -> list[RequestRow]:
        """The requests that have started and not ended, in the order of their grants."""
        opened = self._search.rows(self._rows.open(self._process, MAX_HISTORY_PAGES), "open requests")
        names = ((self._process, execution) for execution, state in opened if state == "STARTED")
        rows = self._search.rows(self._row_search.named(names), "started requests")
        return sorted((row for row in rows if row.state == "STARTED"), key=lambda row: row.granted)

    def history(self, since: float, until: float) -> list[RequestRow]:
        """The requests that have ended in a period, and those that have not ended, in the order of their sending.

        What starts or ends meanwhile is in a later read.
        """
        queued = self._search.rows(self._rows.queue(self._process, MAX_HISTORY_PAGES), "queued requests")
        waiting = [_row(self._process, each) for each in queued]
        found = {row.execution: row for row in [*waiting, *self.started(), *self._ended(since, until)]}
        return sorted(found.values(), key=lambda row: row.sent)

    def _ended(self, since: float, until: float) -> list[RequestRow]:
        """The ended requests of a period: one page; of more, the rest in parts of equal time, some at the same time."""
        read = partial(self._rows.history, self._process)
        first = read(since, until, 1)
        if not first.is_cut:
            return self._search.rows(first, "requests that have ended")
        begin = first.rows[-1].ended or since if first.rows else since
        ends = [begin + (until - begin) * number / PARTS for number in range(PARTS + 1)]
        parts = in_parallel(lambda part: read(*part, MAX_HISTORY_PAGES), pairwise(ends))
        found = self._search.rows(replace(first, is_cut=False), "")
        for at, part in zip(ends, parts, strict=False):
            found += self._search.rows(part, f"requests that have ended since {iso(at)}")
        return found


def _row(process: str, queued: QueuedRow) -> RequestRow:
    """A queued request as a row. Its index does not contain the attempt, which is 0."""
    of, place = queued.queued, queued.queued.place
    made = RequestRow(process, of.execution, "QUEUED", queued.request_id, 0, queued.priority, queued.sent)
    return replace(made, place=place, placed=place, weight=of.weight, start_before=of.start_before, skips=of.skips)
