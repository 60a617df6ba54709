"""`slotkeeper doctor`: check a stack, and advise."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper_cli.account import Account
from slotkeeper_cli.attention import CHECKS, DRIFT
from slotkeeper_cli.context import current_context
from slotkeeper_cli.doctor.health_checks import LEVELS, examine, finding_lines, worst
from slotkeeper_cli.errors import ProblemsFound
from slotkeeper_cli.formatting import count, did_you_mean, iso
from slotkeeper_cli.output import Block, width_of, wrapped
from slotkeeper_cli.status import not_deployed_text


def _names(incomplete: str) -> list[tuple[str, str]]:
    """The checks that a shell completes, each with its statement."""
    return [(check.name, check.about) for check in CHECKS if check.name.startswith(incomplete)]


def doctor(
    stack_drift: Annotated[
        bool, typer.Option("--stack-drift", help="Also detect stack drift with CloudFormation, which takes minutes.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Name of a check; may be repeated. By default all checks run.", autocompletion=_names),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show also the checks that found nothing.")] = False,
) -> None:
    """Check the deployment, and advise what to do.

    It checks slots, jobs, queues, functions, alarms and retries. Problems are shown first, then warnings, which may be
    intended. Exit code 5 if there is a problem, 0 if there are only warnings. Changes nothing.
    """
    context = current_context()
    checks = {check.name: check for check in ((*CHECKS, DRIFT) if stack_drift else CHECKS)}
    if unknown := sorted(set(only or ()) - checks.keys()):
        raise typer.BadParameter(
            f"--only: no check {', '.join(unknown)}.{did_you_mean(unknown[0], checks)} "
            f"The checks are: {', '.join(sorted(checks))}"
        )
    chosen = [check for name, check in checks.items() if not only or name in only]
    account, now = Account(context.stack), time.time()
    with context.out.progress() as progress:
        results = list(progress.track(examine(account, chosen, now), total=len(chosen), description="checks"))
    data = {
        "stack": context.stack.name,
        "at": iso(now),
        "worst": worst(result.level for result in results),
        "checks": [result.as_dict() for result in results],
        "not_deployed": [flow.name for flow in context.stack.not_deployed],
    }
    context.out.result(data, lambda console: _render(console, data, now, every or bool(only)))
    if problems := [result.check.name for result in results if result.level == "bad"]:
        found = count(len(problems), "check found a problem", "checks found a problem")
        raise ProblemsFound(f"{found}: {', '.join(problems)}")


def _render(console: Console, data: dict[str, Any], now: float, every: bool) -> None:
    """Print the findings, the worst first, and the number of checks without one, or the statement of each."""
    lines = Block()
    found = [(check["check"], finding) for check in data["checks"] for finding in check["findings"]]
    for name, finding in sorted(found, key=lambda each: LEVELS.index(each[1]["severity"]), reverse=True):
        lines += finding_lines(finding, now, name)
    for check in data["checks"] if every else ():
        if not check["findings"]:
            verified = {"severity": check["level"], "what": check["about"], "since": None, "why": "", "command": None}
            lines += finding_lines(verified, now, check["check"])
    width = width_of(console)
    for line in lines if width is None else wrapped(lines, width):
        console.print(line)
    levels = Counter(check["level"] for check in data["checks"])
    severities = Counter(finding["severity"] for _, finding in found)
    problems, warnings = count(severities["bad"], "problem"), count(severities["warn"], "warning")
    more = f" ({count(levels['ok'], 'check')} shown by --all)" if levels["ok"] and not every else ""
    console.print(f"{problems}, {warnings}, {levels['ok']} ok{more}")
    if text := not_deployed_text(data["not_deployed"]):
        console.print(text, style="dim")
