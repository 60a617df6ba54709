"""Rate: how many requests start of those that a rate allows, on the embedded AWS with the deployed stack.

The rates have the engine to themselves, one after the other. Each has a full queue and more slots than it can use.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from dev.benchmarks.hand_off.benchmark_stack import BenchmarkStack
from dev.benchmarks.outcome import Goal, Grid, Notify, Outcome
from dev.scenarios.runner.scenario import CannotContinue
from slotkeeper.slots.rate import Rate

TITLE = "Rate: the starts of a full queue"
MINUTES = 5
SLOTS = 40
CHILD_MS = 1000
USED, SLACK = 0.95, 1.0  # seconds from the clock that counts a start to its record
# Rate -> seconds of its window.
FULL = {Rate(10, 60): 120.0, Rate(1, 1): 60.0, Rate(10, 1): 30.0, Rate(10, 1, 10): 30.0}
SMALL = {Rate(60, 60): 4.0}


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Deploy, measure and read the records. Raises EngineError, DeploymentError and CannotContinue."""
    figures = {}
    notify("start and deploy")
    with BenchmarkStack.start(folder / "engine") as stack:
        for number, (rate, seconds) in enumerate((SMALL if small else FULL).items()):
            notify(f"measure {rate}")
            figures[str(rate)] = observe(stack, f"rate{number}", rate, seconds)
    return outcome(figures)


def observe(stack: BenchmarkStack, process: str, rate: Rate, seconds: float) -> dict[str, Any]:
    """Fill the queue, wait, and read what has started. Then the process is paused, so that the next has the engine.

    Raises CannotContinue if the queue became empty.
    """
    stack.process(process, SLOTS)
    stack.processes.set_rate(process, rate)
    sent = time.time()
    allowed = rate.burst + seconds * rate.count / rate.seconds
    stack.send(process, [f"r{number}" for number in range(round(allowed) + SLOTS)], {"ms": CHILD_MS})
    time.sleep(seconds)
    stack.processes.pause(process)
    if all("place" not in row for row in stack.rows(process)):
        raise CannotContinue(f"the queue became empty at {rate}: it would show nothing")
    starts = [each["startDate"].timestamp() for each in stack.executions(process)]
    return figures_of(rate, sorted(start for start in starts if sent <= start <= sent + seconds))


def figures_of(rate: Rate, starts: Sequence[float]) -> dict[str, Any]:
    """The figures of these starts, in seconds since the epoch. Raises CannotContinue for fewer than two."""
    if len(starts) < 2:
        raise CannotContinue(f"{len(starts)} requests started at {rate}: there is nothing to measure")
    lasted = starts[-1] - starts[0]
    return {
        "starts": len(starts),
        "seconds": lasted,
        "used": (len(starts) - rate.burst) / (lasted * rate.count / rate.seconds),
        "interval": median(later - earlier for earlier, later in pairwise(starts)),
        "above": above(rate, starts),
    }


def above(rate: Rate, starts: Sequence[float]) -> float:
    """By how many starts the records are above the bound in any time, at most; 0 or less: never."""
    most, ahead = float("-inf"), float("-inf")
    for number, at in enumerate(starts):
        counted = at * rate.count / rate.seconds
        ahead = max(ahead, counted - number)
        most = max(most, number + 1 + ahead - counted - rate.burst - SLACK * rate.count / rate.seconds)
    return most


def outcome(figures: dict[str, dict[str, Any]]) -> Outcome:
    rows = [
        (
            name,
            f"{each['starts']}",
            f"{each['seconds']:.1f} s",
            f"{each['used']:.1%}",
            f"{each['interval'] * 1000:,.0f} ms",
        )
        for name, each in figures.items()
    ]
    grid = Grid(
        "The starts of a full queue",
        ("rate", "starts", "in", "of the rate", "median interval"),
        rows,
        f"{SLOTS} slots, state machines of {CHILD_MS / 1000:g} s. By Step Functions' records, without the burst.",
    )
    goals = [
        Goal(f"{name}: at least {USED:.0%} of the rate", f"{each['used']:.1%}", each["used"] >= USED)
        for name, each in figures.items()
    ]
    worst = max(each["above"] for each in figures.values())
    goals.append(Goal("never more than the rate allows", f"{worst:+.1f} starts", worst <= 0))
    return Outcome([grid], goals, figures)
