"""The soak as a picture: each process's holders and living Glue runs against its limit, and every fault above them.

Drawn from the report alone, so the picture can be made again from report.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dev.scenarios.runner.checking import counted
from dev.scenarios.runner.drawing import BLUE, DPI, GREY, INK, SKY, VERMILLION, WIDTH

from .plan import RESTARTED


def _stairs(points: Sequence[tuple[float, int]], end: float) -> tuple[list[float], list[int]]:
    """The corners of a staircase that holds on to the end."""
    whole = [(0.0, 0), *points, (end, points[-1][1] if points else 0)]
    return [x for x, _ in whole], [y for _, y in whole]


def _draw_faults(axes: Axes, report: Mapping[str, Any]) -> None:
    kinds = sorted({mark["kind"] for mark in report["marks"]}, reverse=True)
    rows = {kind: row for row, kind in enumerate(kinds)}
    for mark in report["marks"]:
        color = VERMILLION if mark["kind"] in RESTARTED else INK
        axes.plot(mark["at"], rows[mark["kind"]], marker="|", markersize=8, markeredgewidth=1.6, color=color)
    axes.set_yticks(list(rows.values()), list(rows), fontsize=8)
    axes.set_ylim(-0.8, len(rows) - 0.2)
    sent, failed = report["requests"], [check["name"] for check in report["checks"] if check["ok"] is False]
    said = "no check fails" if not failed else f"{counted(len(failed), 'check')} broken"
    axes.set_title(f"{len(report['marks'])} faults on {sent} requests: {said}", loc="left")


def _draw_process(axes: Axes, name: str, process: Mapping[str, Any], end: float) -> None:
    axes.fill_between(*_stairs(process["holders"], end), step="post", color=SKY, linewidth=0, label="holders")
    axes.step(*_stairs(process["alive"], end), where="post", color=BLUE, linewidth=1.0, label="Glue runs alive")
    xs, ys = _stairs(process["limits"], end)
    axes.step(xs[1:], ys[1:], where="post", color=VERMILLION, linestyle="--", linewidth=1.2, label="limit (0: paused)")
    top = max([*ys, *(number for _, number in process["holders"]), *(number for _, number in process["alive"])])
    axes.set_ylim(0, top * 1.1 + 0.3)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    axes.set_title(name, loc="left")


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Writes the PNG."""
    processes = report["processes"]
    kinds = len(report["faults"])
    figure = Figure(figsize=(WIDTH, 1.2 + 0.22 * kinds + 1.9 * len(processes)), dpi=DPI, layout="constrained")
    grid = figure.add_gridspec(1 + len(processes), 1, height_ratios=[0.6 + 0.22 * kinds, *[1.9] * len(processes)])
    top = figure.add_subplot(grid[0])
    _draw_faults(top, report)
    end = max([report["calm_from"], *(at for p in processes.values() for at, _ in p["holders"])])
    drawn = [top]
    for row, (name, process) in enumerate(processes.items(), 1):
        drawn.append(figure.add_subplot(grid[row], sharex=top))
        _draw_process(drawn[-1], name, process, end)
    drawn[1].legend(loc="upper left", frameon=False, fontsize=8, ncols=3)
    for axes in drawn:
        for mark in (mark for mark in report["marks"] if mark["kind"] in RESTARTED):
            axes.axvline(mark["at"], color=VERMILLION, linewidth=0.8, alpha=0.6)
        axes.axvline(report["calm_from"], color=GREY, linewidth=0.8, linestyle=":")
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(11)
    for axes in drawn[:-1]:
        axes.tick_params(labelbottom=False)
    top.set_xlim(0, end * 1.01)
    drawn[-1].set_xlabel("seconds since the beginning; from the dotted line on, nothing is disturbed")
    figure.savefig(path, metadata={"Title": "Slotkeeper soak"})
