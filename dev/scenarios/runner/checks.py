"""The checks of a run: those of `slotkeeper audit`, and its own in the same form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from slotkeeper_cli.audit.check_result import CheckResult, Result, first_of

STYLES = {Result.HOLDS: "[green]holds[/]", Result.FAILS: "[bold red]FAILS[/]", Result.NOT_SHOWN: "[yellow]not shown[/]"}
NAMES_SHOWN = 5


def check(claim: str, ok: bool | None, finding: str) -> CheckResult:
    """A check of a run. `ok` is None if nothing happened that could have violated the claim."""
    result = Result.NOT_SHOWN if ok is None else Result.HOLDS if ok else Result.FAILS
    return CheckResult("", claim, result, finding)


def check_none(claim: str, problems: Mapping[str, Sequence[str]], finding: str, *, shown: bool = True) -> CheckResult:
    """A check that fails if one of `problems` (what -> names) is not empty."""
    named = (f"{what}: {', '.join(first_of(names, NAMES_SHOWN))}" for what, names in problems.items() if names)
    problem = "; ".join(named)
    return check(claim, False if problem else True if shown else None, problem or finding)


def found(check: CheckResult) -> str:
    """The finding of a check with its examples."""
    return "; ".join([check.finding, *check.examples])


def as_json(checks: Sequence[CheckResult]) -> dict[str, Any]:
    """The keys `checks` and `ok` of a report."""
    ok = {Result.HOLDS: True, Result.FAILS: False, Result.NOT_SHOWN: None}
    listed = [{"name": each.claim, "ok": ok[each.result], "found": found(each)} for each in checks]
    return {"checks": listed, "ok": not failing(checks)}


def failing(checks: Sequence[CheckResult]) -> list[CheckResult]:
    """The checks that do not hold."""
    return [each for each in checks if each.result is Result.FAILS]


def table(checks: Sequence[CheckResult]) -> Table:
    """The checks for the terminal."""
    shown = Table(title="Checks", title_justify="left", show_header=False)
    for each in checks:
        shown.add_row(STYLES[each.result], escape(each.claim), escape(found(each)))
    return shown
