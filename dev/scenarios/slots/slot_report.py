"""The tables and the chart of `make run` for any kind of target, from its report alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from dev.scenarios.runner.scenario import figure_table, list_table, spread_text
from slotkeeper_cli import chart
from slotkeeper_cli.chart import Bar, Panel, Point

# Workflows above which the terminal shows no timeline, and the cells of its longest line.
MOST_LINES = 20
_CELLS = 60
_STEPS = (0.25, 0.5, 1, 2, 5, 10, 30, 60)  # seconds of a cell


class Work(NamedTuple):
    """What the slots run.

    Attributes:
        prefix: of its keys in the report.
        place: in "utilisation 96% (in Glue 80%)".
        records: whose records the figures are from.
    """

    prefix: str
    place: str
    records: str


def run_tables(
    report: Mapping[str, Any], work: Work, counts: Mapping[str, Any], times: Mapping[str, Any]
) -> list[Table]:
    """The figures and the kept messages. `counts` and `times`: rows for this work alone."""
    use, in_work = (
        "not measured" if report[name] is None else f"{report[name]:.0%}"
        for name in ("slot_utilisation", f"{work.prefix}_utilisation")
    )
    rows = {
        "requests": report["requests"],
        "succeeded": report["succeeded"],
        "failed": report["failed"],
        "in FailedRequestQueue": len(report["kept"]),
        "dead-lettered": len(report["dead_lettered"]),
        **counts,
        "starts in message order": "yes" if report["starts_in_message_order"] else "no",
        "slots in use at the end": report["slots_in_use_at_end"],
        "hand-off": spread_text(report["handoff"], "no request had to wait"),
        **times,
        "slot utilisation": f"{use} (in {work.place} {in_work})",
        "total time": "unknown" if report["total_seconds"] is None else f"{report['total_seconds']:.2f} s",
    }
    kept = ([message[key] or "none" for key in ("request_id", "error", "reason")] for message in report["kept"])
    return [
        figure_table(f"The run, by {work.records} own records", rows),
        *list_table("Kept in FailedRequestQueue", ("request", "error", "reason"), kept),
        *timeline(report),
    ]


def timeline(report: Mapping[str, Any]) -> list[Table]:
    """A line for each workflow, in start order; nothing for more than MOST_LINES."""
    workflows, end = report["workflows"], report["total_seconds"] or 0.0
    if not 0 < len(workflows) <= MOST_LINES:
        return []
    step = next((step for step in _STEPS if end / step <= _CELLS), math.ceil(end / _CELLS))
    rows = Table("", f"· waiting, █ holding a slot, {step:g} s each", box=None, pad_edge=False, header_style="")
    rows.columns[0].justify = "right"
    for number, workflow in enumerate(workflows, 1):
        ended = [workflow[name] for name in ("release_entered", "stopped") if workflow[name] is not None]
        queued, started, released = (
            round(at / step) for at in (workflow["queued"] or 0.0, workflow["started"], min(ended, default=end))
        )
        line = " " * queued + "·" * (started - queued) + "█" * max(1, released - started)
        rows.add_row(str(number), line + f" {workflow['status']}" * (workflow["status"] != "SUCCEEDED"))
    return [rows]


def draw_run(
    report: Mapping[str, Any],
    path: Path,
    title: str,
    work: Work,
    summary: Callable[[str], str],
    mark: Callable[[Mapping[str, Any]], tuple[str, str]],
) -> None:
    """A bar for each workflow, the slots in use against the limit, and the hand-offs.

    Args:
        summary: the first panel's title, of the order of the starts in words.
        mark: the color and label of what a workflow's slot runs.
    """
    workflows, end = report["workflows"], report["total_seconds"] or 0.0
    bars, failures = [], []
    for lane, workflow in enumerate(workflows, 1):
        stopped = end if workflow["stopped"] is None else workflow["stopped"]
        if workflow["queued"] is not None:
            bars.append(Bar(lane, workflow["queued"], workflow["started"], chart.LIGHT, "waiting"))
        bars.append(Bar(lane, workflow["started"], stopped, chart.ORANGE, "rest of the workflow"))
        entered, exited = (workflow[f"{work.prefix}_{moment}"] for moment in ("entered", "exited"))
        if entered is not None:
            bars.append(Bar(lane, entered, stopped if exited is None else exited, *mark(workflow)))
        if workflow["status"] not in ("SUCCEEDED", "RUNNING"):
            failures.append(Point(stopped, lane, chart.VERMILLION, "end of a failed workflow"))
    order = "in message order" if report["starts_in_message_order"] else "NOT in message order"
    lanes = chart.lanes_panel(summary(order), "workflow, in start order", len(workflows), bars, failures)
    panels = [lanes, *_slot_panels(report, end)]
    chart.draw(path, title, "seconds since the first request was sent", end, panels)


def _slot_panels(report: Mapping[str, Any], end: float) -> list[Panel]:
    workflows, limit = report["workflows"], report["parameters"]["limit"]
    held = [(w["started"], end if w["release_entered"] is None else w["release_entered"]) for w in workflows]
    gaps = [Point(h["released"], h["seconds"], chart.BLUE, "", "o") for h in report["handoffs"]]
    most, handoff = report["max_slots_held"], report["handoff"]
    median = f"{handoff['median']:.2f} s (median of {handoff['count']})" if gaps else "none"
    return [
        chart.limit_panel(
            f"{'Never more than' if most <= limit else 'OVER the limit: up to'} {most} of {limit} slots in use",
            "slots in use",
            held,
            limit,
            "in use",
            end,
        ),
        Panel(
            f"From a release to the next start: {median}",
            "hand-off (s)",
            1.5,
            [lambda axes: chart.draw_points(axes, gaps)],
        ),
    ]
