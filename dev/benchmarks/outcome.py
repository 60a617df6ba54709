"""The outcome of a part of the benchmark: tables, goals, figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
