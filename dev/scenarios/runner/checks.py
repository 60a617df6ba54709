"""The checks of a run: those of `slotkeeper audit`, and its own in the same form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from slotkeeper_cli.audit.check_result import CheckResult, Result, first_of

RESULTS = {True: Result.HOLDS, False: Result.FAILS, None: Result.NOT_SHOWN}
STYLES = {True: "[green]holds[/]", False: "[bold red]FAILS[/]", None: "[yellow]not shown[/]"}
NAMES_SHOWN = 5


def check(claim: str, ok: bool | None, finding: str) -> CheckResult:
    """A check of a run. `ok` is None if nothing happened that could have violated the claim."""
    return CheckResult("", claim, RESULTS[ok], finding)


def check_none(claim: str, problems: Mapping[str, Sequence[str]], finding: str, *, shown: bool = True) -> CheckResult:
    """A check that fails if one of `problems` (what -> names) is not empty."""
    named = (f"{what}: {', '.join(first_of(names, NAMES_SHOWN))}" for what, names in problems.items() if names)
    problem = "; ".join(named)
    return check(claim, False if problem else True if shown else None, problem or finding)


def as_json(checks: Sequence[CheckResult]) -> dict[str, Any]:
    """The keys `checks` and `ok` of a report."""
    ok = {result: value for value, result in RESULTS.items()}
    listed = [
        {"name": each.claim, "ok": ok[each.result], "found": "; ".join([each.finding, *each.examples])}
        for each in checks
    ]
    return {"checks": listed, "ok": all(each["ok"] is not False for each in listed)}


def failing(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The checks of a report that do not hold."""
    return [each for each in report["checks"] if each["ok"] is False]


def table(report: Mapping[str, Any]) -> Table:
    """The report's checks for the terminal."""
    shown = Table(title="Checks", title_justify="left", show_header=False)
    for each in report["checks"]:
        shown.add_row(STYLES[each["ok"]], escape(each["name"]), escape(each["found"]))
    return shown
