"""What a run has to show: a claim each, whether it holds, and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Check:
    """A claim and whether the records bear it out. `found` says what was found, for whoever has to look further."""

    name: str
    ok: bool
    found: str


def named(names: Sequence[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def failing(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The checks of a report that do not hold."""
    return [check for check in report["checks"] if not check["ok"]]


def table(report: Mapping[str, Any]) -> Table:
    """The report's checks for the eye."""
    made = Table(title="Checks", title_justify="left", show_header=False)
    for check in report["checks"]:
        verdict = "[green]holds[/]" if check["ok"] else "[bold red]FAILS[/]"
        made.add_row(verdict, escape(check["name"]), escape(check["found"]))
    return made
