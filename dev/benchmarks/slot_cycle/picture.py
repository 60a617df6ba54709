"""Two pictures: what a cycle takes beside bare writes, and what it is charged by how many hold a slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from dev.benchmarks.slot_cycle import reckoning
from dev.benchmarks.slot_cycle.course import Course, Extent
from dev.benchmarks.slot_cycle.crew import DESIGNS
from dev.benchmarks.slot_cycle.reckoning import LONG, SHORT, Names
from dev.benchmarks.slot_cycle.tables import middle_half
from dev.scenarios.runner.drawing import AMBER, BLUE, DPI, GREEN, GREY, INK, VERMILLION, WIDTH, beside
from slotkeeper_cli.write_units import demand

LOOK = {
    "slotkeeper": (BLUE, "-", "o"),
    "counter": (AMBER, "--", "s"),
    "transaction": (GREEN, "-.", "D"),
    "lock-client": (VERMILLION, ":", "^"),
}
COUNTS = sorted({round(500 ** (step / 60)) for step in range(61)})
_DASHED = (0, (4, 2))


def draw_cycles(course: Course, extent: Extent, most: float, path: Path) -> None:
    """A cycle in cycles of the floor."""
    figure = Figure(figsize=(WIDTH, 4.4), dpi=DPI, layout="constrained")
    panels = figure.subplots(1, len(extent.contenders), sharey=True, squeeze=False)[0]
    for axes, contenders in zip(panels, extent.contenders, strict=True):
        _frame(axes)
        for design, (color, line, mark) in LOOK.items():
            spreads = [course.ratios(design, holders, contenders) for holders in extent.holders]
            middles = [median(spread) for spread in spreads]
            halves = [middle_half(spread) for spread in spreads]
            around = [
                [middle - low for middle, (low, _) in zip(middles, halves, strict=True)],
                [high - middle for middle, (_, high) in zip(middles, halves, strict=True)],
            ]
            axes.errorbar(
                range(len(middles)), middles, around, color=color, linestyle=line, marker=mark, markersize=5,
                linewidth=2, elinewidth=1, capsize=2, label=DESIGNS[design].title,
            )  # fmt: skip
        axes.axhline(1, color=GREY, linewidth=1)
        axes.axhline(most, color=INK, linewidth=1, linestyle=_DASHED)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xticks(range(len(extent.holders)), [str(holders) for holders in extent.holders])
        axes.set_xlabel("holders beside")
        axes.set_title(f"{contenders} contender{'s' if contenders > 1 else ''}", loc="left")
    panels[0].set_ylabel("a cycle, in three bare writes of our item")
    beside(panels[-1], f"goal {most:.2f}", most, INK)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    figure.savefig(path)


def draw_units(path: Path) -> None:
    """What is charged, and how short jobs may be."""
    figure = Figure(figsize=(WIDTH, 4.6), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        _frame(axes)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(1, 500)
        axes.set_xticks([1, 10, 50, 100, 500])
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    _draw_charges(left)
    _draw_shortest(right)
    figure.savefig(path)


def _draw_charges(axes: Axes) -> None:
    designs: Sequence[tuple[str, Callable[[Names, int], float]]] = (
        ("slotkeeper", reckoning.ours),
        ("counter", reckoning.counter),
        ("transaction", reckoning.transaction),
        ("lock-client", lambda _, __: reckoning.lock_client(60)),
    )
    for design, units in designs:
        color, line, _ = LOOK[design]
        title = DESIGNS[design].title + (", a job of 60 s" if design == "lock-client" else "")
        axes.step(
            COUNTS, [units(SHORT, count) for count in COUNTS], where="post", color=color, linestyle=line, linewidth=2,
            label=title,
        )  # fmt: skip
        if design in ("slotkeeper", "counter"):
            longer = [units(LONG, count) for count in COUNTS]
            axes.step(COUNTS, longer, where="post", color=color, linestyle=line, linewidth=1, alpha=0.7)
    for names in (SHORT, LONG):
        crossed = reckoning.dearer_than(reckoning.ours, names, 9)
        if crossed is not None:
            axes.plot([crossed], [9], marker="o", color=INK, markersize=5)
            axes.annotate(str(crossed), (crossed, 9), (-4, 5), textcoords="offset points", ha="right", fontsize=9)
    axes.set_xlabel("holders beside")
    axes.set_ylabel("write units of a cycle")
    axes.set_title("Names of 6 characters (thin: 47)", loc="left")
    axes.legend(loc="upper left", frameon=False, fontsize=9)


def _draw_shortest(axes: Axes) -> None:
    for names, width, label in ((SHORT, 2, "names of 6 characters"), (LONG, 1, "names of 47")):
        seconds = [demand(*names, count).shortest_job for count in COUNTS]
        axes.plot(COUNTS, seconds, color=BLUE, linewidth=width, label=label)
    axes.axhline(60, color=INK, linewidth=1, linestyle=_DASHED)
    axes.text(1.1, 63, "a minute, the least that Glue bills", fontsize=8, color=INK, va="bottom")
    axes.set_xlabel("slots, all taken and others waiting")
    axes.set_ylabel("seconds that jobs must take at least")
    axes.set_title("To keep all slots of one item busy", loc="left")
    axes.legend(loc="lower right", frameon=False, fontsize=9)


def _frame(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
