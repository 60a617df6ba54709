"""The page of a run: what was measured on what, the goals, and every table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dev.benchmarks.outcome import Goal, Outcome


@dataclass(frozen=True)
class Measured:
    """A part that has run. `load` is the machine's before it began; see machine.load."""

    name: str
    title: str
    seconds: float
    load: float
    outcome: Outcome


def as_json(about: Mapping[str, str], parts: Sequence[Measured], failed: Mapping[str, str]) -> dict[str, Any]:
    """For programs. `failed`: why a part could not be measured, by its name."""
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
    """For people."""
    blocks = ["# What was measured", "\n".join(f"- {name}: {text}" for name, text in about.items())]
    blocks += [f"**{name} was not measured:** {why}" for name, why in failed.items()]
    for part in parts:
        blocks.append(f"## {part.title}")
        blocks.append(f"`{part.name}`, {part.seconds:.0f} s; load of the machine before: {part.load:.1f}")
        blocks += ["\n".join(_goal(goal) for goal in part.outcome.goals)] if part.outcome.goals else []
        for grid in part.outcome.grids:
            blocks += [f"### {grid.title}", grid.markdown()]
        blocks += ["\n".join(f"- {note}" for note in part.outcome.notes)] if part.outcome.notes else []
    return "\n\n".join(blocks) + "\n"


def _goal(goal: Goal) -> str:
    return f"- {'met' if goal.met else '**missed**'}: {goal.aim}; found {goal.found}"
