"""The one picture: slots of a process over time as a self-contained SVG, and a small one for a row of a table.

Horizontal positions are shares of the width, and texts have a fixed size, so that a page's picture is readable on a
phone. The script of pages writes the times that have `data-at` in the reader's zone; without it they are in UTC.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from operator import attrgetter, itemgetter

from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.intervals import Interval, pieces, weighted_steps
from slotkeeper_cli.formatting import count, cut, iso
from slotkeeper_cli.look.pages import escaped, kind, lasting, plain, style
from slotkeeper_cli.requests import state_of

# Bars of a panel, and the rows that they need, that are drawn one by one. Of more, the area alone is drawn.
MAX_BARS, MAX_ROWS = 400, 60
MOST_HIGH = 16  # lanes, up to which a bar is as high as its weight
WIDTH = 960  # pixels of a separate picture
_LEFT, _SPAN = 3.5, 95.5  # percent of the width: where the time begins, and its share
_CHARACTER = 7.5  # pixels, a little more than most need
_COLUMNS = 400  # in which an area is exact
_LABEL_ROWS = 4
_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
_MOST_TICKS = 12
# At the end of a bar, so that the color is not the only sign.
_SIGNS = {"failed": "×", "aborted": "■", "timed out": "◆", "running": "▸", "queued": "▸"}  # noqa: RUF001

Steps = Sequence[tuple[float, float | None]]  # (instant, value from then on), by time; None: not known

_STYLE = """
.tl { display: block; font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; print-color-adjust: exact }
.tl :is(.ok, .use) { --state: var(--ok) } .tl .busy { --state: var(--busy) } .tl .wait { --state: var(--wait) }
.tl .warn { --state: var(--warn) } .tl .bad { --state: var(--bad) } .tl .off { --state: var(--off) }
.tl .use { --state: var(--accent) } .tl .card { fill: var(--card) } .tl line { stroke: var(--line) }
.tl :is(rect, path):not(.card) { fill: color-mix(in srgb, var(--state) 30%, var(--card)); stroke: var(--state);
  vector-effect: non-scaling-stroke }
