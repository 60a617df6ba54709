"""The report of long races: a line and a row each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tests.races.slot_races import Outcome


def line(name: str, outcome: Outcome) -> str:
    figures = outcome.figures
    return (
        f"{name}: {figures.operations} steps, {figures.operations / outcome.seconds:.0f} a second, "
        f"{figures.grants} granted, {figures.refusals} refused, {figures.registrations} registered, "
        f"{figures.lost_answers} answers lost; "
        f"checked {figures.writes} writes and {figures.snapshots} snapshots: at most {figures.most_in_use} in use by "
        f"{figures.most_holders} holders, "
        f"{len(outcome.judge.faults)} faults"
    )


def write(outcomes: Mapping[str, Outcome], folder: Path) -> None:
    """report.json."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = {
        name: asdict(outcome.figures)
        | {
            "seconds": round(outcome.seconds, 1),
            "operations_a_second": round(outcome.figures.operations / outcome.seconds, 1),
            "faults": outcome.judge.faults,
        }
        for name, outcome in outcomes.items()
    }
    (folder / "report.json").write_text(json.dumps(rows, indent=2) + "\n")
