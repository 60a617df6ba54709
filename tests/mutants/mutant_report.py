"""Output of the gate: a line for each mutant, a table at the end, and both reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from tests.mutants.mutant_catalogue import ROWS, Mutant
from tests.mutants.trial import Verdict

COLOURS = {"caught": "green", "survived": "bold red", "broken": "bold red", "hung": "bold red", "stale": "bold red"}


def short(verdict: Verdict) -> str:
    """The test's id without its folders."""
    return verdict.test.rsplit("/", 1)[-1]


def line(verdict: Verdict) -> str:
    """One verdict in rich's markup."""
    status = f"[{COLOURS[verdict.status]}]{verdict.status:8}[/]"
    text = short(verdict) if verdict.status == "caught" else f"{verdict.test} {verdict.message}".strip()
    aside = "" if verdict.by_guard or verdict.status != "caught" else " [yellow](not one of its guards)[/]"
    return f"{status} {verdict.mutant} [dim]{verdict.seconds:.1f} s[/] {escape(text)}{aside}"


def table(mutants: Sequence[Mutant], verdicts: Mapping[str, Verdict]) -> Table:
    made = Table("mutant", "verdict", "test and message", title="Known bugs", title_justify="left")
    for mutant in mutants:
        verdict = verdicts[mutant.name]
        text = " ".join(filter(None, [short(verdict), f"[dim]{escape(verdict.message[:120])}[/]"]))
        made.add_row(mutant.name, f"[{COLOURS[verdict.status]}]{verdict.status}[/]", text)
    return made


def summary(verdicts: Mapping[str, Verdict], seconds: float) -> str:
    caught = sum(verdict.status == "caught" for verdict in verdicts.values())
    return f"{caught} of {len(verdicts)} known bugs were caught, in {seconds:.0f} s"


def write(
    folder: Path,
    mutants: Sequence[Mutant],
    verdicts: Mapping[str, Verdict],
    reasons: Mapping[str, str],
    seconds: float,
) -> None:
    """Write report.json and report.md."""
    judged = [
        {"name": m.name, "flow": m.flow, "rows": m.rows, "bug": m.bug, "verdict": asdict(verdicts[m.name])}
        for m in mutants
    ]
    document = {"seconds": round(seconds, 1), "mutants": judged, "nowhere": reasons}
    (folder / "report.json").write_text(json.dumps(document, indent=2) + "\n")
    (folder / "report.md").write_text("\n".join(_markdown(mutants, verdicts, reasons, seconds)) + "\n")


def _markdown(
    mutants: Sequence[Mutant], verdicts: Mapping[str, Verdict], reasons: Mapping[str, str], seconds: float
) -> list[str]:
    lines = ["# Known bugs", "", f"{summary(verdicts, seconds)}.", ""]
    for flow in dict.fromkeys(mutant.flow for mutant in mutants):
        lines += [f"## {flow}", "", "| mutant | bug | verdict | test |", "|---|---|---|---|"]
        for mutant in (m for m in mutants if m.flow == flow):
            verdict = verdicts[mutant.name]
            by = f"`{short(verdict)}`: {_cell(verdict.message)}" if verdict.test else _cell(verdict.message)
            lines.append(f"| {mutant.name} | {_cell(mutant.bug)} | {verdict.status} | {by} |")
        lines.append("")
    lines += ["## Known failures", "", "| row | mutants |", "|---|---|"]
    for row in ROWS:
        names = [mutant.name for mutant in mutants if row in mutant.rows]
        lines.append(f"| {row} | {', '.join(names) or _cell(reasons.get(row, 'not tried in this run'))} |")
    return lines


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
