"""The two pictures in one: who waited how long, and how often the API was asked. Drawn from the figures alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, StrMethodFormatter

from dev.benchmarks.token.ways import LOCK, NOTHING, TEXTBOOK
from dev.scenarios.runner.drawing import AMBER, BLUE, DPI, GREY, INK, VERMILLION, WIDTH

LOOK = {LOCK: (BLUE, "-", "o"), TEXTBOOK: (AMBER, "--", "s"), NOTHING: (VERMILLION, ":", "^")}


def _draw_waits(axes: Axes, waits: Mapping[str, Sequence[float]], clients: int, goal: float, auth: float) -> None:
    for way, seconds in waits.items():
        color, line, _ = LOOK[way]
        ordered = sorted(seconds)
        shares = [100 * number / len(ordered) for number in range(len(ordered) + 1)]
        axes.step([ordered[0], *ordered], shares, where="post", color=color, linestyle=line, linewidth=2, label=way)
    axes.axvline(auth, color=GREY, linewidth=1)
    axes.axvline(goal, color=INK, linewidth=1, linestyle=(0, (4, 2)))
    axes.text(auth, 101, "POST /auth ", ha="right", va="bottom", fontsize=8, color=GREY)
    axes.text(goal, 101, " goal", ha="left", va="bottom", fontsize=8, color=INK)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 100)
    axes.set_xlabel("seconds from the 401 to a live token, or to giving up")
    axes.set_ylabel("% of those who wait")
    axes.set_title(f"{clients} clients meet one dead token", loc="left", pad=18)
    axes.legend(loc="lower right", frameon=False, fontsize=9)


def _draw_posts(axes: Axes, posts: Mapping[str, Mapping[int, float]]) -> None:
    counts = sorted({count for each in posts.values() for count in each})
    for way, by_count in posts.items():
        color, line, mark = LOOK[way]
        # The textbook loop lies on the lock: both ask once.
        size = 9 if way == TEXTBOOK else 5
        axes.plot(
            list(by_count), list(by_count.values()), color=color, linestyle=line, marker=mark, markersize=size,
            markerfacecolor="none" if way == TEXTBOOK else color, linewidth=2, label=way,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(counts)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.set_minor_locator(NullLocator())
    axes.set_ylim(bottom=0.7)
    axes.set_xlabel("clients")
    axes.set_ylabel("POST /auth for one invalidation")
    axes.set_title("How often the API is asked", loc="left", pad=18)
    axes.legend(loc="upper left", frameon=False, fontsize=9)


def draw(
    waits: Mapping[str, Sequence[float]],
    clients: int,
    goal: float,
    auth_seconds: float,
    posts: Mapping[str, Mapping[int, float]],
    path: Path,
) -> None:
    """Write the picture.

    Args:
        waits: seconds of all who waited, by way, of so many `clients`.
        posts: by way and number of clients, on average.
    """
    figure = Figure(figsize=(WIDTH, 4.4), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    _draw_waits(left, waits, clients, goal, auth_seconds)
    _draw_posts(right, posts)
    figure.savefig(path)
