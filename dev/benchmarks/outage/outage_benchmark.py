"""Outage: what the worker completes at a downstream that fails for a time, next to a worker without a breaker."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median

from dev.benchmarks.outcome import Goal, Grid, Notify, Outcome

from .outage_world import Fault, World

TITLE = "Outage: a downstream that fails, recovers, or changes its capacity, and a state that cannot be written"
MINUTES = 15
SECONDS, SEEDS, CONTAINERS = 600.0, (1, 2, 3), (3, 16)
COMPLETED = 0.95
BEGINS, DOWN, OUTAGE_SEEDS, OUTAGE_CONTAINERS = 120.0, 300.0, range(1, 11), (3, 10, 16)
RECOVERIES = (10, 15, 30)  # seconds; the first is built in
CALLS, MEDIAN, WORST = 45, 5.0, 30.0


def down(seconds: float, period: float) -> Callable[[float, Random], bool]:
    """Down for so many seconds at the end of each period."""
    return lambda second, _: second % period >= period - seconds


def first_calls(seconds: float) -> Callable[[float, Random], bool]:
    return lambda second, _: second < seconds


def below(low: int, half: float) -> Callable[[float, int], float]:
    """So few callers, then all, for half a period each."""
    return lambda second, containers: low if second % (2 * half) < half else containers


CASES = {
    "down 2 s of 30 s": Fault(1.33, is_refused=down(2, 30)),
    "down 5 s of 45 s": Fault(1.3, is_refused=down(5, 45)),
    "down 5 s of 45 s, calls of 2 s": Fault(0.35, 2.0, is_refused=down(5, 45)),
    "down 10 s of 60 s": Fault(1.2, is_refused=down(10, 60)),
    "down 3 s of 20 s": Fault(1.2, is_refused=down(3, 20)),
    "down 15 s of 45 s": Fault(0.9, is_refused=down(15, 45)),
    "down 20 s of 40 s": Fault(0.7, is_refused=down(20, 40)),
    "down 1 s of 4 s": Fault(1.1, is_refused=down(1, 4)),
    "down for the first 30 s": Fault(1.3, is_refused=first_calls(30)),
    "down for the first 100 s": Fault(1.3, is_refused=first_calls(100)),
    "10 times slower for 3 min": Fault(1.3, slower=lambda second: 10.0 if 120 <= second < 300 else 1.0),
    "20 % errors": Fault(0.7, 1.0, errors=0.2),
    "20 % errors, immediately": Fault(0.7, 1.0, is_refused=lambda _, random: random.random() < 0.2),
    "40 % errors": Fault(0.5, 1.0, errors=0.4),
    "50 % errors": Fault(0.4, 1.0, errors=0.5),
    "60 % errors": Fault(0.33, 1.0, errors=0.6),
    "70 % errors": Fault(0.24, 1.0, errors=0.7),
    "429 above half of the callers": Fault(0.6, callers=lambda _, containers: containers // 2),
    "429 above 2, then 16 callers, 30 s each": Fault(0.75, callers=below(2, 30)),
    "429 above 2, then 16 callers, 120 s each": Fault(0.75, callers=below(2, 120)),
    "429 above 8, then 16 callers, 30 s each": Fault(0.75, callers=below(8, 30)),
    "0.5 % of the table's calls fail": Fault(1.0, errors=0.1, table=0.005),
    "2 % of the table's calls fail": Fault(1.0, errors=0.1, table=0.02),
    "5 % of the table's calls fail": Fault(1.0, errors=0.1, table=0.05),
}


def completed(case: str, containers: int, seed: int, seconds: float = SECONDS) -> tuple[int, ...]:
    """Completed requests and failed calls of the worker, then of no breaker."""
    built_in: dict[str, object] = {}
    worlds = [World(CASES[case], containers, seed, policy).run(seconds) for policy in (built_in, None)]
    return tuple(count for world in worlds for count in (world.done, len(world.calls) - world.done))


def outage(recovery: float, containers: int, seed: int, seconds: float = DOWN) -> tuple[int, float]:
    """The calls in an outage, and the seconds from its end to the first success."""
    ends = BEGINS + seconds
    fault = Fault(1.33, is_refused=lambda second, _: BEGINS <= second < ends)
    policy = {"downstream": {"breaker": {"recovery_seconds": recovery}}}
    calls = World(fault, containers, seed, policy).run(ends + 60).calls
    first = min(ended for began, ended, answer in calls if began >= ends and answer == 200)
    return sum(BEGINS <= began < ends for began, *_ in calls), first - ends


def measure(_: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Run all cases and outages, on all processors."""
    seconds, share = (120.0, 1) if small else (SECONDS, None)
    cases = list(product(CASES, CONTAINERS, SEEDS[:share]))
    outages = list(product(RECOVERIES, OUTAGE_CONTAINERS, OUTAGE_SEEDS[:share]))
    notify(f"simulate {len(cases)} cases and {len(outages)} outages")
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:  # a process with threads must not be forked
        runs = [pool.submit(completed, *case, seconds) for case in cases]
        lasting = [pool.submit(outage, *each, seconds / 2) for each in outages]
        found = {case: run.result() for case, run in zip(cases, runs, strict=True)}
        return outcome(found, {each: run.result() for each, run in zip(outages, lasting, strict=True)})


def outcome(
    cases: dict[tuple[str, int, int], tuple[int, ...]], outages: dict[tuple[int, int, int], tuple[int, float]]
) -> Outcome:
    """The tables and goals of the runs by (case, containers, seed) and (recovery, containers, seed)."""
    shares, rows = {}, []
    for case in CASES:
        cells = []
        for containers in CONTAINERS:
            runs = [run for (one, other, _), run in cases.items() if (one, other) == (case, containers)]
            done, failed, unwatched, unwatched_failed = map(sum, zip(*runs, strict=True))
            shares[f"{case}, {containers} containers"] = done / unwatched
            cells += [f"{done / unwatched:.0%}", f"{failed / len(runs):,.0f}, {unwatched_failed / len(runs):,.0f}"]
        rows.append((case, *cells))
    columns = ("fault", *(text for n in CONTAINERS for text in (f"{n} containers", "failed calls")))
    caption = "Completed, of what no breaker completes. Failed calls of a run: the worker's, those without a breaker."
    least = min(shares, key=shares.__getitem__)
    goals = [
        Goal(f"at least {COMPLETED:.0%} in every case", f"{shares[least]:.1%}, {least}", shares[least] >= COMPLETED)
    ]
    lasting = []
    for recovery, containers in product(RECOVERIES, OUTAGE_CONTAINERS):
        runs_ = [run for (one, other, _), run in outages.items() if (one, other) == (recovery, containers)]
        calls, first = max(calls for calls, _ in runs_), sorted(first for _, first in runs_)
        lasting.append((f"{recovery} s", str(containers), str(calls), f"{median(first):.1f} s", f"{first[-1]:.1f} s"))
        if recovery == RECOVERIES[0]:
            for aim, value, most in (
                ("calls", calls, CALLS),
                ("seconds, median", median(first), MEDIAN),
                ("seconds, at worst", first[-1], WORST),
            ):
                goals.append(Goal(f"an outage, {containers} containers: {most:g} {aim}", f"{value:.1f}", value <= most))
    header = ("longest wait", "containers", "calls, at most", "first success, median", "at worst")
    grids = [Grid("Faults", columns, rows, caption), Grid("An outage", header, lasting)]
    return Outcome(grids, goals, {"shares": shares, "outages": lasting})
