"""The chart of `make run-worker`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dev.emulator.live_view import counted
from slotkeeper_cli.audit import chart
from slotkeeper_cli.audit.chart import Bar, Panel
from slotkeeper_cli.audit.intervals import weighted_steps

from .worker_records import Records, RequestOutcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CALLS = {  # answer: colour, meaning
    "200": (chart.BLUE, "answered"),
    "gone": (chart.VERMILLION, "too slow, given up"),
    "503": (chart.AMBER, "503"),
    "500": (chart.ORANGE, "500 InternalError"),
    "dropped": (chart.INK, "connection dropped"),
    "404": (chart.GREY, "404, no such input"),
    "None": (chart.GREY, "not ended"),
}
OTHER = (chart.GREY, "other answers")
STATES = {
    "CLOSED": (chart.GREEN, "breaker closed"),
    "HALF_OPEN": (chart.AMBER, "probe under way"),
    "OPEN": (chart.VERMILLION, "breaker open"),
}
OUTAGE = (chart.LIGHT, "outage of the downstream")


def draw(
    report: Mapping[str, Any], records: Records, outcomes: Sequence[RequestOutcome], origin: float, path: Path
) -> None:
    """The callers, the breaker, the backlog, and the calls by answer."""
    end, outage = report["total_seconds"], report["outage"]
    calls = [
        Bar(
            1,
            call.began - origin,
            end if call.ended is None else call.ended - origin,
            *CALLS.get(str(call.answer), OTHER),
        )
        for each in outcomes
        for call in each.calls
    ]
    panels = [_callers(report, records, calls, origin), *_health(records, origin, end), _answers(report, calls)]
    if outage:

        def shade(axes: Axes) -> None:
            color, label = OUTAGE
            began, ended = outage["began"], outage["ended"]
            axes.axvspan(began, ended, color=color, alpha=0.5, linewidth=0, zorder=0, label=label)

        panels = [replace(panel, draws=[shade, *panel.draws]) for panel in panels]
    chart.draw(path, "Slotkeeper: the worker", "seconds since the first request was sent", end, panels)


def _callers(report: Mapping[str, Any], records: Records, calls: Sequence[Bar], origin: float) -> Panel:
    end, limit, most = report["total_seconds"], report["parameters"]["workers"], report["most_callers"]
    title = f"At most {most} concurrent callers: {'within' if most <= limit else 'ABOVE'} the limit of {limit}"
    counts = [(0.0, 0), *weighted_steps(((each.start, each.end), 1) for each in calls)]
    permitted = [(each.at - origin, each.permitted) for each in records.samples]

    def draw_callers(axes: Axes) -> None:
        chart.draw_steps(axes, counts, end, chart.SKY, "calls", filled=True)
        chart.draw_steps(axes, permitted, end, chart.INK, "permitted callers")
        axes.axhline(limit, color=chart.VERMILLION, linestyle="--", linewidth=1.4)
        beyond = axes.get_yaxis_transform()
        axes.text(1.005, limit, f"limit {limit}", transform=beyond, va="center", color=chart.VERMILLION, fontsize=9)
        axes.set_ylim(0, max(limit, most) * 1.18)

    return Panel(title, "callers", 1.5, [draw_callers])


def _health(records: Records, origin: float, end: float) -> list[Panel]:
    """The breaker's state and the backlog. Both are read about each second, so a short probe can be missing."""
    samples = records.samples
    ends = [*(each.at - origin for each in samples[1:]), end]
    states = [Bar(1, each.at - origin, until, *STATES[each.breaker]) for each, until in zip(samples, ends, strict=True)]
    most = max((each.backlog for each in samples), default=0)
    backlog = [(each.at - origin, each.backlog) for each in samples]

    def draw_backlog(axes: Axes) -> None:
        chart.draw_steps(axes, backlog, end, chart.SKY, "messages on the queue", filled=True)
        axes.set_ylim(bottom=0)

    breaker = chart.lanes_panel("The circuit breaker", "", 1, states)
    return [
        replace(breaker, height=0.3, draws=[*breaker.draws, lambda axes: axes.set_yticks([])]),
        Panel(f"At most {counted(most, 'message')} on the queue", "messages", 1.3, [draw_backlog]),
    ]


def _answers(report: Mapping[str, Any], calls: Sequence[Bar]) -> Panel:
    """A lane for each answer."""
    labels = [label for _, label in (*CALLS.values(), OTHER) if any(bar.label == label for bar in calls)]
    lanes = [replace(bar, lane=labels.index(bar.label) + 1) for bar in calls]
    during = f", {report['outage']['calls']} of them in the outage" if report["outage"] else ""
    ends = f"{report['succeeded']} requests succeeded, {report['dead_lettered']} dead-lettered"
    title = f"{counted(len(calls), 'call')} by answer{during}; {ends}"
    panel = chart.lanes_panel(title, "", len(labels), lanes)

    def name_lanes(axes: Axes) -> None:
        axes.set_yticks(range(1, len(labels) + 1), labels, fontsize=8)

    return replace(panel, height=0.25 * max(2, len(labels)), draws=[*panel.draws, name_lanes])
