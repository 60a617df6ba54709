"""The run as a picture: how many called at once, what became of each request, and how many attempts it took.

Drawn from the report alone, so the picture can be made again from report.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dev.scenarios.runner.checking import counted
from dev.scenarios.runner.drawing import AMBER, BLUE, DPI, GREEN, GREY, INK, ORANGE, VERMILLION, WIDTH, beside
from dev.scenarios.slots.figures import overlap_seconds, peak

from .load import answer_name

# How a call ended; what is not here was S3's own refusal.
ANSWERS = {"200": BLUE, "gone": VERMILLION, "503": AMBER, "500": ORANGE, "dropped": INK}
OTHER = GREY
# Tints of a colour that no call has: these are requests.
KINDS = {"normal": "#D8BFE8", "slow": "#9A62BE", "poison": "#47195F"}
WAITING = "#D9D9D9"
BINS = 120
ENDS = {
    "succeeded": ("o", GREEN, "published"),
    "dead_lettered": ("x", VERMILLION, "dead-lettered (after an answer: with an input that is no good)"),
}


def heights(requests: int) -> tuple[float, float, float]:
    """Inches of the three parts: enough for a lane to be seen, and never a poster."""
    return 1.3, min(14.0, max(1.8, 0.075 * requests)), 2.3


def in_lanes(fates: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """By kind, and within a kind as they were sent."""
    return sorted(fates, key=lambda fate: (list(KINDS).index(fate["kind"]), fate["sent"]))


def _end(call: Mapping[str, Any], report: Mapping[str, Any]) -> float:
    return float(report["total_seconds"] if call["ended"] is None else call["ended"])


def _draw_callers(axes: Axes, report: Mapping[str, Any]) -> None:
    calls = [(call["began"], _end(call, report)) for fate in report["fates"] for call in fate["calls"]]
    # Calls are short, and each step of their number would make a comb of it.
    stretch = (report["total_seconds"] or 1.0) / BINS
    windows = [(i * stretch, (i + 1) * stretch) for i in range(BINS)]
    means = [overlap_seconds(calls, window) / stretch for window in windows]
    mosts = [peak((max(a, start), min(b, end)) for a, b in calls) for start, end in windows]
    edges = [start for start, _ in windows] + [windows[-1][1]]
    axes.stairs(means, edges, fill=True, color=WAITING)
    axes.stairs(mosts, edges, color=INK, linewidth=1.2)
    limit = report["parameters"]["workers"]
    axes.axhline(limit, color=VERMILLION, linewidth=1.2, linestyle=(0, (4, 2)))
    beside(axes, "limit", limit, VERMILLION)
    axes.set_ylim(0, max(limit, *mosts) + 0.6)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    axes.set_ylabel("callers")
    most = report["most_callers"]
    said = "never had more" if most <= limit else f"HAD {most}"
    lines = f"line: the most within {stretch:.1f} s, area: the mean"
    axes.set_title(f"The downstream takes {limit} callers at once, and {said} ({lines})", loc="left")


def _draw_lanes(axes: Axes, report: Mapping[str, Any]) -> None:
    fates = in_lanes(report["fates"])
    thick = max(0.7, min(6.0, 55 * heights(len(fates))[1] / max(1, len(fates))))
    rows = {fate["request_id"]: row for row, fate in enumerate(fates, 1)}
    end = report["total_seconds"]
    lives = [[(f["sent"], row), (end if f["ended"] is None else f["ended"], row)] for row, f in enumerate(fates, 1)]
    axes.add_collection(LineCollection(lives, colors=WAITING, linewidths=max(0.5, thick / 3), capstyle="butt"))
    for answer in {call["answer"] for fate in fates for call in fate["calls"]}:
        lines = [
            [(call["began"], rows[fate["request_id"]]), (_end(call, report), rows[fate["request_id"]])]
            for fate in fates
            for call in fate["calls"]
            if call["answer"] == answer
        ]
        colour = ANSWERS.get(str(answer), OTHER)
        axes.add_collection(LineCollection(lines, colors=colour, linewidths=thick, capstyle="butt", zorder=2))
    for kind_end, (marker, colour, _) in ENDS.items():
        ends = [(f["ended"], rows[f["request_id"]]) for f in fates if f["end"] == kind_end]
        at, lanes = [x for x, _ in ends], [y for _, y in ends]
        axes.scatter(at, lanes, marker=marker, s=14, color=colour, linewidths=1.0, zorder=3)
    ticks, names = [], []
    for kind in KINDS:
        lanes = [rows[f["request_id"]] for f in fates if f["kind"] == kind]
        if lanes:
            ticks.append((lanes[0] + lanes[-1]) / 2)
            names.append(f"{kind}: {len(lanes)}")
            axes.axhline(lanes[-1] + 0.5, color=GREY, linewidth=0.5)
    axes.set_yticks(ticks, names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(fates) + 0.5, 0.5)  # the first request on top
    ended = f"{report['succeeded']} succeeded, {report['dead_lettered']} dead-lettered"
    if report["nowhere"]:
        ended += f", {report['nowhere']} ended NOWHERE"
    axes.set_title(f"{counted(len(fates), 'request')}: {ended}", loc="left")


def _draw_attempts(axes: Axes, report: Mapping[str, Any]) -> None:
    told = report["attempts"]
    numbers = range(1, max((int(n) for kind in KINDS for n in told[kind]), default=1) + 1)
    below = [0] * len(numbers)
    for kind, colour in KINDS.items():
        counts = [told[kind].get(str(number), 0) for number in numbers]
        axes.bar(list(numbers), counts, bottom=below, color=colour, width=0.7, label=kind)
        below = [a + b for a, b in zip(below, counts, strict=True)]
    for number, count in zip(numbers, below, strict=True):
        axes.text(number, count, str(count), ha="center", va="bottom", fontsize=8)
    axes.set_ylim(0, 1.15 * max([1, *below]))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    axes.set_xticks(list(numbers))
    axes.set_xlabel("attempts")
    axes.set_ylabel("requests")
    axes.legend(frameon=False, fontsize=8)
    axes.set_title("How many attempts they took", loc="left")


def _draw_waits(axes: Axes, report: Mapping[str, Any]) -> None:
    for kind, colour in KINDS.items():
        chosen = [f for f in report["fates"] if f["kind"] == kind and f["ended"] is not None]
        waits = sorted(f["ended"] - f["sent"] for f in chosen)
        shares = [(i + 1) / len(waits) for i in range(len(waits))]
        axes.step([0.0, *waits], [0.0, *shares], where="post", color=colour, linewidth=2)
    axes.set_ylim(0, 1.05)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.set_xlabel("seconds from sent to ended")
    axes.set_title("How long they took", loc="left")


def _keys(report: Mapping[str, Any]) -> list[Patch | Line2D]:
    met = {call["answer"] for fate in report["fates"] for call in fate["calls"]}
    keys: list[Patch | Line2D] = [
        Patch(color=colour, label=f"call: {answer_name(answer)}") for answer, colour in ANSWERS.items() if answer in met
    ]
    if others := met - set(ANSWERS):
        keys.append(Patch(color=OTHER, label=f"call: {'; '.join(sorted(answer_name(str(each)) for each in others))}"))
    keys.append(Line2D([], [], color=WAITING, linewidth=2, label="waiting: in the queue, delayed, scheduled"))
    for marker, colour, said in ENDS.values():
        keys.append(Line2D([], [], color=colour, marker=marker, markersize=5, linestyle="", label=said))
    return keys


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Writes the PNG."""
    keys = _keys(report)
    parts = heights(len(report["fates"]))
    legend = 0.4 + 0.23 * -(-len(keys) // 3)  # three columns above the parts
    figure = Figure(figsize=(WIDTH, sum(parts) + legend + 0.6), dpi=DPI, layout="constrained")
    grid = figure.add_gridspec(3, 2, height_ratios=parts)
    top = figure.add_subplot(grid[0, :])
    middle = figure.add_subplot(grid[1, :], sharex=top)
    left, right = figure.add_subplot(grid[2, 0]), figure.add_subplot(grid[2, 1])
    _draw_callers(top, report)
    _draw_lanes(middle, report)
    _draw_attempts(left, report)
    _draw_waits(right, report)
    for axes in (top, middle):
        axes.grid(axis="x", color="#E5E5E5", linewidth=0.7)
        axes.set_axisbelow(True)
    for axes in (top, middle, left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(11)
    top.tick_params(labelbottom=False)
    top.set_xlim(0, (report["total_seconds"] or 1.0) * 1.01)
    middle.set_xlabel("seconds since the first request was sent")
    figure.legend(handles=keys, loc="outside upper left", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Title": "Slotkeeper: the worker"})
