"""The page of `slotkeeper audit --html`: the timeline of each process, its figures and failures, and the checks.

It is one file to attach to an incident, whose readers have no access to the account. All times are in UTC.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from slotkeeper.retry.failures.analysis import fingerprint
from slotkeeper.slots.request_table import FAILURES
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.figures import figures
from slotkeeper_cli.audit.history_checks import CheckResult, Result, first_of
from slotkeeper_cli.audit.timeline import MAX_BARS, TIMELINE_STYLE, TimelineRow, changes, length, rows, timeline_svg
from slotkeeper_cli.audit.work_history import WorkHistory
from slotkeeper_cli.formatting import duration, iso
from slotkeeper_cli.html_page import document, escaped, html_row, html_table

# Processes with most executions that have a section; names of requests in a row of failures; requests whose table is
# open when the page is.
MAX_SECTIONS, MAX_NAMES, MAX_OPEN = 20, 20, 100
_MARKS = {Result.HOLDS: "✓ holds", Result.FAILS: "✗ fails", Result.NOT_SHOWN: "? not shown"}

_STYLE = """
body { max-width: 72rem } section { margin-top: 2.5rem; border-top: 1px solid var(--line) }
h3 { margin: 1.4rem 0 .4rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .6rem 0 } dd { margin: 0 }
dt { color: var(--dim) } .unread { background: var(--box); border-left: 4px solid var(--lost); padding: .5rem 1rem }
.unread h2, .unread ul { margin: .2rem 0 } section h2 { margin-top: 1.2rem } tbody .lost { color: var(--lost) }
summary { cursor: pointer; font-weight: 600; margin: 1.4rem 0 .4rem } details tbody th { min-width: 11rem }
@media (max-width: 600px) { th, td { padding: .25rem .35rem } td { min-width: 7.5rem } }
@media print { body { max-width: none; margin: 0; font-size: 11px } .wide { overflow: visible }
  .tl, tr { break-inside: avoid } th, td, details tbody th { min-width: 4.5rem; padding: .15rem .3rem }
  td.number { min-width: 0 } }
