"""The tables and the chart of `make run PRIORITIES=yes`, from its report alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from rich.table import Table

from dev.scenarios.runner.scenario import counts_text, figure_table, list_table, spread_text
from slotkeeper_cli import chart
from slotkeeper_cli.chart import Block, Panel, Point
from slotkeeper_cli.intervals import weighted_steps

COLORS = {"high": chart.VERMILLION, "normal": chart.BLUE, "low": chart.SKY}


def tables(report: Mapping[str, Any]) -> list[Table]:
    passed = report["passed"]
    rows = {
        "requests": report["requests"],
        "succeeded": report["succeeded"],
        "failed": report["failed"],
        "dead-lettered": counts_text(_tally(message["error"] for message in report["dead_lettered"])),
        "most weight in use": _of_limits(report),
        **{f"wait of {name} requests": spread_text(wait) for name, wait in report["waits"].items()},
        "hand-off": spread_text(report["handoff"], "no request had to wait"),
        "urgent requests that waited": f"{len(passed)}, passed by {sum(passed.values())} of lower priority",
        "starts ahead of a higher priority": f"{report['ahead']}; its message was queued and not delivered yet",
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
    waits, workflows, marks, top = [], [], [], 0.0
    for each in ordered:
        weight, started = each["weight"], _first(each["started"], each["ended"], end)
        blocked = min(each["blocked_until"] or each["sent"], started)
        waits.append(Block(top, weight, blocked, started, chart.PALE, "waits"))
        waits.append(Block(top, weight, each["sent"], blocked, chart.SILVER, "blocked: heavier than the limit"))
        if each["started"] is not None:
            color, label = COLORS[each["priority"]], _label(each["priority"])
            workflows.append(Block(top, weight, started, _first(each["ended"], end), color, label))
        if each["end"] not in ("SUCCEEDED", None):
            text = "cancelled" if each["end"] == "CANCELLED" else "failed"
            marks.append(Point(_first(each["ended"], end), top + weight / 2, chart.INK, text))
        top += weight
    workflows.sort(key=lambda block: [_label(priority) for priority in COLORS].index(block.label))
    heavy = sum(each["weight"] > 1 for each in ordered)
    return Panel(
        f"{report['requests']} requests in the order of their starts. The height is the weight; {heavy} are heavy",
        "requests",
        min(8.0, max(2.5, 0.1 * top)),
        [
            lambda axes: chart.draw_blocks(axes, [*waits, *workflows]),
            lambda axes: chart.draw_points(axes, marks),
            lambda axes: axes.set_ylim(top + 0.5, -0.5),
            chart.without_ticks,
        ],
    )


def _in_use(report: Mapping[str, Any], end: float) -> Panel:
    """From each start to the entry into ReleaseSlot, for which a workflow surely holds its slots."""
    counts = {
        _label(priority): (
            color,
            weighted_steps(
                ((each["started"], _first(each["released"], each["ended"], end)), each["weight"])
                for each in report["timeline"]
                if each["priority"] == priority and each["started"] is not None
            ),
        )
        for priority, color in COLORS.items()
    }
    limits = report["limits"]
    most = [(each["held"], limit) for each, (_, limit) in zip(report["most_weight"], limits, strict=True)]
    verdict = "never more than the limit" if all(held <= limit for held, limit in most) else "ABOVE the limit"
    return Panel(
        f"Weight in use: {verdict}; at most {_of_limits(report)}",
        "weight in use",
        2.2,
        [
            lambda axes: chart.draw_stacked(axes, counts, end),
            lambda axes: chart.draw_steps(axes, limits, end, chart.INK, "limit"),
            lambda axes: axes.set_ylim(0, max(max(pair) for pair in most) * 1.15),
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


def _label(priority: str) -> str:
    return f"{priority} priority"


def _of_limits(report: Mapping[str, Any]) -> str:
    """The most weight in use, before and after the limit was raised."""
    most = zip(report["most_weight"], report["limits"], strict=True)
    return ", then ".join(f"{each['held']} of {limit}" for each, (_, limit) in most)


def _first(*instants: float | None) -> float:
    return next(instant for instant in instants if instant is not None)
