"""Sentences of the failure report, for the text and for the page."""

from __future__ import annotations

from collections.abc import Iterator

from slotkeeper.retry.failures.report import BreakerHistory, FailureReport
from slotkeeper_cli.formatting import count, duration


def change_text(failures: int, before: int) -> str:
    """`12 failures, 3.0 times as many as in the period before (4)`."""
    text = count(failures, "failure")
    if not before:
        return f"{text}, none in the period before" if failures else f"{text}, as in the period before"
    return f"{text}, {failures / before:.1f} times as many as in the period before ({before:,})"


def breaker_text(each: BreakerHistory) -> str:
    """The openings, closings and open time of a breaker in the period."""
    at_least = "at least " if each.incomplete else ""
    now = "it is open now" if each.is_open else "it is closed now"
    return (
        f"breaker of {each.downstream}: {at_least}{count(each.openings, 'opening')}, "
        f"{count(each.closings, 'closing')}, open for {duration(each.open_seconds)}; {now}"
    )


def footer(found: FailureReport) -> Iterator[str]:
    """Sentences about the items that were read, and those that were not."""
    reading = found.reading
    yield (
        f"Read {count(reading.rows, 'row')} of RequestLedgerTable and {count(reading.dead_letters, 'message')} of "
        f"WorkDeadLetterQueue, with {count(reading.calls, 'call')}."
    )
    for part in reading.left_out:
        yield f"Not read: {part}. The numbers above are minima."
    if reading.unlisted:
        yield (
            f"Not counted: {count(reading.unlisted, 'failed attempt')} of long histories, of which the ledger keeps "
            "the first entry and the last 19."
        )
    if reading.malformed:
        yield f"Not counted: {count(reading.malformed, 'malformed item')}: {'; '.join(reading.malformed_names)}"
