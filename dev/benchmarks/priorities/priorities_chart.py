"""The picture of the waits: the share of each priority's requests that has started after a wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from slotkeeper.slots.request import PRIORITIES
from slotkeeper_cli.audit.chart import BLUE, DPI, GREY, VERMILLION

COLORS = dict(zip(PRIORITIES, (VERMILLION, BLUE, GREY), strict=True))


def draw(path: Path, designs: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write the PNG. `designs`: design -> the figures of each seed."""
    figure = Figure(figsize=(4.2 * len(designs), 3.6), dpi=DPI, layout="constrained")
    axes: Any = figure.subplots(1, len(designs), sharex=True, sharey=True, squeeze=False)
    for panel, (design, runs) in zip(axes[0], designs.items(), strict=True):
        for priority, color in COLORS.items():
            waits = sorted(max(0.1, wait) for run in runs for wait in run["waits"].get(priority, []))
            shares = [100 * (number + 1) / len(waits) for number in range(len(waits))]
            panel.step(waits, shares, where="post", color=color, label=priority)
        panel.set_title(design, loc="left", fontsize=11)
        panel.set_xscale("log")
        panel.set_xlabel("wait, seconds")
        panel.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("requests started, %")
    axes[0, 0].set_ylim(0, 101)
    axes[0, 0].legend(loc="upper left", frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Title": "Waits by priority, with priorities and without"})
