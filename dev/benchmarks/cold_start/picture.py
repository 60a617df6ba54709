"""The picture: what each function's import is made of, beside that of its bare handler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from dev.benchmarks.cold_start.breakdown import GROUPS
from dev.scenarios.runner.drawing import AMBER, BLUE, DPI, GREEN, GREY, INK, ORANGE, SKY, VERMILLION, WIDTH

EMPTY = "Python and the runtime's client"
COLORS = {EMPTY: "#D9D9D9"} | dict(zip(GROUPS, (GREY, SKY, BLUE, ORANGE, AMBER, GREEN, VERMILLION, INK), strict=True))
LABELS = {"boto3": "import of boto3", "clients": "making clients", "function": "the function's own files"}


def draw(functions: Mapping[str, Mapping[str, float]], bare: Mapping[str, float], path: Path) -> None:
    """`functions`: group -> seconds of processor time. `bare`: those of the bare handler."""
    figure = Figure(figsize=(WIDTH, 4.4), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    names = list(functions)
    heights = range(len(names))
    left = [0.0] * len(names)
    for group in COLORS:
        widths = [1000 * functions[name].get(group, 0.0) for name in names]
        axes.barh(heights, widths, 0.62, left=left, color=COLORS[group], label=LABELS.get(group, group))
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for height, name in enumerate(names):
        axes.plot([1000 * bare[name]] * 2, [height - 0.4, height + 0.4], color=INK, linewidth=2)
        axes.plot([1250 * bare[name]] * 2, [height - 0.4, height + 0.4], color=INK, linewidth=1, linestyle=(0, (3, 2)))
    axes.plot([], [], color=INK, linewidth=2, label="the bare handler")
    axes.plot([], [], color=INK, linewidth=1, linestyle=(0, (3, 2)), label="1.25 x that")
    axes.set_yticks(heights, _words(names))
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of processor time in the init phase")
    axes.set_title("What a cold start spends its time on", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    figure.savefig(path)


def _words(names: Sequence[str]) -> list[str]:
    return [name.replace("_", " ") for name in names]
