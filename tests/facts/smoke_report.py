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

from tests.facts.facts import Fact
from tests.facts.smoke import COST, MAILS, Result, Verdict
from tests.facts.stack import StackUnderTest

COLOURS = {Verdict.AS_EXPECTED: "green", Verdict.DIFFERENT: "bold red"}
LONGEST_TEXT = 2000  # characters of an answer
_MASKS = (
    (re.compile(r"(https?://[^\s?\"]+)\?[^\s\"]+"), r"\1?<query>"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "<access key>"),
    (re.compile(r"(?<!\d)\d{12}(?!\d)"), "<account>"),
    (re.compile(r"[A-Za-z0-9+/=_%-]{100,}"), lambda found: f"<{len(found.group())} characters>"),  # tokens, handles
)


def make(stack: StackUnderTest, run: str, results: Sequence[Result], left: Sequence[str]) -> dict[str, Any]:
    """The report as an object; `ok` is false if an answer is different or something is left behind."""
    verdicts = Counter(result.verdict for result in results)
    remaining = [*left, *(f"{result.fact.name}: {each}" for result in results for each in result.left_behind)]
    report = {
        "stack": stack.name,
        "region": stack.region,
        "aws": "embedded" if stack.local else "real",
        "run": run,
        "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "ok": not verdicts[Verdict.DIFFERENT] and not remaining,
        "verdicts": {verdict: verdicts[verdict] for verdict in Verdict},
        "answers": [_row(result) for result in results],
        "left_behind": remaining,
    }
    masked: dict[str, Any] = mask(report)
    return masked


def _row(result: Result) -> dict[str, Any]:
    fact = result.fact
    asked = {"group": fact.group, "name": fact.name, "fact": fact.statement, "source": fact.source}
    asked["measured"] = callable(fact.expected)
    answer = {"answer": json.loads(json.dumps(result.answer, default=repr)), "means": result.means}
    return asked | {"depends": fact.depends, "verdict": result.verdict} | answer


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
    for column in ("group", "fact", "verdict", "answer, or why there is none"):
        table.add_column(column)
    for each in report["answers"]:
        if each["verdict"] == Verdict.AS_EXPECTED and not each["measured"]:
            found = ""
        else:
            found = each["means"] if each["answer"] is None else json.dumps(each["answer"], ensure_ascii=False)
        verdict = f"[{COLOURS.get(each['verdict'], 'yellow')}]{each['verdict']}[/]"
        table.add_row(each["group"], each["name"], verdict, escape(found))
    console.print(table)
    for each in report["answers"]:
        if each["verdict"] == Verdict.DIFFERENT:
            text = f"{each['name']} is different. It means: {each['means']}"
            console.print(escape(text), style="bold red", highlight=False)
    for left in report["left_behind"]:
        console.print(f"[bold red]left behind[/] by {escape(left)}", highlight=False)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report["verdicts"].items() if count)
    console.print(f"Facts: {counts}.")


def show_catalogue(console: Console, facts: Sequence[Fact]) -> None:
    """Print each row with its source, and what depends on it."""
    for fact in facts:
        console.print(f"[bold]{fact.group}[/] {fact.name}: {escape(fact.statement)}", highlight=False, soft_wrap=True)
        console.print(escape(f"    {fact.source}."), highlight=False, soft_wrap=True)
        if fact.depends:
            console.print(escape(f"    It matters for: {fact.depends}."), highlight=False, soft_wrap=True)


def show_plan(console: Console, facts: Sequence[Fact]) -> None:
    """Print how many rows will run, what all cost, and the mails that they send."""
    groups = Counter(fact.group for fact in facts)
    console.print(", ".join(f"{count} rows of {group}" for group, count in groups.items()), highlight=False)
    console.print(f"They run in parallel and take about ten minutes. All rows together cost {COST}.")
    if mails := sum(fact.name in MAILS for fact in facts):
        console.print(f"{mails} failed requests are sent to the stack's topic on purpose; alarms may go off.")
