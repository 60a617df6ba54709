"""The tables and goals of the outage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from dev.benchmarks.outcome import Goal, Grid, Outcome
from slotkeeper.retry.downstream.health import BreakerSettings

from .outage_run import CAPACITY, CONCURRENCY, TOLERANCE
from .retry_designs import DESIGNS, UNWATCHED, WATCHING

SHARE_OF_CALLS = 0.05
RECOVERY_MORE = 2.0  # seconds
MAX_WINDOWS = 10
TITLES = {
    "steady": "6 messages a second, and 300 at the start",
    "burst": "4,000 messages a minute before the outage",
    "half": "3 messages a second; the downstream returns with half of its capacity",
}

# Scenario -> design -> the figures of each seed.
Figures = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]


def outcome(figures: dict[str, Any]) -> Outcome:
    """The outcome. `figures`: see Figures."""
    grids = [_outage(name, title, figures[name]) for name, title in TITLES.items()]
    return Outcome([*grids, _steps(figures["steps"])], goals(figures), figures, NOTES)


def _outage(name: str, title: str, designs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Grid:
    rows = [
        (
            design,
            _range(runs, "calls_in_outage", _whole),
            _range(runs, "spent", _whole),
            _range(runs, "dead_letters", _whole),
            _range(runs, "first_success", _seconds),
            _range(runs, "empty_after", _seconds),
            _range(runs, "overshoot", _whole),
            _range(runs, "receives", _whole),
        )
        for design, runs in designs.items()
    ]
    columns = (
        "design",
        "calls while down",
        "attempts spent",
        "dead letters",
        "first success",
        "queue empty",
        "429 after return",
        "receives",
    )
    caption = (
        "The downstream is down for 300 s, in the next tables 308 and 316 s. First success and empty queue: seconds "
        "after its return. Attempts spent of the plain retry: receives that failed. Two seeds: smallest to largest."
        if name == "steady"
        else ""
    )
    return Grid(f"Down for 5 of 15 minutes: {title}", columns, rows, caption)


def _steps(designs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Grid:
    rows = []
    for design, runs in designs.items():
        cells = []
        for number in range(len(runs[0]["steps"])):
            steps = [run["steps"][number] for run in runs]
            cells += [_range(steps, "windows", _whole), _range(steps, "mean", lambda mean: f"{mean:.0%}")]
        rows.append((design, *cells, _range(runs, "throttled", _whole), _range(runs, "dead_letters", _whole)))
    heads = [head for callers in (10, 4, 12) for head in (f"to {callers}: windows", "mean")]
    caption = (
        f"Windows of 10 s until the throughput is within {TOLERANCE:.0%} of the capacity, and the mean from then on. "
        f"The first step is the start with all {CONCURRENCY} callers. The queue always has messages."
    )
    return Grid("A capacity that changes", ("design", *heads, "429", "dead letters"), rows, caption)


def goals(figures: Figures) -> list[Goal]:
    """The goals of the worker that watches its downstream: each holds for every scenario and seed."""
    outages = [(figures[name][WATCHING], figures[name][UNWATCHED]) for name in TITLES]
    share = max(
        max(run["calls_in_outage"] for run in mine) / max(1, median(run["calls_in_outage"] for run in others))
        for mine, others in outages
    )
    mine = [run for runs, _ in outages for run in runs]
    spent, lost = max(run["spent"] for run in mine), sum(run["dead_letters"] for run in mine)
    firsts = [run["first_success"] for run in mine]
    first = None if None in firsts else max(firsts)
    recovery = BreakerSettings().recovery
    steps = [step for run in figures["steps"][WATCHING] for step in run["steps"]]
    windows = [step["windows"] for step in steps]
    slowest = None if None in windows else max(windows)
    mean = min(step["mean"] or 0.0 for step in steps)
    return [
        Goal(f"at most {SHARE_OF_CALLS:.0%} of the calls while down", f"{share:.1%}", share <= SHARE_OF_CALLS),
        Goal("at most one attempt spent per outage, and no dead letter", f"{spent}, {lost}", spent <= 1 and not lost),
        Goal(
            f"first success within one recovery time and {RECOVERY_MORE:g} s ({recovery + RECOVERY_MORE:g} s)",
            _seconds(first),
            first is not None and first <= recovery + RECOVERY_MORE,
        ),
        Goal(
            f"throughput within {TOLERANCE:.0%} of the capacity within {MAX_WINDOWS} windows of each step",
            "never" if slowest is None else f"{slowest} windows",
            slowest is not None and slowest <= MAX_WINDOWS,
        ),
        Goal(f"from then on a mean of at least {1 - TOLERANCE:.0%}", f"{mean:.1%}", mean >= 1 - TOLERANCE),
    ]


def _range(runs: Sequence[Mapping[str, Any]], name: str, form: Callable[[Any], str]) -> str:
    values = [run[name] for run in runs]
    if None in values:
        return "never"
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low} to {high}"


def _whole(count: int) -> str:
    return f"{count:,}"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:,.0f} s" if value >= 10 else f"{value:.1f} s"


NOTES = (
    "Virtual time: the real consumer, ledger and downstream rules run over simulated services with calls of 3 to 8 "
    f"ms. The event source runs {CONCURRENCY} invocations, the downstream takes {CAPACITY} callers for 0.8 to 1.2 s "
    "each, and refuses in 50 ms. Equal seeds give equal figures on each machine.",
    f"Designs: {', '.join(DESIGNS)}. The first two differ only in `downstreams`. The plain retry is a handler that "
    "raises: visibility timeout 60 s, maxReceiveCount 5, no ledger. Its queue is empty early because the messages are "
    "in the dead-letter queue.",
    "The pictures are outage.png and steps.png.",
)
