"""The report: on the screen, as report.json for programs, and as report.md for tickets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dev.smoke.check_catalogue import BY_NAME
from dev.smoke.check_results import CheckResult, Status
from dev.smoke.costs import AS_OF, Item, total
from dev.smoke.stack_under_test import StackUnderTest

COLOURS = {"passed": "green", "failed": "bold red", "skipped": "yellow", "not shown": "yellow"}


def make(stack: StackUnderTest, run: str, results: Sequence[CheckResult], items: Sequence[Item]) -> dict[str, Any]:
    """The report as an object; `ok` is false if a check failed or something is left behind."""
    checks = [_check_report(result, stack.local) for result in results]
    return {
        "stack": stack.name,
        "region": stack.region,
        "aws": "embedded" if stack.local else "real",
        "run": run,
        "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "ok": not any(check["status"] == Status.FAILED or check["left_behind"] for check in checks),
        "checks": checks,
        "cost": {
            "dollars": 0.0 if stack.local else round(total(items), 4),
            "assumed": AS_OF,
            "items": [] if stack.local else [asdict(item) for item in items],
        },
    }


def _check_report(result: CheckResult, local: bool) -> dict[str, Any]:
    check = BY_NAME[result.name]
    row = asdict(result) | {"seconds": round(result.seconds, 1)}
    row |= {"does": check.does, "expects": check.expects, "because": check.because}
    return row | ({"cannot_be_shown_here": check.unseen} if local else {})


def write(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write report.json and report.md, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "report.json", folder / "report.md"]
    files[0].write_text(json.dumps(report, indent=2) + "\n")
    files[1].write_text(markdown(report))
    return files


def markdown(report: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    where = "the embedded AWS" if report["aws"] == "embedded" else f"AWS, {report['region']}"
    lines = [
        f"# Smoke test of {report['stack']}",
        "",
        f"{report['ended_at']}, {where}, run `{report['run']}`: {'holds' if report['ok'] else 'FAILS'}.",
        "",
        "| check | result | found | seconds |",
        "|---|---|---|---|",
    ]
    for check in report["checks"]:
        lines.append(f"| {check['name']} | {check['status']} | {_cell(check['found'])} | {check['seconds']} |")
    for check in report["checks"]:
        lines += ["", f"## {check['name']}", "", f"It {check['does']}. Expected: {check['expects']}.", ""]
        lines += [f"Reason: {check['because']}."]
        if "cannot_be_shown_here" in check:
            lines += ["", f"Cannot be shown here: {check['cannot_be_shown_here']}."]
        lines += [f"\nLeft behind: {each}" for each in check["left_behind"]]
    if report["cost"]["items"]:
        lines += [
            "",
            "## Cost",
            "",
            f"Estimated by {report['cost']['assumed']}.",
            "",
            "| what | arithmetic | $ |",
            "|---|---|---|",
        ]
        lines += [
            f"| {each['what']} | {each['arithmetic']} | {each['dollars']:.5f} |" for each in report["cost"]["items"]
        ]
        lines += [f"| all | | {report['cost']['dollars']:.4f} |"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def show(console: Console, report: Mapping[str, Any]) -> None:
    """Print the report."""
    table = Table(title=f"{report['stack']}: results", title_justify="left")
    for column in ("check", "result", "found", "s"):
        table.add_column(column, justify="right" if column == "s" else "left")
    if report["aws"] == "embedded":
        table.add_column("cannot be shown here")
    for check in report["checks"]:
        colour = COLOURS[check["status"]]
        cells = [check["name"], f"[{colour}]{check['status']}[/]", escape(check["found"]), f"{check['seconds']:.0f}"]
        table.add_row(*cells, *([escape(check["cannot_be_shown_here"])] if "cannot_be_shown_here" in check else []))
    console.print(table)
    for check in report["checks"]:
        for left in check["left_behind"]:
            console.print(f"[bold red]left behind[/] by {check['name']}: {escape(left)}", highlight=False)


def show_plan(console: Console, names: Sequence[str], items: Sequence[Item], mails: int) -> None:
    """Print the checks that will run, and their cost."""
    table = Table(title="What it costs", title_justify="left", show_footer=True)
    table.add_column("what", footer="all")
    table.add_column("arithmetic")
    table.add_column("$", footer=f"{total(items):.4f}", justify="right")
    for item in items:
        table.add_row(item.what, item.arithmetic, f"{item.dollars:.5f}")
    console.print(f"Checks: {', '.join(names)}. They run in parallel and take about ten minutes.")
    console.print(table)
    console.print(f"Assumed: {AS_OF}. Other regions cost up to half as much again.", highlight=False)
    if mails:
        console.print(f"{mails} failed requests are sent to the stack's topic on purpose; alarms may go off.")
