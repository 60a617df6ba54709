"""The report: on the screen, and as a file that may be sent to others.

Account numbers, tokens, receipt handles and signed URLs are masked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

from tests.facts.facts import Fact
from tests.facts.smoke import COST, MAILS, Result, Verdict
from tests.facts.stack import StackUnderTest

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
    answer = json.loads(json.dumps(result.answer, default=repr))
    return asked | {"verdict": result.verdict, "answer": answer, "means": result.means}


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


def show(console: Console, report: Mapping[str, Any]) -> None:
    """Print what is not as expected, and the numbers of verdicts."""
    for each in report["answers"]:
        if each["verdict"] in (Verdict.AS_EXPECTED, Verdict.NOT_TRIED):
            continue
        style = "bold red" if each["verdict"] == Verdict.DIFFERENT else "yellow"
        console.print(escape(f"{each['name']} {each['verdict']}: {each['fact']}"), style=style, highlight=False)
        answer = "" if each["answer"] is None else f"AWS answered {json.dumps(each['answer'])}. It means: "
        console.print(escape(f"    {answer}{each['means']}"), highlight=False)
    for left in report["left_behind"]:
        console.print(f"[bold red]left behind[/] by {escape(left)}", highlight=False)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report["verdicts"].items() if count)
    console.print(f"{report['run']}, {report['stack']}, {report['aws']} AWS, {report['region']}. Rows: {counts}.")


def show_catalogue(console: Console, facts: Sequence[Fact]) -> None:
    """Print each row with its source, and what depends on it."""
    for fact in facts:
        depends = f" It matters for: {fact.depends}." if fact.depends else ""
        console.print(f"[bold]{fact.group}[/] {fact.name}: {escape(fact.statement)}", highlight=False, soft_wrap=True)
        console.print(escape(f"    {fact.source}.{depends}"), highlight=False, soft_wrap=True)


def show_plan(console: Console, facts: Sequence[Fact]) -> None:
    """Print how many rows will run, what all cost, and the mails that they send."""
    groups = Counter(fact.group for fact in facts)
    console.print(", ".join(f"{count} rows of {group}" for group, count in groups.items()), highlight=False)
    console.print(f"They run in parallel and take about ten minutes. All rows together cost {COST}.")
    if mails := sum(fact.name in MAILS for fact in facts):
        console.print(f"{mails} failed requests are sent to the stack's topic on purpose; alarms may go off.")