.tl rect.thin { stroke: none; fill: color-mix(in srgb, var(--state) 55%, var(--card)) }
.tl rect.pause { --state: var(--warn); stroke: none; fill: color-mix(in srgb, var(--state) 14%, var(--card)) }
.tl path.limit { --state: var(--text); fill: none !important; stroke-width: 1.6; stroke-dasharray: 7 3 }
.tl line.mark { stroke: var(--dim); stroke-dasharray: 2 3 }
.tl text { fill: var(--text) } .tl .dim { fill: var(--dim) } .tl :is(.head, .name) { font-weight: 600 }
.tl .name { font-size: 15px } .tl .sign, .tl tspan[class] { fill: var(--state, var(--text)) }
.tl :is(.over, .head) { paint-order: stroke; stroke: var(--card); stroke-width: 3px }
@media (max-width: 700px) { .tl .wide { display: none } }
"""


@dataclass(frozen=True)
class Bar:
    """A request.

    Attributes:
        state: `running`, or in which it has ended; of a request that has not started, that of its row.
        wait: from its sending to its start, its end without one, or now; None if that is not known.
        held: None if it has not started.
        why: what kept it waiting.
        key: "" for none.
    """

    label: str
    state: str
    weight: int = 1
    wait: Interval | None = None
    held: Interval | None = None
    why: str = ""
    key: str = ""


@dataclass(frozen=True)
class Mark:
    """A change by an operator. `by`: empty if it is not recorded."""

    at: float
    text: str
    by: str = ""


@dataclass(frozen=True)
class Timeline:
    """The picture of a process as data. Times are seconds since the epoch.

    Attributes:
        since, until: the time that is drawn.
        limits: None where the limit is not known.
        notes: gaps of the records, in sentences.
        is_limit_present: the limit is the present one, and may have been another one before.
    """

    process: str
    since: float
    until: float
    bars: Sequence[Bar] = ()
    limits: Steps = ()
    pauses: Sequence[Interval] = ()
    marks: Sequence[Mark] = ()
    notes: Sequence[str] = ()
    is_limit_present: bool = False

    @property
    def holders(self) -> list[tuple[Bar, Interval]]:
        """The requests that held slots, by their starts."""
        return sorted(((each, each.held) for each in self.bars if each.held), key=itemgetter(1))

    @property
    def waiting(self) -> list[tuple[Bar, Interval]]:
        """The requests of which the wait is known, by their sending."""
        return sorted(((each, each.wait) for each in self.bars if each.wait), key=itemgetter(1))

    @property
    def in_use(self) -> list[tuple[float, int]]:
        """The slots in use from each instant on."""
        return weighted_steps((span, each.weight) for each, span in self.holders)


def timeline_of_rows(
    process: str, rows: Iterable[RequestRow], since: float, until: float, limit: int | None, default_weight: int = 1
) -> Timeline:
    """The timeline from the rows of a process alone: when each request was sent, started and ended.

    Args:
        limit: the present one, which is drawn for the whole time; None if it is not known.
    """
    bars, unknown = list[Bar](), 0
    for row in sorted(rows, key=attrgetter("sent")):
        ended = until if row.ended is None else row.ended
        if ended < since or row.sent > until:
            continue
        held = wait = None
        # A returned request had no slot, and a redriven one may have ended without a start.
        if row.state in ("STARTED", "SUCCEEDED", "FAILED", "REDRIVEN") and row.started is not None:
            held = (row.started, max(ended, row.started))
        if held or row.state not in ("STARTED", "SUCCEEDED", "FAILED"):
            wait = (row.sent, max(row.sent, held[0] if held else ended))
        unknown += wait is None
        state = "running" if row.state == "STARTED" else str(state_of(row.state))
        bars.append(Bar(label_of(row), state, row.weight or default_weight, wait, held, key=row.key))
    notes = [f"When {count(unknown, 'request')} started is not recorded."] if unknown else []
    return Timeline(process, since, until, bars, [(-math.inf, limit)], notes=notes, is_limit_present=True)


def label_of(row: RequestRow) -> str:
    """A request as its bar names it."""
    return row.request_id + f", attempt {row.attempt}" * (row.attempt > 1)


def notes_of(of: Timeline) -> list[str]:
    """The omissions of the picture, in sentences."""
    found = list(of.notes)
    panels = (("executions", of.holders), ("waits", of.waiting))
    found += [f"{len(bars):,} {noun} are too many for bars of their own." for noun, bars in panels if _are_many(bars)]
    if any(value is None and at < of.until and end > of.since for at, end, value in pieces(of.limits)):
        found.append("Where its line is missing, the limit is not known.")
    return found


def timeline_svg(of: Timeline, *, file: bool = False) -> str:
    """The picture, with its style.

    More than MAX_BARS holders or waiting requests, or more than MAX_ROWS of them at the same time, are an area.

    Args:
        file: a separate picture, of WIDTH pixels, with its title and notes. Otherwise a part of a page, as wide as
            the page permits.
    """
    bars = [replace(each, label=plain(each.label), key=plain(each.key)) for each in of.bars]
    of = replace(of, bars=bars, marks=[replace(each, text=plain(each.text)) for each in of.marks])
    axis = _Axis(of)
    parts = [(_text(_LEFT, 26, f"Slots of {of.process}", "name"), 36)] if file else []
    top = sum(height for _, height in parts)
    parts += [_marks(of, axis), _usage(of, axis), _held(of, axis), _waited(of, axis)]
    height = sum(height for _, height in parts)
    drawn = [axis.draw(top, height), *_behind(of, axis, top, height)]
    y = 0
    for shapes, size in parts:
        drawn.append(f'<g transform="translate(0 {y})">{shapes}</g>')
        y += size
    y += 40
    for note in notes_of(of) if file else ():
        drawn.append(_text(_LEFT, y + 12, note, "dim"))
        y += 17
    y += 10 * file
    states = ", ".join(f"{number:,} {state}" for state, number in Counter(each.state for each in of.bars).most_common())
    sizes = f'width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}"' if file else f'width="100%" height="{y}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tl" role="img" {sizes}>'
        f"<title>Slots of {escaped(of.process)} over time</title>"
        f"<desc>From {iso(of.since)} to {iso(of.until)}: {states or 'no requests'}; at most {_peak(of):,} "
        f"slots in use; {count(len(of.marks), 'change')} by operators.</desc><style>{_palette()}{_STYLE}</style>"
        f'<rect class="card" width="100%" height="100%" rx="6"/>{"".join(drawn)}</svg>'
    )


def spark_svg(steps: Steps, since: float, until: float, label: str, limit: float | None = None) -> str:
    """A small area for a row of a table, as a part of a page that has the stylesheet.

    Args:
        steps: the value from each instant on.
        label: its text for screen readers and on hover.
        limit: drawn as a line.
    """
    top = max([1, limit or 0, *(value for _, value in steps if value is not None)])
    axis = _Axis(Timeline("", since, until))
    line = f'<path class="limit" d="M0,{100 - 92 * limit / top:.1f}H1000"/>' if limit is not None else ""
    return (
        f'<svg class="spark" role="img" viewBox="0 0 1000 100" preserveAspectRatio="none"><title>{escaped(label)}'
        f"</title>{axis.path('use', [(-math.inf, 0), *steps], top / 0.92, filled=True)}{line}</svg>"
    )


@cache
def _palette() -> str:
    """The colors of pages, which begin the stylesheet, for the picture alone."""
    return style().partition("\n.look")[0].replace(":root", ".tl")


def _peak(of: Timeline) -> int:
    return max((value for _, value in of.in_use), default=0)


class _Axis:
    """Places of instants, in percent of the width."""

    def __init__(self, of: Timeline) -> None:
        self.since, self.until = of.since, max(of.until, of.since + 0.001)

    def share(self, at: float) -> float:
        """The share of the time before an instant, 0 to 1."""
        return (min(max(at, self.since), self.until) - self.since) / (self.until - self.since)

    def x(self, at: float) -> float:
        return _LEFT + _SPAN * self.share(at)

    def draw(self, top: int, height: int) -> str:
        """Lines and times below the panels. A phone has space for each third of the times."""
        span = self.until - self.since
        step = next((each for each in _TICKS if span / each <= _MOST_TICKS), math.ceil(span / _MOST_TICKS))
        form, text = ("second", "%H:%M:%S") if step < 60 else ("minute", "%H:%M") if step < 86400 else ("day", "%b %d")
        drawn = ""
        for number in range(math.ceil(self.since / step), math.floor(self.until / step) + 1):
            tick, x = number * step, self.x(number * step)
            css = "dim" if number % 3 == 0 or span / step < 4 else "dim wide"
            drawn += f'<line x1="{x:.2f}%" x2="{x:.2f}%" y1="{top}" y2="{height + 4}"/>'
            if 3 + _LEFT < x < 97:
                shown = f"{datetime.fromtimestamp(tick, UTC):{text}}"
                drawn += _text(x, height + 17, shown, css, f'text-anchor="middle" data-at="{tick}" data-form="{form}"')
        for at, anchor, css in ((self.since, "start", "dim"), (self.until, "end", "dim wide")):
            shown = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
            data = f'text-anchor="{anchor}" data-at="{at:.3f}" data-form="exact"'
            drawn += _text(self.x(at), height + 34, shown, css, data)
        return drawn

    def path(self, css: str, steps: Steps, top: float, *, filled: bool) -> str:
        """A value from each instant on, where it is known, in a box of 1000 by 100."""
        drawn, is_open = "", False
        for at, end, value in pieces(self._visible(steps)):
            if value is None or not (at < self.until and end > self.since):
                drawn += "V100Z" * (filled and is_open)
                is_open = False
                continue
            y = f"{100 - 100 * value / top:.1f}"
            drawn += "" if is_open else f"M{1000 * self.share(at):.1f},{100 if filled else y}"
            drawn += f"V{y}H{1000 * self.share(end):.1f}"
            is_open = True
        return f'<path class="{css}" d="{drawn}{"V100Z" * (filled and is_open)}"/>' if drawn else ""

    def _visible(self, steps: Steps) -> Steps:
        """Of many steps in a column: the first, the last, the lowest and the highest, which look the same."""
        if len(steps) <= 4 * _COLUMNS:
            return steps
        kept: list[tuple[float, float | None]] = []
        for _, group in groupby(steps, key=lambda step: int(_COLUMNS * self.share(step[0]))):
            some = list(group)
            by_value = sorted(some, key=lambda step: step[1] or 0)
            kept += sorted({some[0], some[-1], by_value[0], by_value[-1]}, key=itemgetter(0))
        return kept


_Part = tuple[str, int]  # shapes, and their height in pixels


def _text(x: float, y: float, text: str, css: str = "", more: str = "") -> str:
    return f'<text x="{x:.2f}%" y="{y:g}" class="{css}" {more}>{escaped(text)}</text>'


def _head(text: str, *items: tuple[str, str, str]) -> str:
    """A panel's heading with its legend: (kind, sign, text) of each item."""
    legend = "".join(
        f'<tspan class="{css}" dx="14">{sign}</tspan><tspan dx="4">{escaped(item)}</tspan>' for css, sign, item in items
    )
    return f'<text x="{_LEFT}%" y="18"><tspan class="head">{escaped(text)}</tspan>{legend}</text>'


