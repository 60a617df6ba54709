"""The report for the eye: figures, what became of each kind, what ended wrongly if anything did, and the checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dev.scenarios.runner import checking

from .load import answer_name

SHOWN = 12  # the rest are in report.json


def _counts(told: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in told.items()) or "none"


def _attempts(told: Mapping[str, int]) -> str:
    return ", ".join(f"{count} in {number}" for number, count in told.items()) or "none"


def _spread(told: Mapping[str, Any]) -> str:
    return f"{told['p50']:.1f} / {told['p90']:.1f} / {told['max']:.1f} s" if told["count"] else "none"


def _answers(told: Mapping[str, int]) -> str:
    return "; ".join(f"{answer_name(answer)}: {count}" for answer, count in told.items()) or "none"


def figures(report: Mapping[str, Any]) -> Table:
    parameters = report["parameters"]
    table = Table(title="The run, by the records of S3, the queues and the ledger", title_justify="left")
    table.show_header = False
    table.add_column(style="bold")
    table.add_column()
    table.add_row("succeeded", f"{report['succeeded']} of {parameters['requests']}")
    table.add_row("dead-lettered", f"{report['dead_lettered']} ({_counts(report['codes'])})")
    if report["nowhere"]:
        table.add_row("ended nowhere", str(report["nowhere"]))
    table.add_row("most callers at once", f"{report['most_callers']} of {parameters['workers']}")
    table.add_row("most requests under way", f"{report['most_under_way']} between their first call and their last")
    table.add_row("calls by their answer", _answers(report["answers"]))
    used = report["places_used"]
    table.add_row("callers' time in calls", "nobody waited" if used is None else f"{used:.0%}, while a request waited")
    due = ", ".join(f"{each['request_id']} at {each['due']:.0f} s" for each in report["schedules"])
    table.add_row("retries by Scheduler", escape(due) or "none")
    table.add_row("total time", f"{report['total_seconds']:.1f} s")
    return table


def kinds(report: Mapping[str, Any]) -> Table:
    table = Table(title="By kind; waits are p50 / p90 / max, from when a request was sent", title_justify="left")
    for heading in ("kind", "ended", "attempts", "to its first call", "to its end"):
        table.add_column(heading)
    for kind, ends in report["kinds"].items():
        waits = report["waits"][kind]
        attempts = _attempts(report["attempts"][kind])
        ended = _counts(ends).replace("_", "-")
        table.add_row(kind, ended, attempts, _spread(waits["first_call"]), _spread(waits["end"]))
    return table


def astray(report: Mapping[str, Any]) -> Table | None:
    """Requests that ended where their kind does not."""
    wanted = {"normal": "succeeded", "slow": "succeeded", "poison": "dead_lettered"}
    found = [fate for fate in report["fates"] if fate["end"] != wanted[fate["kind"]]]
    if not found:
        return None
    rest = len(found) - SHOWN
    caption = f"and {rest} more in report.json" if rest > 0 else None
    table = Table(title="Ended elsewhere", title_justify="left", caption=caption, caption_justify="left")
    for heading in ("request", "kind", "end", "dead letter", "attempts"):
        table.add_column(heading, overflow="fold")
    for fate in found[:SHOWN]:
        end = fate["end"].replace("_", "-")
        said = "; ".join(f"{letter['code']}: {letter['reason']}" for letter in fate["dead_letters"])
        table.add_row(escape(fate["request_id"]), fate["kind"], end, escape(said), str(fate["attempts"]))
    return table


def show(console: Console, report: Mapping[str, Any]) -> None:
    console.print("", figures(report), "", kinds(report), "", sep="\n")
    wrong = astray(report)
    if wrong is not None:
        console.print(wrong, "", sep="\n")
    console.print(checking.table(report), "", sep="\n")
