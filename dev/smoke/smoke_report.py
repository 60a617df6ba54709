"""The report: on the screen, as report.json for programs, and as report.md for tickets.

Both files may be sent to others: account numbers, tokens, receipt handles and signed URLs are masked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dev.smoke import timings
from dev.smoke.check_catalogue import BY_NAME, Check
from dev.smoke.check_results import CheckResult, Status
from dev.smoke.costs import AS_OF, Item, bill, total
from dev.smoke.facts import Verdict
from dev.smoke.stack_under_test import StackUnderTest

COLOURS = {"passed": "green", "failed": "bold red", "skipped": "yellow", "not shown": "yellow"}
LONGEST_TEXT = 2000  # characters of an answer
_MASKS = (
    (re.compile(r"(https?://[^\s?\"]+)\?[^\s\"]+"), r"\1?<query>"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "<access key>"),
    (re.compile(r"(?<!\d)\d{12}(?!\d)"), "<account>"),
    (re.compile(r"[A-Za-z0-9+/=_%-]{100,}"), lambda found: f"<{len(found.group())} characters>"),  # tokens, handles
)


def make(stack: StackUnderTest, run: str, results: Sequence[CheckResult], items: Sequence[Item]) -> dict[str, Any]:
    """The report as an object; `ok` is false if a check failed or something is left behind."""
    checks = [_check_report(result, stack.local) for result in results]
    report = {
        "stack": stack.name,
        "region": stack.region,
        "aws": "embedded" if stack.local else "real",
        "run": run,
        "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "ok": not any(check["status"] == Status.FAILED or check["left_behind"] for check in checks),
        "facts": {verdict: sum(_verdicts(check)[verdict] for check in checks) for verdict in Verdict},
        "checks": checks,
        "cost": {
            "dollars": 0.0 if stack.local else round(total(items), 4),
            "assumed": AS_OF,
            "items": [] if stack.local else [asdict(item) for item in items],
        },
    }
    masked: dict[str, Any] = mask(report)
    return masked


def mask(value: Any) -> Any:
    """`value` without account numbers, keys, tokens, receipt handles and the queries of URLs; long texts are cut."""
    if isinstance(value, dict):
        return {mask(key): mask(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [mask(each) for each in value]
    if not isinstance(value, str):
        return value
    for pattern, replacement in _MASKS:
        value = pattern.sub(replacement, value)
    return value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}… ({len(value)} characters)"


def _verdicts(check: Mapping[str, Any]) -> Counter[str]:
    return Counter(answer["verdict"] for answer in check["answers"])


def _check_report(result: CheckResult, local: bool) -> dict[str, Any]:
    check = BY_NAME[result.name]
    row = asdict(result) | {"seconds": round(result.seconds, 1)}
    row |= {"does": check.does, "expects": check.expects, "because": check.because}
    facts = {fact.name: fact for fact in check.facts}
    for answer in row["answers"]:
        fact = facts[answer["name"]]
        answer |= {"asks": fact.asks, "expects": fact.expects, "depends": fact.depends}
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
        for answer in check["answers"]:
            lines += ["", *_fact_lines(answer)]
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


def _fact_lines(answer: Mapping[str, Any]) -> list[str]:
    lines = [f"- **{answer['name']}: {answer['verdict']}.** {answer['asks']}", f"  - Assumed: {answer['expects']}."]
    if answer["verdict"] in (Verdict.AS_ASSUMED, Verdict.DIFFERENT):
        lines.append(f"  - Answer: `{json.dumps(answer['answer'], ensure_ascii=False)}`")
    if answer["means"]:
        lines.append(f"  - {'It means' if answer['verdict'] == Verdict.DIFFERENT else 'Reason'}: {answer['means']}.")
    return lines


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
        for answer in check["answers"]:
            if answer["verdict"] == Verdict.DIFFERENT:
                text = f"{check['name']}, {answer['name']}: {json.dumps(answer['answer'])}. It means: {answer['means']}"
                console.print(f"[bold red]different[/] {escape(text)}", highlight=False)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report["facts"].items() if count)
    if counts:
        console.print(f"Facts: {counts}. The answers are in report.md and report.json, which you may send.")
    for check in report["checks"]:
        for left in check["left_behind"]:
            console.print(f"[bold red]left behind[/] by {check['name']}: {escape(left)}", highlight=False)


def show_catalogue(console: Console, checks: Sequence[Check]) -> None:
    """Print each check with its cost, and each of its facts with what depends on it."""
    table = Table(show_lines=True, title="Checks (ONLY= takes their names)", title_justify="left")
    for column in ("check", "does", "expects", "because", "the embedded AWS cannot show", "$"):
        table.add_column(column, justify="right" if column == "$" else "left")
    facts = Table(show_lines=True, title="Facts", title_justify="left")
    for column in ("check", "fact", "question", "assumed", "what depends on it"):
        facts.add_column(column)
    for check in checks:
        cost = f"{total(bill([check.spending(timings.AWS)])):.4f}"
        cells = (check.name, check.does, check.expects, check.because, check.unseen, cost)
        table.add_row(*(escape(text) for text in cells))
        for fact in check.facts:
            manually = f". Manually: {fact.manually}" if fact.manually else ""
            facts.add_row(
                *(escape(text) for text in (check.name, fact.name, fact.asks, fact.expects, fact.depends + manually))
            )
    console.print(table)
    if facts.rows:
        console.print(facts)


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
