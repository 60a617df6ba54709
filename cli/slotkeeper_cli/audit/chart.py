"""The chart of a run: panels one below the other over the same seconds, drawn from the report alone.

The colours are of the Okabe-Ito palette, which colour-blind readers can distinguish.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SKY, BLUE, ORANGE, AMBER, VERMILLION = "#A9D6F0", "#0072B2", "#F3C77B", "#E69F00", "#D55E00"
GREEN = "#009E73"
GREY, SILVER, LIGHT, INK = "#8C8C8C", "#C4C4C4", "#D9D9D9", "#222222"
DPI = 120
WIDTH = 11.0  # inches


@dataclass(frozen=True)
class Bar:
    """A time in a lane. Lanes count from 1. Each label is in the legend once."""

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
    draws: Sequence[Callable[[Axes], object]]


def lanes_panel(title: str, ylabel: str, lanes: int, bars: Iterable[Bar], points: Iterable[Point] = ()) -> Panel:
    """Bars in lanes, the first lane on top."""
    lanes = max(1, lanes)
    height = min(9.0, max(1.6, 0.13 * lanes))  # a lane is visible, and the chart fits a screen
    width = max(0.7, min(9.0, 55 * height / lanes))
    kinds: dict[tuple[str, str], list[Bar]] = defaultdict(list)
    for bar in bars:
        kinds[bar.color, bar.label].append(bar)

    def draw_bars(axes: Axes) -> None:
        for (color, label), some in kinds.items():
            ys, starts, ends = ([getattr(bar, name) for bar in some] for name in ("lane", "start", "end"))
            axes.hlines(ys, starts, ends, colors=color, linewidths=width, label=label, capstyle="butt")
        draw_points(axes, points)
        axes.set_ylim(lanes + 0.8, 0.2)

    return Panel(title, ylabel, height, [draw_bars])


def draw_points(axes: Axes, points: Iterable[Point]) -> None:
    kinds: dict[tuple[str, str, str], list[Point]] = defaultdict(list)
    for point in points:
        kinds[point.color, point.label, point.marker].append(point)
    for (color, label, marker), some in kinds.items():
        xs, ys = [point.at for point in some], [point.height for point in some]
        axes.scatter(xs, ys, marker=marker, s=22, color=color, linewidths=1.2, zorder=3, label=label or None)


def draw_steps(
    axes: Axes, counts: Sequence[tuple[float, int]], end: float, color: str, label: str, *, filled: bool = False
) -> None:
    """A count from each instant to the next one, and the last until `end`."""
    whole = [*counts, (end, counts[-1][1])] if counts else []
    xs, ys = [x for x, _ in whole], [y for _, y in whole]
    if filled:
        axes.fill_between(xs, ys, step="post", color=color, alpha=0.7, linewidth=0, label=label)
    else:
        axes.step(xs, ys, where="post", color=color, linewidth=1.2, label=label)


def draw(path: Path, title: str, xlabel: str, end: float, panels: Sequence[Panel]) -> None:
    """Write the PNG. `end`: the last second that is shown.

    Raises:
        ImportError: matplotlib is not installed. It is an extra, and no other part of the command needs it.
    """
    # A figure without pyplot needs no display.
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

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
