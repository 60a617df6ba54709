"""The report for the eye: one table of figures, one of the faults, one of checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from dev.scenarios.runner import checking


def figures(report: Mapping[str, Any]) -> Table:
    table = Table(title="The soak, by the services' own records", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    handoff, rounds = report["handoff"], report["rounds"]
    table.add_row("sent", f"{report['requests']} requests, {report['bad_messages']} bad messages")
    table.add_row("workflows", _counts(report["executions"]))
    table.add_row("Glue runs", _counts(report["glue_runs"]))
    table.add_row("given back and started again", str(report["given_back"]))
    table.add_row("in FailedRequestQueue", str(report["kept"]))
    table.add_row("dead-lettered", str(report["dead_lettered"]))
    table.add_row("writes of the slot table", str(report["writes"]))
    table.add_row("janitor's rounds", f"{len(rounds)}, {sum(each['ok'] for each in rounds)} complete")
    if handoff["count"]:
        spread = f"median {handoff['median']:.2f} s, longest {handoff['longest']:.2f} s ({handoff['count']})"
        table.add_row("hand-off when calm", spread)
    return table


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {what}" for what, number in sorted(numbers.items(), key=lambda item: -item[1]))


def faults(report: Mapping[str, Any]) -> Table:
    table = Table(title="What was done to it", title_justify="left", show_header=False)
    for kind, number in sorted(report["faults"].items(), key=lambda item: (-item[1], item[0])):
        table.add_row(kind, str(number))
    return table


def show(console: Console, report: Mapping[str, Any]) -> None:
    console.print("", figures(report), "", faults(report), "", checking.table(report), "", sep="\n")
