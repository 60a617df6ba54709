"""The tables and goals of the partial faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dev.benchmarks.outcome import Goal, Grid

from .other_breakers import RULES
from .partial_faults import BREAKERS, CONTAINERS, FAULTS, HELD_BACK, MINUTES, REDRIVEN, WITHOUT_BUDGET, Job
from .retry_designs import UNWATCHED, WATCHING

SHARE_COMPLETED = 0.95
CALLS_IN_OUTAGE = 40
MORE_WAIT = 2.0  # seconds
REDRIVE_RATIO = 1.3

Found = Sequence[tuple[Job, Mapping[str, Any]]]


def grids(found: Found) -> list[Grid]:
    """The tables. `found`: the jobs with their figures."""
    return [_partial(found), _costs(found)]


def _partial(found: Found) -> Grid:
    rows = []
    for design in BREAKERS:
        cells = [
            _percent(_one(found, "partial", name=name, containers=count, design=design)["completed"])
            for count in CONTAINERS
            for name in FAULTS
        ]
        calls = [f"{_one(found, 'outage', containers=count, design=design)['calls']:,}" for count in CONTAINERS]
        rows.append((design, *cells, *calls))
    heads = [f"{count}: {fault.title}" for count in CONTAINERS for fault in FAULTS.values()]
    outages = [f"{count}: calls in 5 min down" for count in CONTAINERS]
    caption = (
        f"Requests completed at the end of {MINUTES} minutes, with 3 and 10 containers, and calls while the downstream "
        "is down for five minutes. The libraries' rules are the default values of their documentation, with one state "
        "for all containers."
    )
    return Grid("Partial faults", ("design", *heads, *outages), rows, caption)


def _costs(found: Found) -> Grid:
    rows = []
    first = next(iter(RULES))
    for count in CONTAINERS:
        for design in (WATCHING, first):
            waits = [
                _one(found, "shared-queue", containers=count, design=design, held_back=held)["wait"]
                for held in (0, HELD_BACK)
            ]
            title = f"p99 wait of a healthy downstream, {count} containers: alone, next to {HELD_BACK:,} held back"
            rows.append((title, design, f"{waits[0]:.1f} s, {waits[1]:.1f} s"))
    for design in (UNWATCHED, WATCHING):
        one = _one(found, "hang", design=design)
        text = f"{one['calls']} calls, {one['dead_letters']} dead-lettered"
        rows.append(("two hours in which each call hangs", design, text))
    for design in (WATCHING, WITHOUT_BUDGET):
        seconds = _one(found, "redrive", design=design)["seconds"]
        rows.append((f"95 % of a redrive of {REDRIVEN:,}, 5 % errors", design, f"{seconds:.0f} s"))
    return Grid("What the watch costs and saves", ("case", "design", "measured"), rows, words=2)


def goals(found: Found) -> list[Goal]:
    """The goals of the worker that watches its downstream."""
    shares = [
        _one(found, "partial", name=name, containers=count, design=WATCHING)["completed"]
        / max(1e-9, _one(found, "partial", name=name, containers=count, design=UNWATCHED)["completed"])
        for count in CONTAINERS
        for name in FAULTS
    ]
    outages = [_one(found, "outage", containers=count, design=WATCHING) for count in CONTAINERS]
    calls, spent = max(one["calls"] for one in outages), max(one["spent"] for one in outages)
    more = max(
        _one(found, "shared-queue", containers=count, design=WATCHING, held_back=HELD_BACK)["wait"]
        - _one(found, "shared-queue", containers=count, design=WATCHING, held_back=0)["wait"]
        for count in CONTAINERS
    )
    hang = _one(found, "hang", design=WATCHING)
    ratio = (
        _one(found, "redrive", design=WATCHING)["seconds"] / _one(found, "redrive", design=WITHOUT_BUDGET)["seconds"]
    )
    return [
        _goal(f"partial faults: {SHARE_COMPLETED:.0%} of what no breaker completes", min(shares), _percent, least=0.95),
        _goal(f"five minutes down: at most {CALLS_IN_OUTAGE} calls", calls, str, most=CALLS_IN_OUTAGE),
        _goal("five minutes down: at most one attempt", spent, str, most=1),
        _goal(
            f"next to {HELD_BACK:,} held back: {MORE_WAIT:g} s more", more, lambda wait: f"{wait:.1f} s", most=MORE_WAIT
        ),
        _goal(
            "a hang opens the breaker, and dead-letters nothing",
            hang["dead_letters"] + (not hang["opened"]),
            str,
            most=0,
        ),
        _goal(
            f"redrive: {REDRIVE_RATIO:g} x without the budget", ratio, lambda each: f"{each:.2f} x", most=REDRIVE_RATIO
        ),
    ]


def _goal(
    aim: str, value: float, form: Callable[[Any], str], *, least: float = float("-inf"), most: float = float("inf")
) -> Goal:
    return Goal(aim, form(value), least <= value <= most)


def _one(found: Found, case: str, **arguments: Any) -> Mapping[str, Any]:
    """The figures of the job with these arguments."""
    for (name, given), figures in found:
        if name == case and all(given[key] == value for key, value in arguments.items()):
            return figures
    raise LookupError(f"no {case} with {arguments}")


def _percent(share: float) -> str:
    return f"{share:.0%}"
