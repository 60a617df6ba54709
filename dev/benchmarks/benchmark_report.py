"""The report of a run: the machine, the goals and all tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dev.benchmarks.outcome import Goal, Outcome


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
