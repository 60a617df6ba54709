"""Two pictures: how time and calls grow, and what a million requests a day cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dev.benchmarks.scale import dollars
from dev.scenarios.runner.drawing import AMBER, BLUE, DPI, GREEN, GREY, INK, ORANGE, SKY, VERMILLION, WIDTH

_SERVICES = {
    "Step Functions": BLUE,
    "DynamoDB": AMBER,
    "Lambda": GREEN,
    "SQS": SKY,
    "events, logs": ORANGE,
    "janitor": VERMILLION,
}
# Those for which there is room, and that differ.
_SHOWN = ("wake-up", "transactions", "visibility", "each message, 30", "workflow loop, 30")  # and 300 of the two
_WIDEST = 1000  # dollars a day; a longer bar is cut off


def draw_growth(
    by_requests: Sequence[Mapping[str, Any]], by_processes: Sequence[Mapping[str, Any]], path: Path
) -> None:
    """CPU time and calls against requests; CPU time of a request against processes."""
    figure = Figure(figsize=(WIDTH, 4.4), dpi=DPI, layout="constrained")
    time, calls, processes = figure.subplots(1, 3)
    requests = [each["requests"] for each in by_requests]
    _against_requests(time, requests, [each["starter_seconds"] for each in by_requests], BLUE, "starter")
    _against_requests(time, requests, [each["whole_seconds"] for each in by_requests], GREY, "with the simulation")
    time.set(title="CPU seconds", xlabel="requests", ylabel="seconds")
    _against_requests(calls, requests, [_calls(each) for each in by_requests], VERMILLION, "calls of AWS")
    invocations = [each["all"]["lambda.starter"] for each in by_requests]
    _against_requests(calls, requests, invocations, GREEN, "starter invocations")
    calls.set(title="Calls", xlabel="requests", ylabel="in all")
    numbers = [each["processes"] for each in by_processes]
    times = [each["starter_seconds"] / each["requests"] * 1000 for each in by_processes]
    processes.plot(numbers, times, color=BLUE, marker="o")
    processes.set(title=f"{requests[-1]:,} requests", xlabel="processes", ylabel="CPU ms a request", xscale="log")
    processes.set_ylim(0, 1.5 * max(times))
    for axes in (time, calls, processes):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_ha("left")
        axes.title.set_x(0)
    for axes in (time, calls):
        axes.legend(frameon=False, fontsize=9)
    figure.savefig(path)


def draw_dollars(assumed: Sequence[dollars.Assumed], path: Path) -> None:
    """Bars by design, stacked by service; a panel for each number of slots."""
    figure = Figure(figsize=(WIDTH, 5.0), dpi=DPI, layout="constrained")
    panels = figure.subplots(1, len(assumed), sharey=True, sharex=True)
    for axes, given in zip(panels, assumed, strict=True):
        shown = [each for each in dollars.designs(given) if each.name.startswith(_SHOWN)][::-1]
        left = [0.0] * len(shown)
        for service, color in _SERVICES.items():
            widths = [each.parts.get(service, 0.0) for each in shown]
            axes.barh([each.name for each in shown], widths, left=left, color=color, label=service)
            left = [before + width for before, width in zip(left, widths, strict=True)]
        for number, each in enumerate(shown):
            idle = f"   idle {each.idle:.0f} s" if each.idle >= 1 else ""
            if each.day > _WIDEST:
                told = f"{each.day:,.0f} \u2192 "
                axes.text(_WIDEST, number, told, va="center", ha="right", fontsize=8, color="white")
            else:
                axes.text(each.day, number, f" {each.day:,.0f}{idle}", va="center", fontsize=8, color=INK)
        axes.set_title(f"{given.processes} processes of {given.slots} slots", loc="left", fontsize=10)
        axes.set_xlabel("USD a day, without Glue")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_xlim(0, _WIDEST)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(path)


def _against_requests(axes: Axes, requests: Sequence[int], values: Sequence[float], color: str, label: str) -> None:
    axes.loglog(requests, values, color=color, marker="o", label=label)
    in_proportion = [values[-1] * each / requests[-1] for each in requests]
    axes.loglog(requests, in_proportion, color=GREY, linewidth=1, linestyle=(0, (4, 2)))


def _calls(each: Mapping[str, Any]) -> int:
    return sum(number for name, number in each["all"].items() if "." in name and not name.startswith("lambda."))
