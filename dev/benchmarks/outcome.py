"""The outcomes of the parts of the benchmark, and the report with all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.markup import escape
from rich.table import Table

# Receives the current step, and the share of the part that is done (0..1).
Notify = Callable[[str, float], None]


@dataclass(frozen=True)
class Grid:
    """A table. The first `words` columns are texts, the others formatted numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    words: int = 1

    def rich(self) -> Table:
        table = Table(title=self.title, title_justify="left", caption=self.caption, caption_justify="left")
        for number, name in enumerate(self.columns):
            # A narrow terminal breaks the headings of numbers, and not the names in the first column.
            table.add_column(name, justify="left" if number < self.words else "right", no_wrap=number == 0)
        for row in self.rows:
            table.add_row(*(escape(cell) for cell in row))
        return table

    def markdown(self) -> str:
        """The table without its title."""
        marks = ["---" if number < self.words else "---:" for number in range(len(self.columns))]
        lines = [f"| {' | '.join(row)} |" for row in (self.columns, marks, *self.rows)]
        return "\n".join(lines) + (f"\n\n{self.caption}" if self.caption else "")


@dataclass(frozen=True)
class Goal:
    """A goal, the measured value, and whether the goal is met."""

    aim: str
    found: str
    met: bool


@dataclass(frozen=True)
class Outcome:
    """The outcome of one part. `figures`: for report.json."""

    grids: Sequence[Grid]
    goals: Sequence[Goal]
    figures: dict[str, Any]
    notes: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Measured:
    """A part that was measured. `load`: of the machine before it; see machine.load."""

    name: str
    title: str
    seconds: float
    load: float
    outcome: Outcome


def as_json(about: Mapping[str, str], parts: Sequence[Measured], failed: Mapping[str, str]) -> dict[str, Any]:
    """The content of report.json. `failed`: part -> error."""
    return {
        "about": dict(about),
        "parts": {
            part.name: {
                "seconds": round(part.seconds, 1),
                "load": part.load,
                "goals": [asdict(goal) for goal in part.outcome.goals],
                "figures": part.outcome.figures,
            }
            for part in parts
        },
        "failed": dict(failed),
    }


def as_markdown(about: Mapping[str, str], parts: Sequence[Measured], failed: Mapping[str, str]) -> str:
    """The content of report.md."""
    blocks = ["# Measurements", "\n".join(f"- {name}: {text}" for name, text in about.items())]
    blocks += [f"**{name} was not measured:** {error}" for name, error in failed.items()]
    for part in parts:
        blocks.append(f"## {part.title}")
        blocks.append(f"`{part.name}`, {part.seconds:.0f} s; load of the machine before it: {part.load:.1f}")
        blocks += ["\n".join(_goal(goal) for goal in part.outcome.goals)] if part.outcome.goals else []
        for grid in part.outcome.grids:
            blocks += [f"### {grid.title}", grid.markdown()]
        blocks += ["\n".join(f"- {note}" for note in part.outcome.notes)] if part.outcome.notes else []
    return "\n\n".join(blocks) + "\n"


def _goal(goal: Goal) -> str:
    return f"- {'met' if goal.met else '**missed**'}: {goal.aim}; measured: {goal.found}"
