"""Reads the ledger and the downstreams' table for a failure report, within a bound."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from slotkeeper.retry.downstream.downstreams import DownstreamTable, MalformedHealth, NotRead
from slotkeeper.retry.failures.analysis import FailureAnalysis
from slotkeeper.retry.failures.report import BreakerHistory, DeadLetterNote, FailureReport, Period, breaker_history
from slotkeeper.retry.ledger import Ledger, MalformedRow

# A page of a scan has up to 1 MB (DynamoDB guide, "Scanning tables"): 2 GB, a million rows of 2 KB, and about 250,000
# read units.
MAX_PAGES = 2000


@dataclass(frozen=True)
class Bounds:
    """`pages`: of the ledger. `seconds_left`: the seconds that reading may still take; no page is read without one."""

    pages: int = MAX_PAGES
    seconds_left: Callable[[], float] = lambda: math.inf


def read_report(
    ledger: Ledger,
    downstreams: DownstreamTable,
    period: Period,
    dead_letters: Iterable[DeadLetterNote] = (),
    *,
    bounds: Bounds = Bounds(),
    on_page: Callable[[int], None] = lambda _rows: None,
) -> FailureReport:
    """Read all rows with a failure, and return the report. Errors of DynamoDB pass through.

    Args:
        on_page: receives for each page of the ledger the number of its rows.
    """
    analysis = FailureAnalysis(period, dead_letters)
    reading = analysis.reading
    pages = 0

    def page_read(rows: int) -> None:
        nonlocal pages
        pages += 1
        reading.rows += rows
        on_page(rows)

    def may_continue() -> bool:
        if pages >= bounds.pages:
            reading.left_out.append(f"the rows of RequestLedgerTable after the first {pages:,} pages of a scan")
        elif bounds.seconds_left() <= 0:
            reading.left_out.append(f"the rows of RequestLedgerTable after {pages:,} pages: the time had passed")
        else:
            return True
        return False

    for request_id, row in ledger.failed_rows(page_read, may_continue):
        if isinstance(row, MalformedRow):
            analysis.add_malformed(str(row))
        else:
            analysis.add_row(request_id, row)
    return analysis.report(_breakers(analysis, downstreams, period))


def _breakers(analysis: FailureAnalysis, downstreams: DownstreamTable, period: Period) -> Iterator[BreakerHistory]:
    for name, health in sorted(downstreams.read_all().items()):
        if isinstance(health, NotRead):
            analysis.reading.left_out.append(str(health))
            continue
        if isinstance(health, MalformedHealth):
            analysis.add_malformed(str(health))
        else:
            yield breaker_history(name, health, period.start, period.end)


@contextmanager
def counted_calls(*clients: Any) -> Iterator[Callable[[], int]]:
    """Count the calls of these boto3 clients; botocore's own retries are not counted. Yields their number so far."""
    calls = 0

    def note(**_: Any) -> None:
        nonlocal calls
        calls += 1

    name = f"counted-calls-{time.monotonic_ns()}"
    for client in clients:
        client.meta.events.register("before-call", note, unique_id=name)
    try:
        yield lambda: calls
    finally:
        for client in clients:
            client.meta.events.unregister("before-call", unique_id=name)
