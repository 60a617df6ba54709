"""The hand-off as a picture: who held which slot when, for the four ways one above the other, and the hand-offs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dev.scenarios.runner.drawing import AMBER, BLUE, DPI, GREEN, GREY, INK, VERMILLION, WIDTH
from dev.scenarios.slots.figures import Interval

COLORS = (BLUE, GREEN, AMBER, VERMILLION)


@dataclass(frozen=True)
class Shown:
    """One way. `bars`: (slot, from, to) in seconds since its first start; `gaps`: its hand-offs."""

    label: str
    slots_used: float
    bars: Sequence[tuple[int, float, float]]
    gaps: Sequence[float]
    expected: float | None


def draw(ways: Sequence[Shown], limit: int, seconds: float, path: Path) -> None:
    """Writes the PNG. `seconds`: how much of each way's time is shown."""
    figure = Figure(figsize=(WIDTH, 1.15 * len(ways) + 4.2), dpi=DPI, layout="constrained")
    grid = figure.add_gridspec(len(ways) + 1, 1, height_ratios=[1.0] * len(ways) + [2.4])
    first: Axes | None = None
    for number, (way, color) in enumerate(zip(ways, COLORS, strict=True)):
        axes = figure.add_subplot(grid[number], sharex=first)
        first = first or axes
        _draw_slots(axes, way, color, limit, seconds)
        axes.tick_params(labelbottom=number == len(ways) - 1)
        if number == len(ways) - 1:
            axes.set_xlabel("seconds since the way's first start, with a queue that never ends")
    keys = _draw_gaps(figure.add_subplot(grid[len(ways)]), ways)
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Title": "Slotkeeper: hand-off"})


def _draw_slots(axes: Axes, way: Shown, color: str, limit: int, seconds: float) -> None:
    for slot in range(limit):
        mine = sorted((start, end - start) for at, start, end in way.bars if at == slot)
        # Neighbours in two tones, or a busy slot would be one bar.
        tones = [color if number % 2 else _lighter(color) for number in range(len(mine))]
        axes.broken_barh(mine, (slot + 0.58, 0.84), facecolors=tones, linewidth=0)
    axes.set_ylim(limit + 0.55, 0.45)
    axes.set_yticks(range(1, limit + 1))
    axes.set_ylabel("slot")
    axes.set_xlim(0, seconds)
    axes.set_title(f"{way.label}: {way.slots_used:.1%} of the slot time used", loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)


def _lighter(color: str) -> tuple[float, float, float]:
    red, green, blue = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return (red * 0.55 + 0.45, green * 0.55 + 0.45, blue * 0.55 + 0.45)


def _draw_gaps(axes: Axes, ways: Sequence[Shown]) -> list[Line2D]:
    """Returns the keys of the legend."""
    keys: list[Line2D] = []
    for way, color in zip(ways, COLORS, strict=True):
        gaps = [max(gap, 0.001) for gap in sorted(way.gaps)]  # a logarithm has no place for what took no time
        shares = [(number + 1) / len(gaps) for number in range(len(gaps))]
        if gaps:
            axes.step([gaps[0], *gaps], [0.0, *shares], where="post", color=color, linewidth=2.0)
        keys.append(Line2D([], [], color=color, linewidth=2.0, label=f"{way.label} ({len(gaps)})"))
        if way.expected is not None:
            axes.axvline(way.expected, color=color, linewidth=1.0, linestyle=":")
    keys.append(Line2D([], [], color=GREY, linewidth=1.0, linestyle=":", label="expected by arithmetic"))
    for seconds, share, text in ((1.0, 0.5, "goal: median"), (2.0, 0.99, "goal: 99%")):
        axes.plot(seconds, share, marker="<", color=INK, markersize=7)
        axes.annotate(
            text, (seconds, share), xytext=(-7, -3), textcoords="offset points", ha="right", fontsize=9, color=INK
        )
    axes.set_xscale("log")
    axes.set_xlim(0.001, 400)
    ticks = [0.001, 0.01, 0.1, 1, 10, 100]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(0, 1.04)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0], ["0%", "25%", "50%", "75%", "100%"])
    axes.set_xlabel("from a release to the next start (s, logarithmic)")
    axes.set_ylabel("hand-offs within")
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        "How long a freed slot stays empty; in brackets, of how many hand-offs",
        loc="left",
        fontsize=11,
    )
    return keys


def bars(placed: Sequence[tuple[int, str, Interval]], origin: float, seconds: float) -> list[tuple[int, float, float]]:
    """What is to be seen of the lanes between `origin` and `seconds` later."""
    return [
        (slot, start - origin, min(end - origin, seconds))
        for slot, _, (start, end) in placed
        if start - origin < seconds
    ]
