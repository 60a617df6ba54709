"""The chart of a run: panels one below the other over the same seconds, drawn from the report alone.

Colours are of the Okabe-Ito palette, which colour-blind readers tell apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # needs no display

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

SKY, BLUE, ORANGE, AMBER, VERMILLION = "#A9D6F0", "#0072B2", "#F3C77B", "#E69F00", "#D55E00"
GREEN = "#009E73"
GREY, LIGHT, INK = "#8C8C8C", "#D9D9D9", "#222222"
DPI = 120
WIDTH = 11.0  # inches


@dataclass(frozen=True)
class Bar:
    """A stretch of time in a lane. Lanes count from 1; a label is in the legend once."""

    lane: int
    start: float
    end: float
    color: str
    label: str


@dataclass(frozen=True)
class Point:
    """An instant, at a height."""

    at: float
    height: float
    color: str
    label: str
    marker: str = "x"


@dataclass(frozen=True)
class Panel:
    """`height`: inches. Each of `draws` receives the axes."""

    title: str
    ylabel: str
    height: float
    draws: Sequence[Callable[[Axes], None]]


def lane_height(lanes: int) -> float:
    """Inches: a lane can be seen, and the chart is never a poster."""
    return min(9.0, max(1.6, 0.13 * lanes))


def draw_lanes(axes: Axes, lanes: int, bars: Iterable[Bar], points: Iterable[Point] = ()) -> None:
    """Bars in lanes, the first lane on top."""
    kinds: dict[tuple[str, str], list[Bar]] = defaultdict(list)
    for bar in bars:
        kinds[bar.color, bar.label].append(bar)
    width = max(0.7, min(9.0, 55 * lane_height(lanes) / max(1, lanes)))
    for (color, label), some in kinds.items():
        segments = [[(bar.start, bar.lane), (bar.end, bar.lane)] for bar in some]
        axes.add_collection(
            LineCollection(segments, colors=color, linewidths=width, capstyle="butt", label=label or None)
        )
    draw_points(axes, points)
    axes.set_ylim(max(1, lanes) + 0.8, 0.2)


def name_lanes(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(1, len(names) + 1), names, fontsize=8)


def draw_instant(axes: Axes, at: float) -> None:
    axes.axvline(at, color=GREY, linestyle=":")


def draw_points(axes: Axes, points: Iterable[Point]) -> None:
    kinds: dict[tuple[str, str, str], list[Point]] = defaultdict(list)
    for point in points:
        kinds[point.color, point.label, point.marker].append(point)
    for (color, label, marker), some in kinds.items():
        xs, ys = [point.at for point in some], [point.height for point in some]
        axes.scatter(xs, ys, marker=marker, s=22, color=color, linewidths=1.2, zorder=3, label=label or None)


def draw_steps(
    axes: Axes, steps: Sequence[tuple[float, int]], end: float, color: str, label: str, *, filled: bool = False
) -> None:
    """How many from each instant on, until `end`."""
    whole = [*steps, (end, steps[-1][1])] if steps else []
    xs, ys = [x for x, _ in whole], [y for _, y in whole]
    if filled:
        axes.fill_between(xs, ys, step="post", color=color, alpha=0.7, linewidth=0, label=label)
    else:
        axes.step(xs, ys, where="post", color=color, linewidth=1.2, label=label)


def draw_limit(axes: Axes, limit: float, highest: float) -> None:
    axes.axhline(limit, color=VERMILLION, linestyle="--", linewidth=1.4)
    line_label(axes, f"limit {limit:g}", limit, VERMILLION)
    axes.set_ylim(0, max(limit, highest) * 1.18)


def line_label(axes: Axes, text: str, height: float, color: str) -> None:
    """A label to the right of the axes, at the height of the line that it names."""
    axes.text(1.005, height, text, transform=axes.get_yaxis_transform(), va="center", color=color, fontsize=9)


def draw(path: Path, title: str, xlabel: str, end: float, panels: Sequence[Panel]) -> None:
    """Write the PNG; `end`: the last second that is shown."""
    heights = [panel.height + 0.5 for panel in panels]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.9), dpi=DPI, layout="constrained")
    rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    legend: dict[str, Any] = {}
    for axes, panel in zip(rows, panels, strict=True):
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        for draw_part in panel.draws:
            draw_part(axes)
        axes.set_title(panel.title, loc="left", fontsize=11)
        axes.set_ylabel(panel.ylabel)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color="#E5E5E5", linewidth=0.7)
        axes.set_axisbelow(True)
        legend |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    rows[0].set_xlim(0, (end or 1.0) * 1.01)
    rows[-1].set_xlabel(xlabel)
    figure.legend(legend.values(), legend.keys(), loc="outside upper left", ncols=5, frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Title": title})
