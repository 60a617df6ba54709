"""The outcome of a benchmark, the conditions of its measurement, and the report with both."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from dev.emulator.environment import ROOT

Notify = Callable[[str], None]  # receives the current step

PACKAGES = ("boto3", "botocore", "ministack", "aws-sam-cli")


@dataclass(frozen=True)
class Grid:
    """A table of formatted numbers. Its first column is text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    def rich(self) -> Table:
        table = Table(title=self.title, title_justify="left", caption=self.caption, caption_justify="left")
        for number, name in enumerate(self.columns):
            table.add_column(name, justify="right" if number else "left", no_wrap=not number)
        for row in self.rows:
            table.add_row(*map(escape, row))
        return table

    def markdown(self) -> str:
        """The table without its title."""
        marks = ["---", *["---:"] * (len(self.columns) - 1)]
        lines = [f"| {' | '.join(row)} |" for row in (self.columns, marks, *self.rows)]
        return "\n".join(lines) + (f"\n\n{self.caption}" if self.caption else "")


@dataclass(frozen=True)
class Goal:
    """A goal, the measured value, and whether the goal is met."""

    aim: str
    found: str
    met: bool

    def __str__(self) -> str:
        return f"{'met' if self.met else 'MISSED'}: {self.aim}; measured: {self.found}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one benchmark. `figures`: for report.json."""

    grids: Sequence[Grid]
    goals: Sequence[Goal]
    figures: dict[str, Any]


def about() -> dict[str, str]:
    """The machine, the versions and the date. The load is the average number of busy processes of the last minute."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": _revision(),
        "processor": f"{_processor()}, {os.cpu_count()} logical processors, load {os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "packages": ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES),
    }


def _processor() -> str:
    listed = Path("/proc/cpuinfo")  # Linux only; otherwise the kind of processor
    lines = listed.read_text().splitlines() if listed.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _revision() -> str:
    """Of the tree, with a + if it has changes. "-" without git."""
    try:
        command = ["git", "describe", "--always", "--dirty=+"]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "-"
    return answer.stdout.strip()


def as_json(about: Mapping[str, str], done: Mapping[str, Outcome], failed: Mapping[str, str]) -> dict[str, Any]:
    """The content of report.json. `failed`: benchmark -> error."""
    parts = {
        name: {"goals": [asdict(goal) for goal in each.goals], "figures": each.figures} for name, each in done.items()
    }
    return {"about": dict(about), "parts": parts, "failed": dict(failed)}


def as_markdown(about: Mapping[str, str], done: Mapping[str, Outcome], failed: Mapping[str, str]) -> str:
    """The content of report.md."""
    blocks = ["# Measurements", "\n".join(f"- {name}: {text}" for name, text in about.items())]
    blocks += [f"**{name} was not measured:** {error}" for name, error in failed.items()]
    for name, outcome in done.items():
        blocks += [f"## {name}", "\n".join(f"- {goal}" for goal in outcome.goals)]
        for grid in outcome.grids:
            blocks += [f"### {grid.title}", grid.markdown()]
    return "\n\n".join(blocks) + "\n"
