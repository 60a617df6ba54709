"""The figures and the picture of a history of work, by process: its requests and slots over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slotkeeper_cli.audit import chart
from slotkeeper_cli.audit.chart import Bar, Panel, Point
from slotkeeper_cli.audit.free_slot_checks import idle_times, waits
from slotkeeper_cli.audit.intervals import Interval, overlap_seconds, rounded, spread, weighted_steps
from slotkeeper_cli.audit.work_history import Attempt, WorkHistory, acts_of, limit_steps
from slotkeeper_cli.formatting import local_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Processes with most executions that are drawn, and executions of each: in a larger picture they overlap.
MAX_DRAWN, MAX_LANES = 6, 2000
UNITS = ((7200.0, 3600.0, "hours"), (600.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
_PRIORITIES = {"high": chart.VERMILLION, "normal": chart.ORANGE, "low": chart.SKY}
_MARKERS = {"process set-limit": "v", "process pause": "s", "process resume": ">", "process repair": "P"}


def figures(history: WorkHistory, window: Interval | None = None) -> dict[str, Any]:
    """The figures of each process. Times are in seconds.

    | key | meaning |
    |---|---|
    | `executions` | number by status |
    | `priorities` | by priority: `executions`, and `wait` as below |
    | `wait` | from the message to the start of the execution: count, p50, p90, p99, max |
    | `hand_off` | in a whole run, from a release to the next start, if its request waited: count, p50, p99, max |
    | `free_slot` | times in which a slot was free for the request at the head of the queue: as `wait` |
    | `utilization` | share of the slot-seconds in the period that executions held; None: the limit is not known |

    Args:
        window: for the utilization; by default the period.
    """
    return {name: _of(history, name, window or (history.since, history.until)) for name in history.names}


def _of(history: WorkHistory, name: str, window: Interval) -> dict[str, Any]:
    since = history.since
    attempts = [each for each in history.by_process.get(name, []) if each.stopped is None or each.stopped >= since]
    waited = {row.execution: end - at for row, (at, end) in waits(history, name)}
    priorities = sorted({each.priority for each in attempts if each.priority is not None})
    return {
        "executions": dict(Counter(each.status for each in attempts).most_common()),
        "priorities": {
            priority: {
                "executions": sum(each.priority == priority for each in attempts),
                "wait": _wait(waited, (each for each in attempts if each.priority == priority)),
            }
            for priority in priorities
        },
        "wait": _wait(waited, attempts),
        "hand_off": spread([seconds for _, seconds in hand_offs(history, name)], p50=0.5, p99=0.99),
        "free_slot": spread([each.seconds for each in idle_times(history, name)], p50=0.5, p90=0.9, p99=0.99),
        "utilization": _utilization(history, name, attempts, window),
    }


def _wait(waited: Mapping[str, float], attempts: Iterable[Attempt]) -> dict[str, Any]:
    known = [waited[each.execution] for each in attempts if each.execution in waited]
    return spread(known, p50=0.5, p90=0.9, p99=0.99)


def held(history: WorkHistory, attempts: Sequence[Attempt]) -> list[tuple[Attempt, Interval]]:
    """For how long each execution held its slot: until its work ended, which is a little less than it did."""
    work = {each.execution: each.ended for each in history.work}
    ends = (
        (each, history.freed(each.execution) or work.get(each.execution) or each.stopped or history.now)
        for each in attempts
    )
    return [(each, (each.started, max(each.started, end))) for each, end in ends]


def hand_offs(history: WorkHistory, name: str) -> list[tuple[float, float]]:
    """From each release to the next start, if its request waited: the instant of the start, and the seconds.

    Only a run whose writes are known has the instants of releases: Step Functions lists the end of an execution later.
    """
    idle = [each for each in idle_times(history, name) if each.after_release] if history.versions_of(name) else []
    starts_at = {each.execution: each.started for each in history.by_process.get(name, [])}
    return [(at, at - each.began) for each in idle if (at := starts_at.get(each.taken_by)) is not None]


def _utilization(history: WorkHistory, name: str, attempts: Sequence[Attempt], window: Interval) -> float | None:
    capacity = 0.0
    for at, end, limit in limit_steps(history, name).intervals:
        length = overlap_seconds([(at, end)], window)
        if length and limit is None:
            return None
        capacity += length * (limit or 0)
    default = history.default_weight(name)
    used = math.fsum(
        overlap_seconds([span], window) * (history.weight_of(each.row) or default)
        for each, span in held(history, attempts)
    )
    return rounded(used / capacity) if capacity else None


def draw_history(history: WorkHistory, path: Path) -> None:
    """Draw the processes with most executions, two panels for each.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    attempts = history.attempts
    origin = max(history.since, min((each.started for each in attempts), default=history.since) - 1)
    end = min(history.until, max((each.stopped or history.now for each in attempts), default=history.until) + 1)
    _, unit, noun = next(each for each in UNITS if end - origin >= each[0])
    axis = _Axis(origin, end, unit)
    drawn = sorted(history.names, key=lambda name: -len(history.by_process.get(name, [])))[:MAX_DRAWN]
    panels = [panel for name in sorted(drawn) for panel in _panels(history, name, axis)]
    title = f"Slotkeeper, {local_time(origin)} to {local_time(end)}"
    chart.draw(path, title, f"{noun} since {local_time(origin)}", axis.at(end), panels)


