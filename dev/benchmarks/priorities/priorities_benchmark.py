"""Priorities: urgent requests under a backlog, and one process with weights next to two halves, in virtual time."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dev.benchmarks import machine
from dev.benchmarks.outcome import Notify, Outcome

from . import priorities_chart, priorities_report
from .priorities_report import Figures
from .priorities_run import run_backlogs, run_mixes, run_turns

TITLE = "Priorities and weights: urgent requests under a backlog, and a limit in DPUs"
MINUTES = 0.6
SEEDS = (1, 2, 3, 4, 5)
SMALL = 0.1  # of all numbers
CHART = "priorities.png"
RUNS = {"backlogs": run_backlogs, "mixes": run_mixes, "turns": run_turns}


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Run all traces with all designs, and draw the picture into `folder`."""
    seeds, scale = (SEEDS[:1], SMALL) if small else (SEEDS, 1.0)
    runs = [(name, seed, scale) for name in RUNS for seed in seeds]
    figures: Figures = {}
    notify("simulate", 0.0)
    with ProcessPoolExecutor(machine.processors()) if not small else nullcontext() as pool:
        found = pool.map(_run, runs) if pool else map(_run, runs)
        for count, ((name, _, _), traces) in enumerate(zip(runs, found, strict=True), 1):
            for trace, designs in traces.items():
                for design, measured in designs.items():
                    figures.setdefault(name, {}).setdefault(trace, {}).setdefault(design, []).append(measured)
            notify("simulate", count / len(runs))
    priorities_chart.draw(folder / CHART, figures["backlogs"]["weight 1"])
    return priorities_report.outcome(figures)


def _run(run: tuple[str, int, float]) -> dict[str, dict[str, Any]]:
    name, seed, scale = run
    return RUNS[name](seed, scale)
