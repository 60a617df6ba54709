"""The picture of the outage: a column per design, drawn from the samples in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from slotkeeper_cli.audit.chart import BLUE, DPI, GREEN, GREY, LIGHT, SKY, VERMILLION

ROWS = ("permitted callers", "calls per second", "messages")


def draw(
    path: Path, columns: Mapping[str, Sequence[Mapping[str, float]]], capacity: Sequence[tuple[float, int]]
) -> None:
    """Write the PNG.

    Args:
        columns: the samples of each design.
        capacity: (from this second on, callers) of the downstream.
    """
    figure = Figure(figsize=(4.2 * len(columns), 6.5), dpi=DPI, layout="constrained")
    axes: Any = figure.subplots(len(ROWS), len(columns), sharex=True, sharey="row", squeeze=False)
    end = max(sample["at"] for samples in columns.values() for sample in samples)
    seconds, callers = zip(*capacity, (end, capacity[-1][1]), strict=True)
    down = [(since, until) for (since, count), until in zip(capacity, seconds[1:], strict=True) if not count]
    for column, (design, samples) in enumerate(columns.items()):
        limits, rates, backlog = axes[:, column]
        times = [sample["at"] for sample in samples]
        limits.step(seconds, callers, where="post", color=GREY, linestyle="--", label="capacity")
        limits.step(times, [sample["permitted"] for sample in samples], where="post", color=BLUE, label="permitted")
        rates.plot(times, [sample["failed"] for sample in samples], color=VERMILLION, label="refused", linewidth=1)
        rates.plot(times, [sample["succeeded"] for sample in samples], color=GREEN, label="succeeded")
        backlog.fill_between(times, [sample["backlog"] for sample in samples], color=SKY, label="waiting")
        limits.set_title(design, loc="left", fontsize=11)
        backlog.set_xlabel("seconds")
        for panel in axes[:, column]:
            panel.spines[["top", "right"]].set_visible(False)
            for since, until in down:
                panel.axvspan(since, until, color=LIGHT, alpha=0.6, linewidth=0)
    for row, name in enumerate(ROWS):
        axes[row, 0].set_ylabel(name)
        axes[row, 0].set_ylim(bottom=0)
        axes[row, -1].legend(loc="upper right", frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Title": "An outage of the downstream, in grey"})
