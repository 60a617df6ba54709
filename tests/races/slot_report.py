"""What the long races say in the end: a line and a row each, and the holders as a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dev.scenarios.runner.chart import BLUE, DPI, INK, WIDTH
from tests.races.slot_races import Outcome


def line(name: str, outcome: Outcome) -> str:
    figures = outcome.figures
    return (
        f"{name}: {figures.operations} steps, {figures.operations / outcome.seconds:.0f} a second, "
        f"{figures.grants} granted, {figures.refusals} refused, {figures.lost_answers} answers lost; "
        f"judged {figures.writes} writes and {figures.snapshots} snapshots: {figures.most_holders} holders at most, "
        f"{len(outcome.judge.faults)} faults"
    )


def write(outcomes: Mapping[str, Outcome], folder: Path) -> None:
    """report.json and holders.png."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = {
        name: asdict(outcome.figures)
        | {
            "seconds": round(outcome.seconds, 1),
            "operations_a_second": round(outcome.figures.operations / outcome.seconds, 1),
            "faults": outcome.judge.faults,
        }
        for name, outcome in outcomes.items()
    }
    (folder / "report.json").write_text(json.dumps(rows, indent=2) + "\n")
    _draw(outcomes, folder / "holders.png")


def _draw(outcomes: Mapping[str, Outcome], path: Path) -> None:
    figure = Figure(figsize=(WIDTH, 2.1 * len(outcomes)), dpi=DPI, layout="constrained")
    for axes, (name, outcome) in zip(
        figure.subplots(len(outcomes), squeeze=False)[:, 0], outcomes.items(), strict=True
    ):
        holders, limits = zip(*outcome.judge.curve, strict=True)
        axes.plot(holders, drawstyle="steps-post", color=BLUE, linewidth=0.6, label="holders")
        axes.plot(limits, drawstyle="steps-post", color=INK, linewidth=1, linestyle=(0, (4, 2)), label="limit")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(0, outcome.figures.writes)
        axes.set_ylim(0, 1.1 * max(*limits, *holders))
        axes.set_title(name, loc="left", fontsize=9)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    axes.set_xlabel("writes to the item, in the order of its stream")
    figure.savefig(path)