"""


def audit_page(history: WorkHistory, results: Sequence[CheckResult], stack: str) -> str:
    """Return the page as a text in UTF-8. Names, errors and other texts of senders are escaped, task tokens hidden."""
    by_number = sorted(history.names, key=lambda name: -len(history.by_process.get(name, [])))
    shown, left_out = sorted(by_number[:MAX_SECTIONS]), sorted(by_number[MAX_SECTIONS:])
    of = figures(history)
    fewer = f"<p>Without a section, since they have fewer executions: {escaped(', '.join(left_out))}.</p>"
    body = [
        *_head(history, results),
        *(part for number, name in enumerate(shown, 1) for part in _section(history, name, of[name], number)),
        *([fewer] if left_out else []),
        "<section><h2>Checks</h2>",
        html_table("Checks", ("result", "check", "what the records state"), map(_check, results), text_columns=3),
        "</section>",
    ]
    return document(f"Slots of stack {stack}", TIMELINE_STYLE + _STYLE, body)


def _head(history: WorkHistory, results: Sequence[CheckResult]) -> Iterator[str]:
    numbers = Counter(each.result for each in results)
    verdict = ", ".join(f"{_MARKS[result]}: {number}" for result in Result if (number := numbers[result]))
    facts = {
        "Period": f"{iso(history.since)} to {iso(history.until)} ({duration(history.until - history.since)})",
        "Read at": f"{iso(history.now)}, from AWS's own records",
        "Time zone": "UTC",
        "Checks": verdict,
    }
    yield f"<dl>{''.join(f'<dt>{name}</dt><dd>{escaped(text)}</dd>' for name, text in facts.items())}</dl>"
    unread = [each.text for each in history.not_read]
    if unread:
        lines = "".join(f"<li>{escaped(each)}</li>" for each in unread)
        yield f'<div class="unread"><h2>Not read completely: {len(unread)}</h2><ul>{lines}</ul></div>'


def _section(history: WorkHistory, name: str, of: dict[str, Any], number: int) -> Iterator[str]:
    drawn, process = rows(history, name), history.processes.get(name)
    yield f'<section aria-labelledby="p{number}"><h2 id="p{number}">Process {escaped(name)}</h2>'
    if process:
        queued = sum(bool(each.place) for each in history.rows_of.get(name, []))
        waiting = f", {queued:,} queued" if queued else ""
        paused = ", paused" if process.paused else ""
        yield f"<p>Now: limit {process.slot_limit:,}, {process.slots_in_use:,} in use{waiting}{paused}.</p>"
    yield timeline_svg(history, name, f"t{number}")
    yield from _figures(of)
    yield from _failures(history, name)
    made = [
        html_row(str(place), iso(each.at), each.text, each.by or "not recorded", text_columns=4)
        for place, each in enumerate(changes(history, name)[:MAX_BARS], 1)
    ]
    if made:
        yield "<h3>Changes by operators</h3>"
        yield html_table("Changes by operators", ("number", "time", "change", "by"), made, text_columns=4)
    if drawn:
        newest = drawn[-MAX_BARS:]
        more = f", the newest {MAX_BARS} of {len(drawn):,}" if len(drawn) > MAX_BARS else ""
        yield f"<details{' open' * (len(newest) <= MAX_OPEN)}><summary>Requests ({len(newest):,}{more})</summary>"
        columns = ("request", "outcome", "why it waited", "started", "waited", "held", "weight")
        yield f"{html_table('Requests', columns, map(_request, newest), text_columns=3)}</details>"
    yield "</section>"


def _figures(of: dict[str, Any]) -> Iterator[str]:
    share = of["utilization"]
    ended = ", ".join(f"{number:,} {status}" for status, number in of["executions"].items()) or "none"
    spreads = {
        "wait from sending to start": of["wait"],
        "hand-off from a release to the next start": of["hand_off"],
        "free slot while a request waited": of["free_slot"],
    }
    names = ("p50", "p90", "p99", "max")
    made = []
    for name, each in spreads.items():
        texts = [length(each[one]) if each.get(one) is not None else "-" for one in names]
        made.append(html_row(name, f"{each['count']:,}", *texts, text_columns=1))
    yield "<h3>Figures</h3>"
    yield f"<p>Executions: {escaped(ended)}. Utilization: {'not known' if share is None else f'{share:.0%}'}.</p>"
    yield html_table("Figures", ("time", "recorded", *names), made, text_columns=1)


def _failures(history: WorkHistory, name: str) -> Iterator[str]:
    """What failed in the period by code and reason, also what was redriven since."""
    causes: dict[tuple[str, str], list[RequestRow]] = defaultdict(list)
    for each in history.rows_of.get(name, []):
        if each.state in (*FAILURES, "REDRIVEN") and history.since <= (each.ended or 0.0) <= history.until:
            causes[each.code or "no code", fingerprint(each.reason, each.code)].append(each)
    made = []
    for (code, reason), some in sorted(causes.items(), key=lambda each: -len(each[1])):
        times = sorted(each.ended or 0.0 for each in some)
        names = first_of([each.request_id for each in some], MAX_NAMES)
        texts = (code, reason or "not recorded", ", ".join(names))
        made.append(html_row(*texts, f"{len(some):,}", iso(times[0]), iso(times[-1]), text_columns=3))
    if made:
        yield "<h3>Failures by cause</h3>"
        columns = ("code", "reason", "requests", "failures", "first", "last")
        yield html_table("Failures by cause", columns, made, text_columns=3)


def _request(of: TimelineRow) -> str:
    waited = length(of.wait[1] - of.wait[0]) if of.wait else "not known"
    started = iso(of.held[0]) if of.held else "not started"
    ran = length(of.held[1] - of.held[0]) if of.held else ""
    outcome = f"{of.kind.mark} {of.kind.label}".strip()
    return html_row(of.label, outcome, of.why, started, waited, ran, f"{of.weight:,}", text_columns=3)


def _check(of: CheckResult) -> str:
    lines = [of.finding, *of.examples]
    row = html_row(_MARKS[of.result], f"{of.id}: {of.claim}" if of.id else of.claim, "; ".join(lines), text_columns=3)
    return row.replace("<th ", '<th class="lost" ') if of.result is Result.FAILS else row