def _behind(of: Timeline, axis: _Axis, top: int, height: int) -> Iterable[str]:
    """The pauses, and a line for each change."""
    for start, end in of.pauses:
        x = axis.x(start)
        yield f'<rect class="pause" x="{x:.2f}%" y="{top}" width="{axis.x(end) - x:.2f}%" height="{height - top}"/>'
    for number, mark in enumerate(of.marks, 1):
        about = f"{number} {mark.text}; {iso(mark.at)}; {mark.by or 'by whom is not recorded'}"
        place = f'x1="{axis.x(mark.at):.2f}%" x2="{axis.x(mark.at):.2f}%" y1="{top + 4}" y2="{height}"'
        yield f'<line class="mark" {place}><title>{escaped(about)}</title></line>'


def _marks(of: Timeline, axis: _Axis) -> _Part:
    """The number and text of each change, in a row in which it overlaps no other, as far as there is space."""
    drawn, placed = "", list[tuple[int, float, float]]()
    for number, mark in enumerate(of.marks, 1):
        text, x = f"{number} {cut(mark.text, 28)}", axis.x(mark.at)
        size, is_left = _CHARACTER * len(text) + 8, x <= 50
        begin = x / 100 * WIDTH - (0 if is_left else size)
        row = min(set(range(_LABEL_ROWS + 1)) - {row for row, a, b in placed if begin < b and a < begin + size})
        if row < _LABEL_ROWS:
            placed.append((row, begin, begin + size))
            side = 'dx="4"' if is_left else 'dx="-4" text-anchor="end"'
            drawn += _text(x, 14 * row + 14, text, "over wide", side)
    return drawn, 14 * max((row + 1 for row, _, _ in placed), default=0) + 4 * bool(placed)


