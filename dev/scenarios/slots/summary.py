"""The report for the eye: one table of figures, one of checks, and the failed requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dev.scenarios.runner import checking

FAILED_SHOWN = 10  # the rest are in report.json


def _seconds(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f} s"


def _share(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.0%}"


def figures(report: Mapping[str, Any]) -> Table:
    handoff, limit = report["handoff"], report["parameters"]["limit"]
    table = Table(title="The run, by Step Functions' and Glue's own records", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("requests", str(report["requests"]))
    table.add_row("succeeded", str(report["succeeded"]))
    table.add_row("failed", str(report["failed"]))
    table.add_row("in FailedRequestQueue", str(len(report["kept"])))
    table.add_row("dead-lettered", str(len(report["dead_lettered"])))
    table.add_row("results in the bucket", str(report["results"]))
    table.add_row("most Glue runs alive", f"{report['max_glue_runs_alive']} (limit {limit})")
    table.add_row("starts in message order", "yes" if report["starts_in_message_order"] else "no")
    table.add_row("slots in use at the end", str(report["slots_in_use_at_end"]))
    spread = f"median {_seconds(handoff['median'])}, p99 {_seconds(handoff['p99'])}, max {_seconds(handoff['max'])}"
    table.add_row("hand-off", f"{spread} ({handoff['count']})" if handoff["count"] else "no request had to wait")
    in_glue = f"{_share(report['slot_utilisation'])} (in Glue {_share(report['glue_utilisation'])})"
    table.add_row("slot utilisation", in_glue)
    table.add_row("total time", _seconds(report["total_seconds"]))
    return table


def failed(report: Mapping[str, Any]) -> Table:
    rest = len(report["kept"]) - FAILED_SHOWN
    caption = f"and {rest} more in report.json" if rest > 0 else None
    table = Table(title="Kept in FailedRequestQueue", title_justify="left", caption=caption, caption_justify="left")
    for name in ("request", "error", "reason"):
        table.add_column(name, overflow="fold")  # an id or an error's name that is cut cannot be searched for
    for message in report["kept"][:FAILED_SHOWN]:
        table.add_row(*(escape(str(message[key] or "none")) for key in ("request_id", "error", "reason")))
    return table


def show(console: Console, report: Mapping[str, Any]) -> None:
    console.print("", figures(report), "", sep="\n")
    if report["kept"]:
        console.print(failed(report), "", sep="\n")
    console.print(checking.table(report), "", sep="\n")
