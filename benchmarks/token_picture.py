"""The benchmark as a picture: who waited how long, and what a thousand ask of DynamoDB. Drawn from the report alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from local.running.drawing import AMBER, BLUE, DPI, GREY, INK, VERMILLION, WIDTH

LOOK = {
    "token lock": (BLUE, "-"),
    "textbook loop": (AMBER, "--"),
    "no coordination": (VERMILLION, ":"),
}


def _draw_waits(axes: Axes, report: Mapping[str, Any], goal: float) -> None:
    shown = max((row["waiters"] for row in report["measured"] if row["waiters"] <= 100), default=None)
    rows = [row for row in report["measured"] if row["waiters"] == (shown or report["measured"][0]["waiters"])]
    for row in rows:
        color, line = LOOK[row["way"]]
        waits = row["waits"]
        shares = [(number + 1) / len(waits) for number in range(len(waits))]
        failed = max(row["failed"])
        label = f"{row['way']}: {max(row['posts'])} POST /auth" + (f", {failed} messages failed" if failed else "")
        axes.step(waits, shares, where="post", color=color, linestyle=line, linewidth=2, label=label)
    axes.axvline(report["auth_seconds"], color=GREY, linewidth=1)
    axes.axvline(goal, color=INK, linewidth=1, linestyle=(0, (4, 2)))
    axes.text(report["auth_seconds"], 1.015, "POST /auth", ha="center", va="bottom", fontsize=8, color=GREY)
    axes.text(goal, 1.055, "goal of the lock's p99", ha="center", va="bottom", fontsize=8, color=INK)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.01)
    axes.set_xlabel("seconds from the 401 to a live token, or to giving up")
    axes.set_ylabel("share of the messages that waited")
    axes.legend(loc="upper left", bbox_to_anchor=(-0.03, -0.13), frameon=False, fontsize=9)
    axes.set_title(f"{rows[0]['waiters']} instances meet one dead token", loc="left", pad=22)


def _draw_thousand(axes: Axes, thousand: Mapping[str, Any]) -> None:
    width = thousand["bin_seconds"]
    count = max(len(thousand["served"]), len(thousand["throttled"]))
    served = [*thousand["served"], *[0] * (count - len(thousand["served"]))]
    throttled = [*thousand["throttled"], *[0] * (count - len(thousand["throttled"]))]
    left = [number * width for number in range(count)]
    axes.bar(left, [n / width for n in served], width, align="edge", color=BLUE, label="served")
    bottom = [n / width for n in served]
    axes.bar(
        left, [n / width for n in throttled], width, bottom=bottom, align="edge", color=VERMILLION, hatch="////",
        edgecolor="white", linewidth=0, label="throttled",
    )  # fmt: skip
    most = thousand["most_reads_a_second"]
    axes.axhline(most, color=INK, linewidth=1, linestyle=(0, (4, 2)))
    axes.text(left[-1] + width, most * 1.1, f"{most} a second", ha="right", va="bottom", fontsize=8, color=INK)
    axes.set_xlabel("seconds from the 401")
    axes.set_ylabel("looks a second")
    axes.legend(loc="upper right", frameon=False, fontsize=9)
    axes.set_title(f"{thousand['waiters']} who wait, reckoned", loc="left", pad=22)


def draw(report: Mapping[str, Any], goal: float, path: Path) -> None:
    """Write the picture."""
    figure = Figure(figsize=(WIDTH, 4.6), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    _draw_waits(left, report, goal)
    _draw_thousand(right, report["thousand"])
    figure.savefig(path)