def _usage(of: Timeline, axis: _Axis) -> _Part:
    parts = [each for each in pieces(of.limits) if each[0] < axis.until and each[1] > axis.since]
    known = [value for _, _, value in parts if value is not None]
    top = max(1, _peak(of), *known)
    limit = " to ".join(f"{each:,}" for each in sorted({min(known), max(known)})) if known else "not known"
    now = "now " if known and of.is_limit_present else ""
    items = [("use", "■", f"at most {_peak(of):,}"), ("", "╍╍", f"limit {now}{limit}")]
    drawn = _head("Slots in use", *items, *([("warn", "▨", "pause")] if of.pauses else []))
    area = axis.path("use", [(-math.inf, 0), *of.in_use], top, filled=True)
    drawn += _panel(area + axis.path("limit", of.limits, top, filled=False), 70)
    for value, y in ((top, 34), (0, 104)):
        drawn += _text(_LEFT - 0.5, y, f"{value:,}", "dim", 'text-anchor="end"')
    return drawn, 112


def _panel(paths: str, height: int) -> str:
    return (
        f'<svg x="{_LEFT}%" y="30" width="{_SPAN}%" height="{height}" viewBox="0 0 1000 100" overflow="visible" '
        f'preserveAspectRatio="none">{paths}</svg>'
    )


def _held(of: Timeline, axis: _Axis) -> _Part:
    states = Counter(each.state for each, _ in of.holders)
    items = [(kind(state), _SIGNS.get(state, "■"), f"{number:,} {state}") for state, number in states.most_common()]
    head = _head("Held a slot", *(items or [("ok", "■", count(0, "request"))]))
    if not _are_many(of.holders):
        drawn, height = _bars(axis, of.holders)
        return head + drawn, height
    ends = [(each, span[1]) for each, span in of.holders if each.state in ("failed", "aborted", "timed out")]
    ticks = {(kind(each.state), f"{axis.x(at):.1f}") for each, at in ends}
    lines = "".join(f'<rect class="{css}" x="{x}%" y="26" width="1" height="9"/>' for css, x in sorted(ticks))
    return head + lines, 44


