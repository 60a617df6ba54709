"""The picture of a history of work: its requests and the slots in use over time, with what operators changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slotkeeper_cli import chart
from slotkeeper_cli.audit_figures import held
from slotkeeper_cli.chart import Bar, Panel, Point
from slotkeeper_cli.formatting import local_time
from slotkeeper_cli.free_slot_checks import waits
from slotkeeper_cli.intervals import weighted_steps
from slotkeeper_cli.limit_steps import acts_of, limit_steps
from slotkeeper_cli.work_history import WorkHistory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Processes with most executions that are drawn, and executions of each: in a larger picture they overlap.
MAX_DRAWN, MAX_LANES = 6, 2000
_UNITS = ((7200.0, 3600.0, "hours"), (600.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))


def draw_history(history: WorkHistory, path: Path) -> None:
    """Draw the processes with most executions, two panels for each.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    attempts = history.attempts
    origin = max(history.since, min((each.started for each in attempts), default=history.since) - 1)
    end = min(history.until, max((each.stopped or history.now for each in attempts), default=history.until) + 1)
    _, unit, noun = next(each for each in _UNITS if end - origin >= each[0])
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
        Bar(lanes[sending.execution], axis.at(start), axis.at(end), chart.LIGHT, "waiting")
        for sending, (start, end) in waits(history)
        if sending.execution in lanes
    ]
    ends, works, shown = [], {each.execution: each for each in history.work}, held(history, own)
    for each, (start, end) in shown:
        if (lane := lanes.get(each.execution)) is None:
            continue
        bars.append(Bar(lane, axis.at(start), axis.at(each.stopped or history.now), chart.ORANGE, "workflow"))
        if work := works.get(each.execution):
            bars.append(Bar(lane, axis.at(work.started), axis.at(end), chart.BLUE, work.kind))
        if each.has_failed:
            ends.append(Point(axis.at(each.stopped or end), lane, chart.VERMILLION, "end of a failed workflow"))
    more = f", the first {MAX_LANES:,} of {len(own):,}" if len(own) > MAX_LANES else ""
    title = f"{name}: {len(own):,} executions{more}"
    requests = chart.lanes_panel(title, "execution, in start order", len(lanes), bars, ends)
    return [requests, _slots_panel(history, name, [(each.weight or 1, span) for each, span in shown], axis)]


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


_MARKERS = {"process set-limit": "v", "process pause": "s", "process resume": ">", "process repair": "P"}
