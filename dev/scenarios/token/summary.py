"""The report for the eye: a table of figures, one of refused messages if there are any, and the checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dev.scenarios.runner import checking

REFUSED_SHOWN = 10  # the rest are in report.json


def _spread(told: Mapping[str, Any]) -> str:
    if not told["count"]:
        return "none"
    return f"p50 {told['p50']:.2f} s, p99 {told['p99']:.2f} s, max {told['max']:.2f} s ({told['count']})"


def _asks(told: Mapping[str, int]) -> str:
    return ", ".join(f"{count} by {asks} {'ask' if asks == '1' else 'asks'}" for asks, count in told.items()) or "none"


def _each(counts: Sequence[int]) -> str:
    if len(set(counts)) == 1:
        return f"then {counts[0]} for each of {len(counts)} invalidations"
    return f"then {', '.join(map(str, counts))}" if counts else "no invalidations"


def figures(report: Mapping[str, Any]) -> Table:
    auths, latency = report["auths"], report["latency"]
    table = Table(title="The run, by the API's log and its senders' clocks", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("messages answered", f"{report['answered']} of {report['parameters']['messages']}")
    table.add_row("answered", _asks(report["asks"]))
    table.add_row("refused", str(len(report["refused"])))
    table.add_row("sent again", str(report["sent_again"]))
    containers = report["containers"]
    table.add_row("containers of the bot", "not known" if containers is None else str(containers))
    table.add_row("POST /auth", f"{auths['cold']} at first, {_each(auths['per_invalidation'])}")
    table.add_row("take-overs", str(report["take_overs"]))
    table.add_row("wait for a new token", _spread(report["token_waits"]))
    table.add_row("latency, after a 401", _spread(latency["renewed"]))
    table.add_row("latency, token at hand", _spread(latency["at_once"]))
    table.add_row("latency, no token yet", _spread(latency["cold"]))
    table.add_row("latency, all", _spread(latency["all"]))
    table.add_row("total time", f"{report['total_seconds']:.2f} s")
    return table


def refused(report: Mapping[str, Any]) -> Table:
    rest = len(report["refused"]) - REFUSED_SHOWN
    caption = f"and {rest} more in report.json" if rest > 0 else None
    table = Table(title="Refused", title_justify="left", caption=caption, caption_justify="left")
    table.add_column("message", overflow="fold")
    table.add_column("tries", overflow="fold")
    for message in report["refused"][:REFUSED_SHOWN]:
        tries = ", ".join(f"{each['status'] or 'no answer'} {each['code'] or ''}".strip() for each in message["tries"])
        table.add_row(escape(message["message_id"]), escape(tries))
    return table


def show(console: Console, report: Mapping[str, Any]) -> None:
    console.print("", figures(report), "", sep="\n")
    if report["refused"]:
        console.print(refused(report), "", sep="\n")
    console.print(checking.table(report), "", sep="\n")