def _waited(of: Timeline, axis: _Axis) -> _Part:
    waits = of.waiting
    longest = f", longest {lasting(max(end - at for _, (at, end) in waits))}" if waits else ""
    left = Counter(each.state for each, _ in waits if each.held is None and each.state != "queued")
    items = [(kind(state), "×", f"{number:,} {state}") for state, number in left.most_common()]  # noqa: RUF001
    head = _head("Waited", ("wait", "■", f"{count(len(waits), 'request')}{longest}"), *items)
    if not _are_many(waits):
        drawn, height = _bars(axis, waits, waiting=True)
        return head + drawn, height
    steps = weighted_steps((span, 1) for _, span in waits)
    top = max(value for _, value in steps)
    drawn = _panel(axis.path("wait", steps, top, filled=True), 60)
    return head + drawn + _text(_LEFT - 0.5, 34, f"{top:,}", "dim", 'text-anchor="end"'), 102


def _lanes(spans: Sequence[Interval], sizes: Sequence[int]) -> list[int]:
    """The lowest lane from which on as many as its size are free during each interval. By the intervals' starts."""
    ends, found = list[float](), list[int]()
    for (start, end), size in zip(spans, sizes, strict=True):
        lane = next(each for each in range(len(ends) + 1) if all(end <= start for end in ends[each : each + size]))
        ends[lane : lane + size] = [max(start, end)] * size
        found.append(lane)
    return found


def _are_many(bars: Sequence[tuple[Bar, Interval]]) -> bool:
    return len(bars) > MAX_BARS or max(_lanes([span for _, span in bars], [1] * len(bars)), default=0) >= MAX_ROWS


def _bars(axis: _Axis, bars: Sequence[tuple[Bar, Interval]], *, waiting: bool = False) -> _Part:
    """A bar for each, in the lowest free lane; in as many as the slots that it held, if there is space."""
    spans, ones = [span for _, span in bars], [1] * len(bars)
    sizes = ones if waiting else [each.weight for each, _ in bars]
    if max(sizes, default=0) > MOST_HIGH or max(_lanes(spans, sizes), default=0) >= MOST_HIGH:
        sizes = ones
    lanes = _lanes(spans, sizes)
    number = max((lane + size for lane, size in zip(lanes, sizes, strict=True)), default=0)
    pitch = 19 if number <= 12 else max(5, 228 // number)
    drawn, is_thin = "", pitch < 12
    for (each, (start, end)), lane, size in zip(bars, lanes, sizes, strict=True):
        x, y = axis.x(start), 28 + pitch * lane
        width = max(0.15, axis.x(end) - x)
        sign = "" if waiting and each.held else _SIGNS.get(each.state, "×" if waiting else "")  # noqa: RUF001
        about = f"{each.label}: {each.state}, {count(each.weight, 'slot')}; {iso(start)}, {lasting(end - start)}"
        about += f"; key {each.key}" * bool(each.key)
        about += f"; {each.why}" if waiting and each.why else ""
        css = "wait" if waiting and (each.held or each.state == "queued") else kind(each.state)
        height = pitch * size - (1 if is_thin else 3)
        drawn += (
            f'<rect class="{css}{" thin" * is_thin}" x="{x:.2f}%" y="{y}" width="{width:.2f}%" height="{height}" '
            f'rx="{2 * (not is_thin)}"><title>{escaped(about)}</title></rect>'
        )
        pixels = width / 100 * WIDTH
        fitting = int((pixels - 9 - 14 * bool(sign)) / _CHARACTER)
        if pitch > 14 and fitting >= min(len(each.key or each.label), 5):
            slots = f" ({each.weight:,} slots)" if each.weight > size else ""
            name = f"{each.key} {each.label}" if each.key else each.label
            # The ends of ids differ, and those of numbered keys.
            part = "…" + (each.key or each.label)[1 - fitting :]
            whole = (text for text in (name + slots, name, each.key or name) if len(text) <= fitting)
            shown = next(whole, part)
            drawn += (
                f'<svg x="{x:.2f}%" y="{y}" width="{width:.2f}%" height="{pitch}">'
                f'<text x="5" y="{pitch / 2 + 2.5}" class="wide">{escaped(shown)}</text></svg>'
            )
        if sign and not is_thin:
            place = f'text-anchor="{"end" if pixels > 14 else "start"}" dx="{-4 if pixels > 14 else 2}"'
            drawn += _text(x + width, y + pitch * size / 2 + 2.5, sign, f"sign over {kind(each.state)}", place)
    return drawn, 40 + pitch * number
