"""The failure report as the plain text of a message to the alarm topic. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slotkeeper.printable import printable
from slotkeeper.retry.downstream.breaker_history import BreakerHistory
from slotkeeper.retry.failures.advice import next_steps
from slotkeeper.retry.failures.report import Cause, FailureReport
from slotkeeper.retry.message import instant

MAX_CAUSES = 5
MAX_BREAKERS = 10
# SNS accepts 256 KB (SNS API Reference, Publish). The texts of five causes have a tenth of this.
MAX_CHARACTERS = 20_000
MAX_SUBJECT_CHARACTERS = 99  # less than 100, in ASCII and on one line (SNS API Reference, Publish)


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
    for number, cause in enumerate(found.causes[:MAX_CAUSES], 1):
        yield ""
        yield from _cause(number, cause, found, stack)
    if len(found.causes) > MAX_CAUSES:
        yield ""
        yield f"{len(found.causes) - MAX_CAUSES:,} more causes."
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
    yield f"More, with the dead-letter messages: slotkeeper retry report --since {days:.0f}d --stack {stack}"


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
