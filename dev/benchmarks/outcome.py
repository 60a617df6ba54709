"""What a part of the benchmark brings home: tables for the eye and for a page, goals, figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.markup import escape
from rich.table import Table

# Says what is being measured now, and the share of the part that is done (0..1).
Tell = Callable[[str, float], None]


@dataclass(frozen=True)
class Grid:
    """A table: the first columns are words, the others numbers, already written as they are to be read."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    words: int = 1

    def rich(self) -> Table:
        """For a terminal."""
        table = Table(title=self.title, title_justify="left", caption=self.caption, caption_justify="left")
        for number, name in enumerate(self.columns):
            # Where there is little room the numbers' heads are broken, not the names of what is compared.
            table.add_column(name, justify="left" if number < self.words else "right", no_wrap=number == 0)
        for row in self.rows:
            table.add_row(*(escape(cell) for cell in row))
        return table

    def markdown(self) -> str:
        """For a page, without the title."""
        marks = ["---" if number < self.words else "---:" for number in range(len(self.columns))]
        lines = [f"| {' | '.join(row)} |" for row in (self.columns, marks, *self.rows)]
        return "\n".join(lines) + (f"\n\n{self.caption}" if self.caption else "")


@dataclass(frozen=True)
class Goal:
    """What was aimed at, what was found, and whether that is it."""

    aim: str
    found: str
    met: bool


@dataclass(frozen=True)
class Outcome:
    """One part.

    Args:
        figures: all that was measured, as JSON has it.
    """

    grids: Sequence[Grid]
    goals: Sequence[Goal]
    figures: dict[str, Any]
    notes: Sequence[str] = field(default=())
