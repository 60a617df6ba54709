"""The tables and the chart of `make run PRIORITIES=yes`, from its report alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from rich.table import Table

from dev.scenarios.runner import chart
from dev.scenarios.runner.chart import Block, Panel, Point
from dev.scenarios.runner.intervals import weighted_steps
from dev.scenarios.runner.scenario import counts_text, figure_table, list_table, spread_text

COLORS = {"high": chart.VERMILLION, "normal": chart.BLUE, "low": chart.SKY}


def tables(report: Mapping[str, Any]) -> list[Table]:
    most = (
        f"{each['held']} of {limit}" for each, (_, limit) in zip(report["most_weight"], report["limits"], strict=True)
    )
    passed = report["passed"]
    rows = {
        "requests": report["requests"],
        "succeeded": report["succeeded"],
        "failed": report["failed"],
        "dead-lettered": counts_text(_tally(message["error"] for message in report["dead_lettered"])),
        "most weight in use": ", then ".join(most),
        **{f"wait of {name} requests": spread_text(wait) for name, wait in report["waits"].items()},
        "hand-off": spread_text(report["handoff"], "no request had to wait"),
        "urgent requests that waited": f"{len(passed)}, passed by {sum(passed.values())} of lower priority",
        "slots in use at the end": report["slots_in_use_at_end"],
        "total time": f"{report['total_seconds']:.2f} s",
    }
    ends = (
        (message["request_id"], message["error"] or "none", message["reason"] or "none")
        for message in chain(report["kept"], report["dead_lettered"])
    )
    return [
        figure_table("The run, by Step Functions' and Glue's own records", rows),
        *list_table("Kept or dead-lettered", ("request", "error", "reason"), ends),
    ]


def _tally(names: Iterable[str]) -> dict[str, int]:
    listed = list(names)
    return {name: listed.count(name) for name in sorted(set(listed))}


def draw(report: Mapping[str, Any], path: Path) -> None:
    """A block for each request, whose height is its weight; the weight in use by priority; the hand-offs."""
    end = report["total_seconds"]
    panels = [_requests(report, end), _in_use(report, end), _handoffs(report)]
    chart.draw(path, "Slotkeeper: priorities and weights", "seconds since the first request was sent", end, panels)


def _requests(report: Mapping[str, Any], end: float) -> Panel:
    """In the order of their starts. A request that did not start is at the time of its end."""
    ordered = sorted(report["timeline"], key=lambda each: _first(each["started"], each["ended"], end))
    blocks, marks, top = [], [], 0.0
    for each in ordered:
        weight, started = each["weight"], _first(each["started"], each["ended"], end)
        blocked = min(each["blocked_until"] or each["sent"], started)
        blocks.append(Block(top, weight, each["sent"], blocked, chart.SILVER, "heavier than the limit"))
        blocks.append(Block(top, weight, blocked, started, chart.PALE, "waits"))
        if each["started"] is not None:
            label = f"{each['priority']} priority: its workflow"
            blocks.append(Block(top, weight, started, _first(each["ended"], end), COLORS[each["priority"]], label))
        if each["end"] not in ("SUCCEEDED", None):
            text = "cancelled" if each["end"] == "CANCELLED" else "failed"
            marks.append(Point(_first(each["ended"], end), top + weight / 2, chart.INK, text, "x"))
        top += weight
    heavy = sum(each["weight"] > 1 for each in ordered)
    return Panel(
        f"{report['requests']} requests in the order of their starts, {heavy} of them heavy: the height is the weight",
        "requests",
        min(8.0, max(2.5, 0.1 * top)),
        [
            lambda axes: chart.draw_blocks(axes, blocks),
            lambda axes: chart.draw_points(axes, marks),
            lambda axes: axes.set_ylim(top + 0.5, -0.5),
            chart.without_ticks,
        ],
    )


def _in_use(report: Mapping[str, Any], end: float) -> Panel:
    counts = {
        f"{priority} priority: its workflow": (
            color,
            weighted_steps(
                ((each["started"], _first(each["ended"], end)), each["weight"])
                for each in report["timeline"]
                if each["priority"] == priority and each["started"] is not None
            ),
        )
        for priority, color in COLORS.items()
    }
    limits = [(at, limit) for at, limit in report["limits"]]
    most = [each["held"] for each in report["most_weight"]]
    is_above = any(value > limit for value, (_, limit) in zip(most, limits, strict=True))
    return Panel(
        f"Weight in use: {'ABOVE the limit' if is_above else 'at most the limit'}, "
        f"{', then '.join(f'{value} of {limit}' for value, (_, limit) in zip(most, limits, strict=True))}",
        "weight in use",
        2.2,
        [
            lambda axes: chart.draw_stacked(axes, counts, end),
            lambda axes: chart.draw_steps(axes, limits, end, chart.INK, "limit"),
            lambda axes: axes.set_ylim(0, max(limit for _, limit in limits) * 1.15),
        ],
    )


def _handoffs(report: Mapping[str, Any]) -> Panel:
    points = [Point(each["at"], each["seconds"], COLORS[each["priority"]], "", "o") for each in report["handoffs"]]
    handoff = report["handoff"]
    median = f"{handoff['median']:.2f} s (median of {handoff['count']})" if points else "none"
    return Panel(
        f"From a release to the start of the request that had the turn: {median}",
        "hand-off (s)",
        1.5,
        [lambda axes: chart.draw_points(axes, points), lambda axes: axes.set_ylim(bottom=0)],
    )


def _first(*instants: float | None) -> float:
    return next(instant for instant in instants if instant is not None)
