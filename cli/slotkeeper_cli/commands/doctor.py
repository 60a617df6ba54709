"""`slotkeeper doctor`: check a stack, and advise."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from slotkeeper_cli.commands.status import print_not_deployed
from slotkeeper_cli.completion import check_names
from slotkeeper_cli.context import current_context
from slotkeeper_cli.doctor import CHECKS, DRIFT
from slotkeeper_cli.doctor.facts import Facts
from slotkeeper_cli.doctor.health_checks import Finding, HealthCheckResult, examine, worst
from slotkeeper_cli.errors import ProblemsFound
from slotkeeper_cli.formatting import count, did_you_mean, iso
from slotkeeper_cli.output import styled

_NAME_WIDTH = 20
_STYLES = {"absent": "dim", "ok": "green", "warn": "yellow", "problem": "red"}


def doctor(
    stack_drift: Annotated[
        bool, typer.Option("--stack-drift", help="Also detect stack drift with CloudFormation, which takes minutes.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Name of a check; may be repeated. By default all checks run.", autocompletion=check_names),
    ] = None,
) -> None:
    """Check the deployment, and advise what to do.

    It checks slots, jobs, queues, functions, alarms and retries. Exit code 5 if there is a problem, 0 if there are only
    warnings. Changes nothing.
    """
    context = current_context()
    checks = {check.name: check for check in ((*CHECKS, DRIFT) if stack_drift else CHECKS)}
    if unknown := sorted(set(only or ()) - checks.keys()):
        raise typer.BadParameter(
            f"--only: no check {', '.join(unknown)}.{did_you_mean(unknown[0], checks)} "
            f"The checks are: {', '.join(sorted(checks))}"
        )
    chosen = [check for name, check in checks.items() if not only or name in only]
    facts = Facts(context.stack)
    with context.out.progress() as progress:
        results = list(progress.track(examine(facts, chosen), total=len(chosen), description="checks"))
    data = {
        "stack": context.stack.name,
        "at": iso(facts.now),
        "worst": worst(result.level for result in results),
        "checks": [result.as_dict() for result in results],
        "not_deployed": facts.not_deployed,
    }
    context.out.result(data, lambda console: _render(console, results, facts.not_deployed))
    if problems := [result.check.name for result in results if result.level == "problem"]:
        found = count(len(problems), "check found a problem", "checks found a problem")
        raise ProblemsFound(f"{found}: {', '.join(problems)}")


def _render(console: Console, results: list[HealthCheckResult], not_deployed: list[str]) -> None:
    """Print each finding (level, check, what was found, what to do), or else what a check verified."""
    for result in results:
        verified = f"not checked: {result.check.flow} is not deployed" if result.is_absent else result.about
        for finding in result.findings or (Finding(result.level, verified, ""),):
            level = (f"{finding.level:<8}", _STYLES[finding.level])
            console.print(Text.assemble(level, f"{result.check.name:<{_NAME_WIDTH}}", styled(finding.saw)))
            if finding.do:
                console.print(" " * (8 + _NAME_WIDTH) + f"-> {finding.do}")
    found = Counter(finding.level for result in results for finding in result.findings)
    ok = sum(result.level == "ok" for result in results)
    console.print()
    console.print(f"{ok} ok, {count(found['warn'], 'warning')}, {count(found['problem'], 'problem')}")
    print_not_deployed(console, not_deployed)
