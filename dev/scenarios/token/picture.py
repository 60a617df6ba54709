"""The run as a picture: which token lived when, who sent what meanwhile, and how long they had to wait.

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

from dev.scenarios.runner.drawing import AMBER, BLUE, DPI, GREY, INK, SKY, VERMILLION, WIDTH, beside

KINDS = {  # kind: colour, what it is called
    "at_once": (BLUE, "answered at once"),
    "renewed": (AMBER, "answered after a 401, with the next token"),
    "cold": (GREY, "sent before there was a token"),
    "sent_again": (VERMILLION, "refused, sent again, answered"),
    "refused": (INK, "given up"),
}
INVALIDATED: dict[str, Any] = {"color": VERMILLION, "linestyle": (0, (4, 2)), "linewidth": 1.2}


def heights(tokens: int, messages: int) -> tuple[float, float, float]:
    """Inches of the three parts: enough for a line to be seen, and never a poster."""
    return 0.9 + min(3.5, max(0.5, 0.2 * tokens)), min(8.0, max(2.2, 0.022 * messages)), 2.6


def _in_order(fates: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(fates, key=lambda fate: fate["sent"])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _draw_tokens(axes: Axes, report: Mapping[str, Any]) -> None:
    tokens, end = report["tokens"], report["total_seconds"]
    made = {request["token"]: request for request in report["auth_requests"] if request["token"] is not None}
    for life in tokens:
        until = end if life["until"] is None else life["until"]
        request = made.get(life["number"], {})
        known = min(until, request.get("ended") or until)
        axes.barh(life["number"], known - life["since"], left=life["since"], height=0.62, color=SKY, linewidth=0)
        axes.barh(life["number"], until - known, left=known, height=0.62, color=BLUE, linewidth=0)
    began = [request["began"] for request in report["auth_requests"]]
    rows = [min(request["token"] or len(tokens), len(tokens)) or 1 for request in report["auth_requests"]]
    axes.scatter(began, rows, marker="|", s=150, color=INK, linewidths=1.8, zorder=3)
    rest = max(1, len(tokens))
    axes.set_ylim(rest + 0.6, 0.4)  # the first token on top
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=7, min_n_ticks=1))
    axes.set_ylabel("token")
    auths, cut = report["auths"], len(report["invalidations"])
    one_each = auths["cold"] == 1 and set(auths["per_invalidation"]) <= {1}
    if one_each:
        said = "One POST /auth for the first token" + (f", and one for each of {cut} invalidations" if cut else "")
    else:
        said = f"{auths['total']} POST /auth for the first token and {cut} invalidations: NOT one each"
    axes.set_title(said, loc="left")


def _draw_messages(axes: Axes, report: Mapping[str, Any]) -> None:
    fates = _in_order(report["fates"])
    thick = max(0.8, min(5.0, 62 * heights(0, len(fates))[1] / max(1, len(fates))))
    for kind, (colour, _) in KINDS.items():
        lines = [[(f["sent"], row), (f["ended"], row)] for row, f in enumerate(fates, 1) if f["kind"] == kind]
        axes.add_collection(LineCollection(lines, colors=colour, linewidths=thick, capstyle="butt"))
    turned_away = [(ask["began"], row) for row, f in enumerate(fates, 1) for ask in f["asks"] if ask["status"] == 401]
    axes.scatter([x for x, _ in turned_away], [y for _, y in turned_away], s=5, color=INK, linewidths=0, zorder=3)
    axes.set_ylim(len(fates) + 1, 0)  # the first message on top
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    axes.set_ylabel("message, as sent")
    parameters = report["parameters"]
    containers = report["containers"]
    by = _counted(parameters["senders"], "sender") + (f", {_counted(containers, 'container')}" if containers else "")
    axes.set_title(f"{report['answered']} of {parameters['messages']} messages answered; {by}", loc="left")


def _draw_latencies(axes: Axes, side: Axes, report: Mapping[str, Any]) -> None:
    fates = report["fates"]
    longest = max((f["ended"] - f["sent"] for f in fates), default=0.0) or 1.0
    columns = []
    for kind, (colour, _) in KINDS.items():
        chosen = [f for f in fates if f["kind"] == kind]
        took = [f["ended"] - f["sent"] for f in chosen]
        marker = "x" if kind == "refused" else "o"
        axes.scatter([f["ended"] for f in chosen], took, s=14, marker=marker, color=colour, alpha=0.8, linewidths=0.8)
        columns.append(took)
    side.hist(
        columns,
        bins=24,
        range=(0, longest),
        orientation="horizontal",
        stacked=True,
        color=[colour for colour, _ in KINDS.values()],
    )
    for each in (axes, side):
        each.set_ylim(0, longest * 1.12)
    auth = report["parameters"]["auth_latency"]
    axes.axhline(auth, color=INK, linewidth=1.0, linestyle=":")
    side.axhline(auth, color=INK, linewidth=1.0, linestyle=":")
    beside(side, "POST\n/auth", auth, INK)
    axes.set_ylabel("latency (s)")
    side.set_xlabel("messages")
    waits = report["token_waits"]
    if waits["count"]:
        said = (
            f"After a 401 the next token is at hand within {waits['p50']:.2f} s (median of {waits['count']}; "
            f"99% within {waits['p99']:.2f} s); POST /auth itself takes {auth:g} s"
        )
    else:
        said = "No message met a 401"
    axes.set_title(said, loc="left")


def _keys(report: Mapping[str, Any]) -> list[Patch | Line2D]:
    kinds = {fate["kind"] for fate in report["fates"]}
    keys: list[Patch | Line2D] = [
        Patch(color=BLUE, label="token valid"),
        Patch(color=SKY, label="valid, its POST /auth not answered yet"),
        Line2D([], [], color=INK, marker="|", markersize=11, markeredgewidth=1.8, linestyle="", label="POST /auth"),
    ]
    if report["invalidations"]:
        keys.append(Line2D([], [], label="token invalidated", **INVALIDATED))
    keys += [
        Line2D([], [], color=c, linewidth=4, label=f"message {said}") for k, (c, said) in KINDS.items() if k in kinds
    ]
    if any(ask["status"] == 401 for fate in report["fates"] for ask in fate["asks"]):
        keys.append(Line2D([], [], color=INK, marker="o", markersize=3, linestyle="", label="401 from the API"))
    return keys


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Writes the PNG."""
    keys = _keys(report)
    parts = heights(len(report["tokens"]), len(report["fates"]))
    legend = 0.35 + 0.23 * -(-len(keys) // 3)  # three columns above the parts
    figure = Figure(figsize=(WIDTH, sum(parts) + legend), dpi=DPI, layout="constrained")
    grid = figure.add_gridspec(3, 2, height_ratios=parts, width_ratios=[8, 1])
    top = figure.add_subplot(grid[0, 0])
    middle = figure.add_subplot(grid[1, 0], sharex=top)
    bottom = figure.add_subplot(grid[2, 0], sharex=top)
    side = figure.add_subplot(grid[2, 1])
    _draw_tokens(top, report)
    _draw_messages(middle, report)
    _draw_latencies(bottom, side, report)
    for axes in (top, middle, bottom):
        for invalidation in report["invalidations"]:
            axes.axvline(invalidation["at"], zorder=2, **INVALIDATED)
        axes.grid(axis="x", color="#E5E5E5", linewidth=0.7)
        axes.set_axisbelow(True)
    for axes in (top, middle, bottom, side):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(11)
    for axes in (top, middle):
        axes.tick_params(labelbottom=False)
    side.tick_params(labelleft=False)
    top.set_xlim(0, (report["total_seconds"] or 1.0) * 1.01)
    bottom.set_xlabel("seconds since the first message was sent")
    figure.legend(handles=keys, loc="outside upper left", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Title": "Slotkeeper: one token"})
