"""The tables and goals of priorities and weights. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from dev.benchmarks.outcome import Goal, Grid, Outcome
from slotkeeper.slots.request import PRIORITIES
from slotkeeper_cli.audit.intervals import percentile

from .priorities_run import HALVES, NO_TURNS, TURNS, WEIGHTED, WITH, WITHOUT
from .traces import BURST, DPUS, HEAVY, LIGHT, LOAD, LOW, NORMAL, SLOTS, URGENT_WEIGHTS, WEIGHED_LIMIT, WEIGHTS

P99_HAND_OFFS = 1
MOST_MAKESPAN = 1.02  # x without priorities
USED = 0.9  # of the limit
MOST_OF_HALVES = 1.05  # x the makespan of two halves
MOST_OUT_OF_ORDER = 0.06  # of the starts of a burst
MOST_WITH_TURNS = 1.02  # x the makespan without turns, with jobs of ten seconds or more

# "backlogs" or "mixes" -> trace -> design -> the figures of each seed.
Figures = dict[str, dict[str, dict[str, list[dict[str, Any]]]]]
Designs = Mapping[str, Sequence[Mapping[str, Any]]]


def outcome(figures: Figures) -> Outcome:
    grids = [_waits(figures["backlogs"]), _mixes(figures["mixes"]), _turns(figures["turns"])]
    return Outcome(grids, goals(figures), figures, NOTES)


def _waits(traces: Mapping[str, Designs]) -> Grid:
    rows = []
    for trace, designs in traces.items():
        for priority in PRIORITIES:
            cells = [_spread(_all(runs, "hand_offs", priority), "{:,.0f}") for runs in designs.values()]
            cells += [_spread(_all(runs, "waits", priority), "{:,.0f} s") for runs in designs.values()]
            rows.append((trace, priority, str(len(_all(designs[WITH], "waits", priority))), *cells))
    columns = ("trace", "priority", "requests", "hand-offs", "without", "wait", "without")
    caption = (
        f"Median and p99. Hand-offs after the next release that makes enough free: 1 is the first. A backlog of "
        f"{NORMAL} normal and {LOW} low requests, and an urgent one each 60 to 120 s; jobs of 30 to 90 s. Weight 1: "
        f"{SLOTS} slots. Weights: {WEIGHTS[0]} to {WEIGHTS[1]}, urgent {URGENT_WEIGHTS[0]} to {URGENT_WEIGHTS[1]}, a "
        f"limit of {WEIGHED_LIMIT}. Without: the same requests, all of normal priority."
    )
    return Grid("Wait of a request, with priorities and without", columns, rows, caption, words=2)


def _mixes(traces: Mapping[str, Designs]) -> Grid:
    rows = []
    for trace, designs in traces.items():
        used = [f"{median(run['used'] for run in designs[design]):.1%}" for design in (WEIGHTED, HALVES)]
        rows.append((trace, *used, f"{median(_makespans(designs, WEIGHTED, HALVES)):.2f}"))
    caption = (
        f"A limit of {DPUS} DPUs, jobs of {HEAVY} and {LIGHT} DPUs and 120 to 600 s. Two halves: {DPUS // 2 // HEAVY} "
        f"slots for heavy jobs, {DPUS // 2 // LIGHT} for light ones. Used: DPU seconds of jobs until the last has "
        "ended. Median of the seeds."
    )
    columns = ("trace", "used, one process", "used, two halves", "time to the end, ratio")
    return Grid("One process with weights, next to two with half of the limit", columns, rows, caption)


def _turns(traces: Mapping[str, Designs]) -> Grid:
    rows = []
    for trace, designs in traces.items():
        cells = []
        for figure, form in (("out_of_order", "{:.1%}"), ("last_urgent", "{:,.0f} s"), ("used", "{:.0%}")):
            cells += [form.format(median(run[figure] for run in designs[each])) for each in (TURNS, NO_TURNS)]
        rows.append((trace, *cells))
    caption = (
        f"Bursts: {BURST} urgent and as many low requests wait for slots that one release frees. Loads: {LOAD:.0%} of "
        "the slots, with one urgent request to five normal and four low ones. Out of order: the share of the starts "
        "that are of lower requests while an urgent one waits. Median of the seeds."
    )
    columns = ("trace", "out of order", "no turns", "last urgent start", "no turns", "used", "no turns")
    return Grid("Turns: the order when slots become free, and its cost", columns, rows, caption)


def goals(figures: Figures) -> list[Goal]:
    found = []
    for trace, designs in figures["backlogs"].items():
        counts = {design: percentile(_all(runs, "hand_offs", "high"), 0.99) or 0.0 for design, runs in designs.items()}
        waits = {design: percentile(_all(runs, "waits", "high"), 0.99) or 0.0 for design, runs in designs.items()}
        ratio = median(_makespans(designs, WITH, WITHOUT))
        found += [
            Goal(
                f"{trace}: p99 of urgent requests is one hand-off after the next release that makes enough free",
                f"{counts[WITH]:g}, {waits[WITH]:.0f} s; without priorities {counts[WITHOUT]:g}, "
                f"{waits[WITHOUT]:,.0f} s",
                counts[WITH] <= P99_HAND_OFFS,
            ),
            Goal(
                f"{trace}: all requests end within {MOST_MAKESPAN:.2f} x the time without priorities",
                f"{ratio:.3f} x",
                ratio <= MOST_MAKESPAN,
            ),
        ]
    turns = figures["turns"]
    bursts = {
        trace: median(run["out_of_order"] for run in turns[trace][TURNS]) for trace in turns if "together" in trace
    }
    long = [name for name in turns if not name.endswith(" 1 s")]
    costs = {trace: median(_makespans(turns[trace], TURNS, NO_TURNS)) for trace in long}
    found += [
        Goal(
            f"at most {MOST_OUT_OF_ORDER:.0%} of the starts of a burst are out of order",
            ", ".join(f"{share:.1%}" for share in bursts.values()),
            max(bursts.values()) <= MOST_OUT_OF_ORDER,
        ),
        Goal(
            f"jobs of ten seconds or more end within {MOST_WITH_TURNS:.2f} x the time without turns",
            ", ".join(f"{ratio:.3f} x" for ratio in costs.values()),
            max(costs.values()) <= MOST_WITH_TURNS,
        ),
    ]
    mixes = figures["mixes"]
    used = {trace: median(run["used"] for run in designs[WEIGHTED]) for trace, designs in mixes.items()}
    ratios = {trace: median(_makespans(designs, WEIGHTED, HALVES)) for trace, designs in mixes.items()}
    return [
        *found,
        Goal(
            f"one process with weights uses at least {USED:.0%} of its limit on each trace",
            ", ".join(f"{share:.1%}" for share in used.values()),
            min(used.values()) >= USED,
        ),
        Goal(
            f"and ends within {MOST_OF_HALVES:.2f} x the time of two halves on each trace",
            ", ".join(f"{ratio:.2f} x" for ratio in ratios.values()),
            max(ratios.values()) <= MOST_OF_HALVES,
        ),
    ]


def _all(runs: Sequence[Mapping[str, Any]], figure: str, priority: str) -> list[float]:
    return [value for run in runs for value in run[figure].get(priority, [])]


def _makespans(designs: Designs, design: str, other: str) -> list[float]:
    """The ratio of each seed."""
    pairs = zip(designs[design], designs[other], strict=True)
    return [one["makespan"] / two["makespan"] for one, two in pairs]


def _spread(values: Sequence[float], form: str) -> str:
    """Median and p99."""
    return " / ".join(form.format(percentile(values, share) or 0.0) for share in (0.5, 0.99))


NOTES = (
    "Virtual time: the real starter, protocol and wake run over a simulated table and FIFO queue. Assumed for AWS: 5 "
    "to 15 ms for a call, 20 to 100 ms from a visible message to its invocation, 20 to 50 ms for a state transition. "
    "Equal seeds give equal figures on each machine. Both designs get the same requests.",
    "An urgent request is sent so long after the one before that none is in front of it. Urgent requests that are sent "
    "together start in their order, one at each release.",
    "In a process with weights the head of the queue waits until it fits, and lighter requests behind it wait too: "
    "that, and the last jobs, are the part of the limit that is not used. In two halves no heavy job makes a light one "
    "wait, but a half without work is idle. Equal work for both halves is their best case.",
    "The picture is priorities.png.",
)
