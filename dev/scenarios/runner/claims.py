"""The claims of a run: whether the records confirm each one, and the finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

VERDICTS = {True: "[green]holds[/]", False: "[bold red]FAILS[/]", None: "[yellow]not shown[/]"}


@dataclass(frozen=True)
class Claim:
    """A claim about the records. `ok` is None if nothing happened that could have violated the claim."""

    name: str
    ok: bool | None
    finding: str


def judge(name: str, problems: Mapping[str, Sequence[str]], finding: str, *, shown: bool = True) -> Claim:
    """The claim fails if one of `problems` (what -> names) is not empty. It is not shown unless `shown`."""
    problem = "; ".join(f"{what}: {first_names(names)}" for what, names in problems.items() if names)
    return Claim(name, False if problem else True if shown else None, problem or finding)


def first_names(names: Sequence[str], limit: int = 5) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def as_json(claims: Sequence[Claim]) -> dict[str, Any]:
    """The keys `checks` and `ok` of a report."""
    checks = [{"name": claim.name, "ok": claim.ok, "found": claim.finding} for claim in claims]
    return {"checks": checks, "ok": all(claim.ok is not False for claim in claims)}


def failing(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The checks of a report that do not hold."""
    return [check for check in report["checks"] if check["ok"] is False]


def table(report: Mapping[str, Any]) -> Table:
    """The report's checks for the terminal."""
    checks = Table(title="Checks", title_justify="left", show_header=False)
    for check in report["checks"]:
        checks.add_row(VERDICTS[check["ok"]], escape(check["name"]), escape(check["found"]))
    return checks
