"""The run as a picture: who held a slot when, how many were in use, how fast a freed slot was taken again.

Drawn from the report alone, so the picture can be made again from report.json. A failed workflow is marked by hatching
and a cross as well as by its colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dev.scenarios.runner.drawing import BLUE, DPI, INK, ORANGE, SKY, VERMILLION, WIDTH, beside

from .figures import steps


def height(workflows: int) -> float:
    """Inches: enough for a bar to be seen, and never a poster."""
    return 5.2 + min(9.0, max(1.6, 0.13 * workflows))


def slot_ticks(limit: int, top: int) -> list[int]:
    """Round numbers from 0 to `top`, and always the limit, which takes the place of those too near to it to be read."""
    even = (round(tick) for tick in MaxNLocator(integer=True, nbins=5).tick_values(0, top))
    return sorted({limit, *(tick for tick in even if 0 <= tick <= top and abs(tick - limit) > 0.1 * top)})


def _spans(workflows: Sequence[Mapping[str, Any]], begin: str, end: str) -> tuple[list[int], list[float], list[float]]:
    """(row, left, width) of each workflow that has both instants."""
    rows, lefts, widths = [], [], []
    for row, workflow in enumerate(workflows, 1):
        if workflow[begin] is not None and workflow[end] is not None:
            rows.append(row)
            lefts.append(workflow[begin])
            widths.append(workflow[end] - workflow[begin])
    return rows, lefts, widths


def _draw_workflows(axes: Axes, report: Mapping[str, Any]) -> None:
    workflows = report["workflows"]
    good = [w if w["status"] == "SUCCEEDED" else {**w, "started": None, "glue_entered": None} for w in workflows]
    bad = [w if w["status"] != "SUCCEEDED" else {**w, "started": None, "glue_entered": None} for w in workflows]
    for chosen, outer, inner, hatch in ((good, SKY, BLUE, ""), (bad, ORANGE, VERMILLION, "////")):
        rows, lefts, widths = _spans(chosen, "started", "stopped")
        axes.barh(rows, widths, left=lefts, height=0.86, color=outer, linewidth=0)
        rows, lefts, widths = _spans(chosen, "glue_entered", "glue_exited")
        axes.barh(rows, widths, left=lefts, height=0.86, color=inner, linewidth=0, hatch=hatch, edgecolor="white")
    crosses = [(w["stopped"], row) for row, w in enumerate(bad, 1) if w["started"] is not None and w["stopped"]]
    size = 30 if len(workflows) <= 80 else 16
    axes.scatter(
        [x for x, _ in crosses], [y for _, y in crosses], marker="x", s=size, color=INK, linewidths=1.3, zorder=3
    )
    axes.set_ylim(len(workflows) + 0.8, 0.2)  # the first request on top
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
    axes.set_ylabel("workflow, in start order")
    keys: list[Patch | Line2D] = [
        Patch(color=BLUE, label="Glue job"),
        Patch(color=SKY, label="rest of the workflow"),
    ]
    if crosses:
        failed = Patch(facecolor=VERMILLION, edgecolor="white", hatch="////", label="Glue job that failed")
        keys += [failed, Line2D([], [], color=INK, marker="x", linestyle="", label="end of a failed workflow")]
    axes.legend(handles=keys, loc="lower left", frameon=False, fontsize=9)
    order = "in message order" if report["starts_in_message_order"] else "NOT in message order"
    ended = f"{report['succeeded']} succeeded, {report['failed']} failed"
    if report["dead_lettered"]:
        ended += f", {len(report['dead_lettered'])} dead-lettered"
    limit = report["parameters"]["limit"]
    axes.set_title(f"{len(workflows)} workflows through {limit} slots, started {order}: {ended}", loc="left")


def _draw_slots(axes: Axes, report: Mapping[str, Any]) -> None:
    limit, end = report["parameters"]["limit"], report["total_seconds"] or 0.0
    held = [(w["started"], end if w["release_entered"] is None else w["release_entered"]) for w in report["workflows"]]
    changes = [(0.0, 0), *steps(held)]
    axes.step([x for x, _ in changes], [y for _, y in changes], where="post", color=BLUE, linewidth=1.2)
    axes.fill_between([x for x, _ in changes], [y for _, y in changes], step="post", color=SKY, alpha=0.7, linewidth=0)
    axes.axhline(limit, color=VERMILLION, linestyle="--", linewidth=1.4)
    beside(axes, f"limit {limit}", limit, VERMILLION)
    most = report["max_slots_held"]
    axes.set_ylim(0, max(limit, most) * 1.18)
    axes.set_yticks(slot_ticks(limit, max(limit, most)))
    axes.set_ylabel("slots in use")
    use = report["slot_utilisation"]
    busy = "" if use is None else f"; {use:.0%} of the slot time used while requests waited"
    word = "Never more than" if most <= limit else "OVER the limit: up to"
    axes.set_title(f"{word} {most} of {limit} slots in use{busy}", loc="left")


def _draw_handoffs(axes: Axes, side: Axes, report: Mapping[str, Any]) -> None:
    gaps = [handoff["seconds"] for handoff in report["handoffs"]]
    axes.set_ylabel("hand-off gap (s)")
    side.set_xlabel("hand-offs")
    if not gaps:
        axes.set_title("No request had to wait for a slot: nothing was handed off", loc="left")
        return
    median, figures = report["handoff"]["median"], report["handoff"]
    axes.scatter([h["released"] for h in report["handoffs"]], gaps, s=14, color=BLUE, alpha=0.75, linewidths=0)
    for each in (axes, side):
        each.axhline(median, color=INK, linewidth=1.0, linestyle=":")
        each.set_ylim(0, max(gaps) * 1.15 or 1.0)
    side.hist(
        gaps, bins=20, range=(0, max(gaps) or 1.0), orientation="horizontal", color=SKY, edgecolor=BLUE, linewidth=0.6
    )
    beside(axes, "median", median, INK)
    axes.set_title(
        f"A freed slot is taken again after {median:.2f} s (median of {figures['count']}; "
        f"99% within {figures['p99']:.2f} s)",
        loc="left",
    )


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Writes the PNG. Needs the report's `workflows` and `handoffs`; without workflows it says so in the picture."""
    tall = height(len(report["workflows"]))
    figure = Figure(figsize=(WIDTH, tall), dpi=DPI, layout="constrained")
    grid = figure.add_gridspec(3, 2, height_ratios=[tall - 4.2, 1.7, 1.9], width_ratios=[8, 1])
    top = figure.add_subplot(grid[0, 0])
    middle = figure.add_subplot(grid[1, 0], sharex=top)
    bottom = figure.add_subplot(grid[2, 0], sharex=top)
    side = figure.add_subplot(grid[2, 1], sharey=bottom)
    _draw_workflows(top, report)
    _draw_slots(middle, report)
    _draw_handoffs(bottom, side, report)
    for axes in (top, middle, bottom, side):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(11)
    for axes in (top, middle):
        axes.tick_params(labelbottom=False)
        axes.grid(axis="x", color="#E5E5E5", linewidth=0.7)
        axes.set_axisbelow(True)
    side.tick_params(labelleft=False)
    top.set_xlim(0, (report["total_seconds"] or 1.0) * 1.01)
    bottom.set_xlabel("seconds since the first request was sent")
    figure.savefig(path, metadata={"Title": "Slotkeeper run"})
