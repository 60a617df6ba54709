"""The failure report as sentences and as an HTML page, without scripts and without anything that it has to load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slotkeeper.retry.failures.report import BreakerHistory, Cause, FailureReport, Period, next_steps
from slotkeeper_cli.formatting import count, duration, iso
from slotkeeper_cli.html_page import document, escaped, html_row, html_table


def change_text(failures: int, before: int) -> str:
    """`12 failures, 3.0 times as many as in the period before (4)`."""
    text = count(failures, "failure")
    if not before:
        return f"{text}, none in the period before" if failures else f"{text}, as in the period before"
    return f"{text}, {failures / before:.1f} times as many as in the period before ({before:,})"


def cause_figures(cause: Cause) -> list[str]:
    """Failures, requests, lost, recovered and waiting ones of a cause, and its change, as tables show them."""
    numbers = (cause.failures, cause.requests, cause.lost, cause.recovered, cause.waiting)
    return [*map("{:,}".format, numbers), "new" if cause.is_new else f"x {cause.failures / cause.before:.1f}"]


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


_STYLE = """
figure { margin: .6rem 0 } .chart { display: flex; align-items: flex-end; gap: 2px; height: 8rem;
  border-bottom: 1px solid var(--line) } .small { height: 2.5rem }
.chart span { flex: 1; background: var(--bar); min-height: 0 } .chart .some { min-height: 2px }
.axis { display: flex; justify-content: space-between } article { background: var(--box); padding: .8rem 1rem;
  margin: .8rem 0; border-radius: 6px } .bar { background: var(--bar); height: .8rem; display: block }
.share { width: 40% } code { overflow-wrap: anywhere }
"""


def page(found: FailureReport, stack: str) -> str:
    """Return the page as a text in UTF-8. Texts of errors, requests and names are escaped."""
    return document(
        f"Failures of work on stack {stack}",
        _STYLE,
        (
            f"<p>{iso(found.period.start)} to {iso(found.period.end)} (UTC). "
            f"{escaped(change_text(found.failures, found.before))}.</p>",
            _chart("Failures over time", found.buckets, found.period),
            "<h2>Causes</h2>",
            *_summary(found.causes),
            *(_article(cause, found, stack) for cause in found.causes),
            *_gone(found.gone),
            *_downstreams(found),
            *_breakers(found),
            f"<footer>{''.join(f'<p>{escaped(line)}</p>' for line in footer(found))}</footer>",
        ),
    )


def _chart(caption: str, buckets: list[int], period: Period, size: str = "") -> str:
    highest = max(buckets)
    width = (period.end - period.start) / len(buckets)
    bars = "".join(
        f'<span{' class="some"' if number else ""} style="height:{100 * number / (highest or 1):.1f}%" '
        f'title="{iso(period.start + place * width)}: {number}"></span>'
        for place, number in enumerate(buckets)
    )
    label = escaped(f"{caption}: at most {highest:,} in {width / 60:,.0f} min")
    return (
        f'<figure><div class="chart{size}" role="img" aria-label="{label}">{bars}</div><div class="axis dim">'
        f"<span>{iso(period.start)}</span><span>{iso(period.end)}</span></div><figcaption>{label}</figcaption></figure>"
    )


def _summary(causes: Iterable[Cause]) -> Iterator[str]:
    rows = [html_row(cause.error_type, cause.fingerprint, *cause_figures(cause), text_columns=2) for cause in causes]
    if not rows:
        yield "<p>No attempt failed.</p>"
        return
    columns = ("error type", "message", "failures", "requests", "lost", "recovered", "waiting", "against before")
    yield html_table("Causes", columns, rows, text_columns=2)


def _article(cause: Cause, found: FailureReport, stack: str) -> str:
    names = ", ".join(f"{name} ({number:,})" for name, number in cause.downstreams.most_common(5))
    lost = f'<span class="lost">{cause.lost:,} lost</span>' if cause.lost else "none lost"
    steps = "".join(f"<li>{escaped(step)}</li>" for step in next_steps(cause, found, stack))
    return (
        f"<article><h3>{escaped(cause.error_type)}: {escaped(cause.fingerprint)}</h3>"
        f"<p>{count(cause.attempts, 'failed attempt')} of {count(cause.requests, 'request')}: {lost}, "
        f"{cause.recovered:,} recovered, {cause.waiting:,} waiting. First {iso(cause.first)}, last {iso(cause.last)}. "
        f"Downstream: {escaped(names)}. Example: <code>{escaped(cause.example or 'none')}</code></p>"
        f"{_chart('Failures', cause.buckets, found.period, ' small')}"
        f"<p>Next steps:</p><ol>{steps}</ol></article>"
    )


def _gone(causes: Iterable[Cause]) -> Iterator[str]:
    rows = [html_row(cause.error_type, cause.fingerprint, f"{cause.before:,}", text_columns=2) for cause in causes]
    if rows:
        yield "<h2>Causes of the period before that did not occur again</h2>"
        yield html_table(
            "Causes of the period before", ("error type", "message", "failures before"), rows, text_columns=2
        )


def _downstreams(found: FailureReport) -> Iterator[str]:
    if not found.downstreams:
        return
    highest = max(each.failures for each in found.downstreams.values()) or 1
    rows = []
    for name, each in found.downstreams.items():
        bar = f'<td class="share"><span class="bar" style="width:{100 * each.failures / highest:.1f}%"></span></td>'
        numbers = (f"{number:,}" for number in vars(each).values())
        rows.append(html_row(name, *numbers, text_columns=1).replace("</tr>", f"{bar}</tr>"))
    yield "<h2>Downstreams</h2>"
    yield html_table("Downstreams", ("downstream", "failures", "before", "requests", "lost", ""), rows, text_columns=1)


def _breakers(found: FailureReport) -> Iterator[str]:
    if not found.breakers:
        return
    yield "<h2>Circuit breakers</h2>"
    for each in found.breakers:
        yield f"<p>{escaped(breaker_text(each))}</p>"
        rows = [html_row(iso(one.at), one.to, one.why, one.by or "worker", text_columns=4) for one in each.changes]
        if rows:
            yield html_table(f"Changes of {each.downstream}", ("at", "state", "why", "by"), rows, text_columns=4)
