"""What a run has to show: a claim each, whether it holds, and what was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

VERDICTS = {True: "[green]holds[/]", False: "[bold red]FAILS[/]", None: "[yellow]not shown[/]"}


@dataclass(frozen=True)
class Check:
    """A claim and whether the records bear it out. `found` says what was found, for whoever has to look further.

    `ok` is None where nothing happened that could have shown the claim to be wrong: that is no failure, and no proof.
    """

    name: str
    ok: bool | None
    found: str


def named(names: Sequence[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(count: int, noun: str) -> str:
    """1 row, 2 rows."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def none_fails(checks: Iterable[Check]) -> bool:
    """Whether the run may end well."""
    return all(check.ok is not False for check in checks)


def failing(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The checks of a report that do not hold."""
    return [check for check in report["checks"] if check["ok"] is False]


def table(report: Mapping[str, Any]) -> Table:
    """The report's checks for the eye."""
    made = Table(title="Checks", title_justify="left", show_header=False)
    for check in report["checks"]:
        made.add_row(VERDICTS[check["ok"]], escape(check["name"]), escape(check["found"]))
    return made
