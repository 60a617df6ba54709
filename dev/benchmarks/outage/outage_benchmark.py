"""Outage: the worker that watches its downstream, the same worker without, and a plain SQS retry, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dev.benchmarks import machine
from dev.benchmarks.outcome import Notify, Outcome

from . import faults_report, outage_chart, outage_report, partial_faults
from .outage_run import run, scenarios
from .retry_designs import DESIGNS, WATCHING

TITLE = "Outage: a downstream that fails, returns and changes its capacity"
MINUTES = 2
SEEDS = (1, 2)  # of the worker that is judged; the others are measured once
SMALL = 0.04  # of all durations
CHARTS = {"steady": "outage.png", "steps": "steps.png"}


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Run all designs in all scenarios, and draw the pictures into `folder`."""
    chosen = scenarios(SMALL if small else 1.0)
    jobs = [
        (design, scenario, seed)
        for design in DESIGNS
        for seed in (SEEDS if design == WATCHING and not small else SEEDS[:1])
        for scenario in chosen.values()
    ]
    faults = partial_faults.jobs(SMALL if small else 1.0)
    tasks = [partial(run, *job) for job in jobs] + [partial(partial_faults.run_case, job) for job in faults]
    results = _run_all(tasks, notify, 1 if small else machine.processors())
    results, faulty = results[: len(jobs)], list(zip(faults, results[len(jobs) :], strict=True))
    figures: dict[str, Any] = {name: {design: [] for design in DESIGNS} for name in chosen}
    samples: dict[str, dict[str, Any]] = {name: {} for name in chosen}
    for (design, scenario, seed), found in zip(jobs, results, strict=True):
        shown = found.pop("samples")
        if seed == SEEDS[0]:
            samples[scenario.name][design] = shown
        figures[scenario.name][design].append({"seed": seed, **found})
    for name, file in CHARTS.items():
        outage_chart.draw(folder / file, samples[name], chosen[name].capacity)
    outcome = outage_report.outcome(figures)
    outcome.figures["samples"] = {name: samples[name] for name in CHARTS}
    outcome.figures["faults"] = [{"case": name, **arguments, **found} for (name, arguments), found in faulty]
    return replace(
        outcome,
        grids=[*outcome.grids, *faults_report.grids(faulty)],
        goals=[*outcome.goals, *faults_report.goals(faulty)],
    )


def _run_all(jobs: Sequence[Callable[[], dict[str, Any]]], notify: Notify, processes: int) -> list[dict[str, Any]]:
    """The figures of all jobs, in their order."""
    notify("simulate", 0.0)
    if processes == 1:
        return [job() for job in jobs]
    with ProcessPoolExecutor(processes) as pool:
        futures = [pool.submit(job) for job in jobs]
        for count, _ in enumerate(as_completed(futures), 1):
            notify("simulate", count / len(jobs))
        return [future.result() for future in futures]
