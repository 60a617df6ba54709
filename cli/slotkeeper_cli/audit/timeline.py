"""The timeline of a process as SVG: the slots in use and the limit, who held a slot, and who waited.

Horizontal positions are shares of the width, and texts have a fixed size, so that they are readable on a phone.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise, takewhile
from operator import attrgetter, itemgetter

from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.figures import held
from slotkeeper_cli.audit.free_slot_checks import waits
from slotkeeper_cli.audit.intervals import Interval, overlap_seconds, value_at, weighted_steps
from slotkeeper_cli.audit.work_history import WorkHistory, acts_of, limit_steps, pauses
from slotkeeper_cli.formatting import count, duration, iso, one_line
from slotkeeper_cli.html_page import escaped

# Of the holders and of the waiting requests: the bars, and the rows that they need, that are drawn one by one.
MAX_BARS, MAX_ROWS = 400, 60
COLUMNS = 120  # that are drawn in place of more bars
# Pixels: the width of the timeline at which a text must fit, by the class that hides it where it is narrower; of a
# character, a little more than it needs.
_WIDTHS, _CHARACTER = {"tl-s": 340, "tl-m": 680, "tl-l": 1000}, 7
_LABEL_ROWS = 6
_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
_MOST_TICKS, _FEW_TICKS = 12, 4


@dataclass(frozen=True)
class OutcomeKind:
    """How an outcome is drawn: a class of TIMELINE_STYLE, and a mark, so that the color is not the only sign."""

    css: str
    label: str
    mark: str = ""


_CROSS = "\N{MULTIPLICATION SIGN}"
OUTCOMES = {
    "SUCCEEDED": OutcomeKind("tl-ok", "succeeded"),
    "FAILED": OutcomeKind("tl-bad", "failed", _CROSS),
    "ABORTED": OutcomeKind("tl-gone", "aborted", "■"),
    "TIMED_OUT": OutcomeKind("tl-late", "timed out", "◊"),
}
RUNNING = OutcomeKind("tl-run", "running", "►")
WAITED, WAITS = OutcomeKind("tl-wait", "waited"), OutcomeKind("tl-wait", "waits", "►")

TIMELINE_STYLE = """
.tl { container-type: inline-size; margin: .8rem 0 }
.tl-ok, .tl-use { --hue: #0069a6 } .tl-bad { --hue: #b03a00 } .tl-gone { --hue: #86368b } .tl-late { --hue: #7d6200 }
.tl-run { --hue: #00714f } .tl-wait { --hue: #6a737d } .tl-limit, .tl-mark, .tl-pause { --hue: #a1260d }
@media (prefers-color-scheme: dark) { .tl-ok, .tl-use { --hue: #6cb6ea } .tl-bad { --hue: #ff9d6b }
  .tl-gone { --hue: #d99be2 } .tl-late { --hue: #e6c44e } .tl-run { --hue: #52d3a8 } .tl-wait { --hue: #98a2ad }
  .tl-limit, .tl-mark, .tl-pause { --hue: #ff8a80 } }
.tl svg { display: block; width: 100%; overflow: visible; print-color-adjust: exact; -webkit-print-color-adjust: exact }
.tl rect, .tl path { fill: color-mix(in srgb, var(--hue) 27%, var(--page)); stroke: var(--hue);
  vector-effect: non-scaling-stroke }
.tl .tl-use, .tl .tl-pause { stroke: none } .tl .tl-pause { fill: color-mix(in srgb, var(--hue) 13%, var(--page)) }
.tl .tl-wait { stroke-dasharray: 3 2 } .tl .tl-limit { fill: none; stroke-width: 2 }
.tl line { stroke: var(--line) } .tl .tl-mark { stroke: var(--hue); stroke-dasharray: 4 3 }
.tl text { font: 12px system-ui, sans-serif; fill: var(--text) } .tl .tl-tiny { font-size: 8px }
.tl .tl-dim { fill: var(--dim) } .tl .tl-head { font-weight: 600 } .tl text.tl-mark { fill: var(--hue) }
.tl .tl-head, .tl text.tl-mark { paint-order: stroke; stroke: var(--page); stroke-width: 3px; stroke-dasharray: none }
.tl ul { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: 0 0 .5rem; padding: 0 }
.tl li { display: flex; align-items: center; gap: .4rem; font-size: 13px } .tl li svg { width: 26px; height: 14px }
@container (max-width: 679px) { .tl .tl-m { display: none } }
@container (max-width: 999px) { .tl .tl-l { display: none } }
"""


@dataclass(frozen=True)
class OperatorChange:
    """A change by an operator. `by`: empty if it is known from the versions of the item alone."""

    at: float
    text: str
    by: str = ""


def changes(history: WorkHistory, name: str) -> list[OperatorChange]:
    """The changes of a process in the period that concern its slots, and those of breakers, by time."""
    acts = [each for each in acts_of(history, name) if each.action.startswith(("process ", "holder ", "stack "))]
    breakers = [each for each in history.acts if each.action.startswith("retry breaker")]
    # Without the account, which the ARN of a caller contains.
    found = [
        OperatorChange(each.at, _text(each.action, each.fields), each.by.split(":", 5)[-1]) for each in acts + breakers
    ]
    if history.versions_of(name):
        steps = pairwise(limit_steps(history, name).steps)
        found += [OperatorChange(at, f"limit {before} to {after}") for (_, before), (at, after) in steps]
    return sorted((each for each in found if history.since <= each.at <= history.until), key=lambda each: each.at)


def _text(action: str, fields: Mapping[str, object]) -> str:
    if action == "process set-limit":
        return f"limit {fields.get('before')} to {fields.get('after')}"
    if action.startswith("retry breaker"):
        return f"{action.removeprefix('retry ')} {fields.get('downstream')}"
    return action.removeprefix("process ")


def length(seconds: float) -> str:
    """A duration, with tenths of a second below a minute."""
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


@dataclass(frozen=True)
class TimelineRow:
    """A request in the timeline and in the table of the page: an execution, or a request that started none.

    Attributes:
        wait: from its sending to its start, its end without one, or now; None if that is not known.
        why: for how much of the wait no slot was free or the process was paused, and how many others waited.
        held: None if it has not started.
    """

    label: str
    kind: OutcomeKind
    weight: int
    wait: Interval | None = None
    why: str = ""
    held: Interval | None = None


_Bar = tuple[TimelineRow, Interval]
_Part = tuple[str, str, int]  # shapes, texts, and the height in pixels


def rows(history: WorkHistory, name: str) -> list[TimelineRow]:
    """The requests of a process in the period, by the times of their sending or start."""
    holders = held(history, history.by_process.get(name, []))
    known = {row.execution: (row, wait) for row, wait in waits(history, name)}
    used = weighted_steps((span, history.weight(attempt.execution)) for attempt, span in holders)
    queue = weighted_steps((wait, 1) for _, wait in known.values())
    limits, breaks = limit_steps(history, name), pauses(history, name)
    instants = sorted({-math.inf, *(at for at, _ in (*used, *limits.steps)), math.inf})
    in_force = [limits.values(at, at)[-1] for at in instants[:-1]]
    free = [None if most is None else most - value_at(used, at) for at, most in zip(instants, in_force, strict=False)]

    def why(wait: Interval, weight: int) -> str:
        parts = range(bisect_right(instants, wait[0]) - 1, bisect_left(instants, wait[1]))
        full = [(instants[n], instants[n + 1]) for n in parts if (units := free[n]) is not None and units < weight]
        times = {"no slot free for": overlap_seconds(full, wait), "paused for": overlap_seconds(breaks, wait)}
        others = value_at(queue, wait[0]) - 1
        first = [f"{count(others, 'other')} waiting when it was sent"] if others > 0 else []
        return ", ".join([*(f"{text} {length(amount)}" for text, amount in times.items() if amount >= 0.05), *first])

    found = []
    for attempt, span in holders:
        if span[1] >= history.since and span[0] <= history.until:
            wait = known[attempt.execution][1] if attempt.execution in known else None
            kind, weight = OUTCOMES.get(attempt.status, RUNNING), history.weight(attempt.execution)
            label = _label(attempt.row) if attempt.row else attempt.execution
            found.append(TimelineRow(label, kind, weight, wait, held=span))
    for execution in known.keys() - history.by_execution.keys():
        row, wait = known[execution]
        kind = WAITS if row.ended is None else OutcomeKind("tl-wait", row.state.lower().replace("_", " "), _CROSS)
        found.append(TimelineRow(_label(row), kind, history.weight(execution), wait))
    found.sort(key=lambda each: min(filter(None, (each.wait, each.held))))
    # Of the others only means are drawn.
    newest = (replace(each, why=why(each.wait, each.weight)) if each.wait else each for each in found[-MAX_BARS:])
    return [*found[:-MAX_BARS], *newest]


def _label(row: RequestRow) -> str:
    return row.request_id + f", attempt {row.attempt}" * (row.attempt > 1)


class _Axis:
    """The part of the period in which something happened, with a margin."""

    def __init__(self, history: WorkHistory, instants: Sequence[float]) -> None:
        inside = [min(max(at, history.since), history.until) for at in instants] or [history.since, history.until]
        margin = max(0.5, 0.02 * (max(inside) - min(inside)))
        self.since, self.until = max(history.since, min(inside) - margin), min(history.until, max(inside) + margin)
        self.is_part = self.until - self.since < 0.95 * (history.until - history.since)

    def share(self, at: float) -> float:
        """The place of an instant, in percent of the width."""
        return 100 * (min(max(at, self.since), self.until) - self.since) / (self.until - self.since)

    def draw(self, height: float) -> str:
        """Lines and times below a height. A phone has space for each third of the times."""
        span = self.until - self.since
        step = next((each for each in _TICKS if span / each <= _MOST_TICKS), math.ceil(span / _MOST_TICKS))
        form, drawn = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%b %d", ""
        for number in range(math.ceil(self.since / step), math.floor(self.until / step) + 1):
            x, css = self.share(number * step), "tl-s" if number % 3 == 0 or span / step < _FEW_TICKS else "tl-l"
            anchor = "start" if x < 4 else "end" if x > 96 else "middle"
            at = datetime.fromtimestamp(number * step, UTC).strftime(form)
            drawn += f'<line x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="{height + 4}" class="{css}"/>'
            drawn += f'<text x="{x:.2f}%" y="{height + 17}" class="tl-dim {css}" text-anchor="{anchor}">{at}</text>'
        return f'{drawn}<text y="{height + 35}" class="tl-dim">{iso(self.since)} to {iso(self.until)} (UTC)</text>'

    def path(self, css: str, steps: Sequence[tuple[float, float | None]], top: float, *, filled: bool) -> str:
        """A value from each instant on, where it is known, in a box of 1000 by 100."""
        drawn, is_open = "", False
        for (at, value), (end, _) in pairwise([*steps, (self.until, None)]):
            if value is None or not (at < self.until and end > self.since):
                is_open = is_open and value is not None
                continue
            y = f"{100 - 100 * value / top:.1f}"
            drawn += "" if is_open else f"M{10 * self.share(at):.1f},{100 if filled else y}"
            drawn += f"V{y}H{10 * self.share(end):.1f}"
            is_open = True
        return f'<path class="{css}" d="{drawn}{"V100Z" * filled}"/>' if drawn else ""


def timeline_svg(history: WorkHistory, name: str, ident: str = "timeline") -> str:
    """The timeline of one process with its legend and notes, as a part of a page that has TIMELINE_STYLE.

    More than MAX_BARS holders or waiting requests, or more than MAX_ROWS of them at the same time, are drawn as columns
    of means. The style takes the colors --text, --dim, --line and --page from the page.

    Args:
        ident: begins the ids of the SVG: a different one for each timeline of a page.
    """
    drawn = rows(history, name)
    holders = sorted(((each, each.held) for each in drawn if each.held), key=itemgetter(1))
    waiting = sorted(((each, each.wait) for each in drawn if each.wait), key=itemgetter(1))
    marks, common = changes(history, name), _common(drawn)
    axis = _Axis(history, [*(at for _, span in holders + waiting for at in span), *(each.at for each in marks)])
    parts = [
        _labels(axis, marks),
        _usage(history, name, axis, holders),
        _bars(f"Who held a slot ({count(len(holders), 'execution')})", axis, holders, common),
        _bars(f"Who waited for one ({count(len(waiting), 'request')})", axis, waiting, common, "tl-wait"),
    ]
    top, height, shapes, texts = parts[0][2], 0, "", ""
    for shape, text, size in parts:
        shapes += f'<g transform="translate(0 {height})">{shape}</g>'
        texts += f'<g transform="translate(0 {height})">{text}</g>'
        height += size
    xs = [(axis.share(start), axis.share(end)) for start, end in pauses(history, name)]
    behind = "".join(
        f'<rect class="tl-pause" x="{a:.2f}%" y="{top}" width="{b - a:.2f}%" height="{height - top}"/>' for a, b in xs
    )
    lines = "".join(
        f'<line class="tl-mark" x1="{x}%" x2="{x}%" y1="{top - 2}" y2="{height}"/>'
        for x in sorted({round(axis.share(each.at), 1) for each in marks})
    )
    notes = _notes(history, name, axis, holders, waiting)
    outcomes = Counter(each.kind.label for each in drawn).most_common()
    summary = ", ".join(f"{number:,} {label}" for label, number in outcomes) or "no requests"
    return (
        f'<div class="tl">{_legend(drawn)}<svg height="{height + 40}" role="img" '
        f'aria-labelledby="{ident}-title {ident}-desc"><title id="{ident}-title">Slots of {escaped(name)} over time'
        f'</title><desc id="{ident}-desc">From {iso(axis.since)} to {iso(axis.until)}: {summary}; '
        f"{count(len(marks), 'change')} by operators.</desc>{behind}{axis.draw(height)}{shapes}{lines}{texts}</svg>"
        f"{''.join(f'<p class="dim">{note}</p>' for note in notes)}</div>"
    )


def _legend(drawn: Sequence[TimelineRow]) -> str:
    kinds = {each.kind for each in drawn} | ({WAITED} if any(each.wait for each in drawn) else set())
    boxes = [
        OutcomeKind("tl-use", "slots in use"),
        *sorted(kinds, key=attrgetter("css", "label")),
        OutcomeKind("tl-pause", "pause"),
    ]
    lines = [OutcomeKind("tl-limit", "limit"), OutcomeKind("tl-mark", "change by an operator")]
    items = (
        f'<li><svg aria-hidden="true"><path class="{each.css}" d="{path}"/><text x="9" y="11">{each.mark}</text></svg>'
        f"{each.label}</li>"
        for some, path in ((boxes, "M1,1H25V13H1Z"), (lines, "M0,7H26"))
        for each in some
    )
    return f"<ul>{''.join(items)}</ul>"


def _labels(axis: _Axis, marks: Sequence[OperatorChange]) -> _Part:
    """The labels of changes, in rows in which none overlaps another one on a phone, as far as there is space."""
    drawn, placed = "", list[tuple[int, float, float]]()
    for number, mark in enumerate(marks, 1):
        text, x = f"{number} {one_line(mark.text, 20)}", axis.share(mark.at)
        size, is_left = _CHARACTER * len(text) + 6, x <= 50
        begin = x / 100 * _WIDTHS["tl-s"] - (0 if is_left else size)
        row = min(set(range(_LABEL_ROWS + 1)) - {row for row, a, b in placed if begin < b and a < begin + size})
        if row < _LABEL_ROWS:
            placed.append((row, begin, begin + size))
            side = 'dx="3"' if is_left else 'dx="-3" text-anchor="end"'
            drawn += f'<text class="tl-mark" x="{x:.2f}%" {side} y="{14 * row + 12}">{escaped(text)}</text>'
    return "", drawn, 14 * max((row + 1 for row, _, _ in placed), default=0)


def _usage(history: WorkHistory, name: str, axis: _Axis, holders: Sequence[_Bar]) -> _Part:
    used = weighted_steps((span, each.weight) for each, span in holders)
    limits = limit_steps(history, name).intervals
    known = [each for start, end, each in limits if each is not None and start < axis.until and end > axis.since]
    peak = max((value for _, value in used), default=0)
    top = max(1, peak, *known)
    layers: Sequence[tuple[str, Sequence[tuple[float, float]]]] = [("tl-use", used)]
    if _are_many(holders):
        kinds = [*OUTCOMES.values(), RUNNING]
        by_kind = [[(each, span) for each, span in holders if each.kind in kinds[: number + 1]] for number in range(5)]
        layers = [(kind.css, _means(axis, some)) for kind, some in zip(kinds, by_kind, strict=True)][::-1]
    drawn = "".join(axis.path(css, steps, top, filled=True) for css, steps in layers)
    drawn += axis.path("tl-limit", [(start, each) for start, _, each in limits], top, filled=False)
    text = " to ".join(f"{each:,}" for each in sorted({min(known), max(known)})) if known else "not known"
    return _panel(f"Slots in use (at most {peak:,}); limit {text}", drawn)


def _panel(title: str, drawn: str) -> _Part:
    """Paths in a box of 1000 by 100, over the whole width."""
    box = f'<svg y="24" height="64" viewBox="0 0 1000 100" preserveAspectRatio="none">{drawn}</svg>'
    return box, f'<text class="tl-head" y="16">{title}</text>', 96


def _lanes(spans: Sequence[Interval]) -> list[int]:
    """The lowest lane that is free during each interval. The intervals are in the order of their starts."""
    free, busy, lanes = list[int](), list[tuple[float, int]](), list[int]()
    for start, end in spans:
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lanes.append(heapq.heappop(free) if free else len(busy))
        heapq.heappush(busy, (max(start, end), lanes[-1]))
    return lanes


def _are_many(bars: Sequence[_Bar]) -> bool:
    return len(bars) > MAX_BARS or max(_lanes([span for _, span in bars]), default=0) >= MAX_ROWS


def _means(axis: _Axis, bars: Sequence[_Bar]) -> list[tuple[float, float]]:
    """The mean weight in each column."""
    width = (axis.until - axis.since) / COLUMNS
    sums = [0.0] * COLUMNS
    for each, (start, end) in bars:
        first = max(0, math.floor((start - axis.since) / width))
        for number in range(first, min(COLUMNS, math.ceil((end - axis.since) / width))):
            begin = axis.since + number * width
            sums[number] += each.weight * overlap_seconds([(start, end)], (begin, begin + width)) / width
    return [(axis.since + number * width, value) for number, value in enumerate(sums)]


def _common(drawn: Sequence[TimelineRow]) -> str:
    """The beginning that the names of all requests have, if bars are easier to distinguish without it."""
    labels = sorted(each.label for each in drawn)
    pairs = zip(labels[0], labels[-1], strict=False) if len(labels) > 1 else ()
    common = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)).rstrip("0123456789")
    return common if len(common) > 3 and labels[0] != common else ""


def _bars(title: str, axis: _Axis, bars: Sequence[_Bar], common: str, css: str = "") -> _Part:
    """A bar for each, in the lowest free row.

    Args:
        common: what the labels leave out.
        css: of waiting requests; by default that of the outcome.
    """
    if _are_many(bars):
        means = _means(axis, [(replace(each, weight=1), span) for each, span in bars])
        top = max(value for _, value in means)
        title = f"{title}: at most {top:,.0f} in a column"
        return _panel(title, axis.path(css, means, top, filled=True)) if css else ("", "", 0)
    lanes = _lanes([span for _, span in bars])
    number = max(lanes, default=-1) + 1
    pitch = 20 if number <= 20 else max(7, 400 // number)
    drawn, texts = "", f'<text class="tl-head" y="16">{title}</text>'
    for (each, (start, end)), lane in zip(bars, lanes, strict=True):
        x, y = axis.share(start), 24 + pitch * lane
        width = max(0.25, axis.share(end) - x)
        mark = "" if css and each.held else each.kind.mark
        label = "…" * bool(common) + each.label.removeprefix(common)
        label += f" (weight {each.weight:,})" if each.weight > 1 else ""
        about = f"{each.label}: {each.kind.label}; {iso(start)}, {length(end - start)}{f'; {each.why}' if css else ''}"
        drawn += f'<rect class="{css or each.kind.css}" x="{x:.2f}%" y="{y}" width="{width:.2f}%" '
        drawn += f'height="{pitch - 2}" rx="2"><title>{escaped(about)}</title></rect>'
        needed = _CHARACTER * len(label) + 8 + 14 * bool(mark)
        fits = next((name for name, pixels in _WIDTHS.items() if width / 100 * pixels >= needed), "")
        if fits and pitch > 14:
            texts += f'<text class="{fits}" x="{x:.2f}%" dx="5" y="{y + 13}">{escaped(label)}</text>'
        if mark:
            tiny = ' class="tl-tiny"' if pitch < 14 else ""
            place = f'x="{x + width:.2f}%" y="{y + pitch / 2 + 3:g}"'
            texts += f'<text{tiny} {place} dx="-3" text-anchor="end">{mark}</text>'
    return drawn, texts, 28 + pitch * number


def _notes(
    history: WorkHistory, name: str, axis: _Axis, holders: Sequence[_Bar], waiting: Sequence[_Bar]
) -> Iterator[str]:
    """What the drawing leaves out."""
    if common := _common([each for each, _ in (*holders, *waiting)]):
        yield f"… is the common beginning of the names: {escaped(common)}"
    if axis.is_part:
        yield "The rest of the period, in which nothing is recorded, is not drawn."
    for noun, bars in (("executions", holders), ("waits", waiting)):
        if _are_many(bars):
            column = length((axis.until - axis.since) / COLUMNS)
            yield f"{len(bars):,} {noun} are too many for bars: each column is a mean of {column}."
    if unknown := sum(each.wait is None and start >= history.since for each, (start, _) in holders):
        yield f"For how long {count(unknown, 'execution')} waited is not recorded."
    if None in limit_steps(history, name).values(axis.since, axis.until):
        yield "Where its line is missing, the limit is not known."
    process = history.processes.get(name)
    if leases := sum(each.is_lease for each in process.holders.values()) if process else 0:
        yield f"{count(leases, 'lease holds', 'leases hold')} a slot now. Leases leave no record and are not drawn."
