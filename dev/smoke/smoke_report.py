"""The report: on the screen and as report.txt, and as report.json for programs.

Both files may be sent to others: account numbers, tokens, receipt handles and signed URLs are masked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dev.smoke.check_catalogue import COST, Check
from dev.smoke.facts import CheckResult, FactAnswer, Verdict
from dev.smoke.stack_under_test import StackUnderTest

COLOURS = {Verdict.AS_ASSUMED: "green", Verdict.DIFFERENT: "bold red"}
LONGEST_TEXT = 2000  # characters of an answer
_MASKS = (
    (re.compile(r"(https?://[^\s?\"]+)\?[^\s\"]+"), r"\1?<query>"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "<access key>"),
    (re.compile(r"(?<!\d)\d{12}(?!\d)"), "<account>"),
    (re.compile(r"[A-Za-z0-9+/=_%-]{100,}"), lambda found: f"<{len(found.group())} characters>"),  # tokens, handles
)


def make(stack: StackUnderTest, run: str, results: Sequence[CheckResult]) -> dict[str, Any]:
    """The report as an object; `ok` is false if an answer is different or something is left behind."""
    verdicts = Counter(answer.verdict for result in results for answer in result.answers)
    left = [f"{result.name}: {each}" for result in results for each in result.left_behind]
    report = {
        "stack": stack.name,
        "region": stack.region,
        "aws": "embedded" if stack.local else "real",
        "run": run,
        "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "ok": not verdicts[Verdict.DIFFERENT] and not left,
        "verdicts": {verdict: verdicts[verdict] for verdict in Verdict},
        "answers": [_row(result.name, answer) for result in results for answer in result.answers],
        "left_behind": left,
    }
    masked: dict[str, Any] = mask(report)
    return masked


def _row(check: str, answer: FactAnswer) -> dict[str, Any]:
    fact = answer.fact
    asked = {"check": check, "name": fact.name, "asks": fact.asks, "expects": fact.expects, "depends": fact.depends}
    return asked | {"verdict": answer.verdict, "answer": answer.answer, "means": answer.means}


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


def write(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write report.json and report.txt, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "report.json", folder / "report.txt"]
    files[0].write_text(json.dumps(report, indent=2) + "\n")
    with files[1].open("w") as file:
        show(Console(file=file, width=140), report)
    return files


def show(console: Console, report: Mapping[str, Any]) -> None:
    """Print the report."""
    title = f"{report['stack']}, {report['aws']} AWS, {report['region']}, {report['ended_at']}, {report['run']}"
    table = Table(title=title, title_justify="left")
    for column in ("check", "fact", "verdict", "answer, or why there is none"):
        table.add_column(column)
    for each in report["answers"]:
        found = each["means"] if each["answer"] is None else json.dumps(each["answer"], ensure_ascii=False)
        verdict = f"[{COLOURS.get(each['verdict'], 'yellow')}]{each['verdict']}[/]"
        table.add_row(each["check"], each["name"], verdict, escape(found))
    console.print(table)
    for each in report["answers"]:
        if each["verdict"] == Verdict.DIFFERENT:
            text = f"{each['name']} is different. It means: {each['means']}"
            console.print(escape(text), style="bold red", highlight=False)
    for left in report["left_behind"]:
        console.print(f"[bold red]left behind[/] by {escape(left)}", highlight=False)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report["verdicts"].items() if count)
    console.print(f"Facts: {counts}.")


def show_catalogue(console: Console, checks: Sequence[Check]) -> None:
    """Print each check, and each of its facts with what depends on it."""
    for check in checks:
        console.print(f"[bold]{check.name}[/] {escape(check.does)}", highlight=False)
        for fact in check.facts:
            console.print(escape(f"  {fact.name}: {fact.asks}"), highlight=False, soft_wrap=True)
            console.print(escape(f"    Assumed: {fact.expects}."), highlight=False, soft_wrap=True)
            console.print(escape(f"    It matters for: {fact.depends}."), highlight=False, soft_wrap=True)


def show_plan(console: Console, checks: Sequence[Check]) -> None:
    """Print the checks that will run, what all checks cost, and the mails that they send."""
    for check in checks:
        console.print(escape(f"{check.name:10} {check.does}"), highlight=False)
    console.print(f"They run in parallel and take about ten minutes. All checks together cost {COST}.")
    if mails := sum(check.mails for check in checks):
        console.print(f"{mails} failed requests are sent to the stack's topic on purpose; alarms may go off.")