class _Axis:
    def __init__(self, origin: float, end: float, unit: float) -> None:
        self._origin, self._end, self._unit = origin, end, unit

    def at(self, moment: float) -> float:
        """A moment on the axis, within what is drawn."""
        return (min(max(moment, self._origin), self._end) - self._origin) / self._unit


def _panels(history: WorkHistory, name: str, axis: _Axis) -> list[Panel]:
    own = history.by_process.get(name, [])
    lanes = {each.execution: lane for lane, each in enumerate(own[:MAX_LANES], start=1)}
    bars = [
        Bar(lanes[row.execution], axis.at(start), axis.at(end), chart.LIGHT, "waiting")
        for row, (start, end) in waits(history, name)
        if row.execution in lanes
    ]
    priorities = {each.priority for each in own}
    ends, inner = list[Point](), list[Bar]()  # kinds that are drawn later cover earlier ones
    works, shown = {each.execution: each for each in history.work}, held(history, own)
    for each, (start, end) in shown:
        if (lane := lanes.get(each.execution)) is None:
            continue
        bars.append(Bar(lane, axis.at(start), axis.at(each.stopped or history.now), *_workflow(each, priorities)))
        if work := works.get(each.execution):
            inner.append(Bar(lane, axis.at(work.started), axis.at(work.ended or history.now), chart.BLUE, work.kind))
        if each.has_failed:
            ends.append(Point(axis.at(each.stopped or end), lane, chart.VERMILLION, "end of a failed workflow"))
    more = f", the first {MAX_LANES:,} of {len(own):,}" if len(own) > MAX_LANES else ""
    title = f"{name}: {len(own):,} executions{more}"
    requests = chart.lanes_panel(title, "execution, in start order", len(lanes), [*bars, *inner], ends)
    slots = _slots_panel(history, name, [(history.weight_of(each.row) or 1, span) for each, span in shown], axis)
    gaps = [Point(axis.at(at), seconds, chart.BLUE, "", "o") for at, seconds in hand_offs(history, name)]
    title = f"{name}: from a release to the next start"
    draw_gaps = partial(chart.draw_points, points=gaps)
    return [requests, slots, *([Panel(title, "hand-off (s)", 1.5, [draw_gaps])] if gaps else [])]


def _workflow(attempt: Attempt, priorities: Collection[str | None]) -> tuple[str, str]:
    """The color and the label of its bar: with several priorities, that of its own."""
    if len(priorities) > 1 and attempt.priority:
        return _PRIORITIES[attempt.priority], f"workflow of {attempt.priority} priority"
    return chart.ORANGE, "workflow"


def _slots_panel(
    history: WorkHistory, name: str, used: Sequence[tuple[int, tuple[float, float]]], axis: _Axis
) -> Panel:
    counts = weighted_steps(((axis.at(start), axis.at(end)), weight) for weight, (start, end) in used)
    limits = [(axis.at(max(at, history.since)), limit or 0) for at, limit in limit_steps(history, name).steps]
    most = max([1, *(count for _, count in counts), *(limit for _, limit in limits)])
    marks = [
        Point(axis.at(act.at), most * 1.1, chart.VERMILLION, act.action, marker)
        for act in acts_of(history, name)
        if (marker := _MARKERS.get(act.action)) and history.since <= act.at <= history.until
    ]

    def draw_slots(axes: Axes) -> None:
        chart.draw_steps(axes, [(0.0, 0), *counts], axis.at(math.inf), chart.SKY, "slots in use", filled=True)
        chart.draw_steps(axes, limits, axis.at(math.inf), chart.VERMILLION, "limit")
        chart.draw_points(axes, marks)
        axes.set_ylim(0, most * 1.25)

    return Panel(f"{name}: slots in use, and the limit", "slots in use", 1.5, [draw_slots])
