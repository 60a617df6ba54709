"""The measurements as tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

from dev.benchmarks.outcome import Grid
from dev.benchmarks.slot_cycle.crew import DESIGNS
from dev.benchmarks.slot_cycle.slot_cycle_run import COMPARED, Cell, Course, Extent, refusable
from dev.scenarios.runner.intervals import percentile
from slotkeeper.slots.protocol import PRECHECK_FROM_HOLDERS

RIVALS = ("counter", "transaction", "lock-client")
TELLS_APART = {
    "slotkeeper": "full, paused, mine, cancelled",
    "looks-first": "full, paused, mine, cancelled",
    "counter": "full, mine",
    "transaction": "full or paused, mine",
    "lock-client": "nothing",
}
STEPS = ("write", "reserve", "confirm", "release")


def cycles(course: Course, extent: Extent) -> Grid:
    """How long a cycle takes."""
    rows = [
        (*map(str, where), *(_latency(course.cells[one, *where].taken.cycles) for one in COMPARED))
        for where in _grid(extent)
    ]
    return Grid(
        "A cycle, in ms: median (p99)",
        ("holders", "contenders", *_titles(COMPARED)),
        rows,
        "AWS sample: its counter. Lock client: python-dynamodb-lock. Neither confirms: two operations, not three.",
        words=0,
    )


def ratios(course: Course, extent: Extent) -> Grid:
    """What a cycle is of the floor, in the same round."""
    rows = []
    for where in _grid(extent):
        cells = [_spread(course.ratios(one, *where)) for one in ("slotkeeper", *RIVALS)]
        rows.append((*map(str, where), *cells, _spread(course.ratios("floor", *where, to="small-floor"))))
    return Grid(
        "A cycle, in cycles of three bare writes of the same item: median of the rounds (middle half)",
        ("holders", "contenders", *_titles(("slotkeeper", *RIVALS)), "bare write in bare, empty item"),
        rows,
        "What is above 1.00 for Slotkeeper is ours: its code, its conditions. The cycles of AWS sample and lock client "
        "are two operations. The last column is what the item's size costs in this engine.",
        words=0,
    )


def operations(course: Course, extent: Extent) -> Grid:
    """How long each step takes, alone: with one contender nobody waits in line."""
    contenders = extent.contenders[0]
    rows = []
    for holders in extent.holders:
        for design in COMPARED:
            steps = course.cells[design, holders, contenders].taken.steps
            named = [_latency(steps[step]) if step in steps else "" for step in STEPS]
            rows.append((DESIGNS[design].title, str(holders), *named))
    return Grid(
        f"An operation, in ms, {contenders} contender: median (p99)",
        ("design", "holders", "bare write", *STEPS[1:]),
        rows,
        "The lock client reserves by a read and a write of the key that is free, and a read of each that is not.",
    )


def rates(course: Course, extent: Extent) -> Grid:
    """How many operations a second, and who was busy."""
    rows = []
    for where in _grid(extent):
        cells = [course.cells[one, *where] for one in COMPARED]
        busy = (engine_processors(cells), contenders_processors(cells))
        rows.append((*map(str, where), *(f"{cell.calls_a_second:.0f}" for cell in cells), *busy))
    return Grid(
        "Operations a second",
        ("holders", "contenders", *_titles(COMPARED), "engine busy", "clients busy"),
        rows,
        "An operation is a step of the cycle, whatever it calls. Busy: processors, on average.",
        words=0,
    )


def refusals(course: Course, extent: Extent) -> Grid:
    """The time that a refused reserve takes, until the caller has the reason."""
    rows = [
        (DESIGNS[design].title, str(holders), _latency(course.refused[design, holders].cycles), TELLS_APART[design])
        for holders in extent.holders
        for design in refusable(holders)
    ]
    return Grid(
        "A refused reserve, in ms: median (p99)",
        ("design", "holders", "time", "tells apart"),
        rows,
        f"From {PRECHECK_FROM_HOLDERS} holders on the starter reads before it writes, once it has been refused. "
        "Below that it needs a second call in this engine alone, which refuses without returning the item.",
    )


def units(course: Course, extent: Extent) -> Grid:
    """Write units of a cycle, as the engine returns them."""
    designs = [design for design in COMPARED if (design, extent.holders[0]) in course.cycle_units]
    rows = [
        (str(holders), *(f"{course.cycle_units[design, holders].written:g}" for design in designs))
        for holders in extent.holders
    ]
    return Grid(
        "Write units of a cycle",
        ("holders", *_titles(designs)),
        rows,
        "Names of process and job of 6 characters. The AWS sample confirms nothing: two writes, not three.",
        words=0,
    )


def engine_processors(cells: Sequence[Cell]) -> str:
    """Of the engine, while these were measured; a question mark where the system does not tell."""
    used = [cell.engine for cell in cells if cell.engine is not None]
    return f"{sum(used) / sum(cell.busy for cell in cells):.2f}" if len(used) == len(cells) else "?"


def contenders_processors(cells: Sequence[Cell]) -> str:
    """Of the contenders."""
    return f"{sum(cell.taken.processor for cell in cells) / sum(cell.busy for cell in cells):.2f}"


def middle_half(values: Sequence[float]) -> tuple[float, float]:
    """Between which the middle half of the values lies; for one or two values, both ends."""
    if len(values) < 3:
        return min(values), max(values)
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def _grid(extent: Extent) -> list[tuple[int, int]]:
    return [(holders, contenders) for holders in extent.holders for contenders in extent.contenders]


def _titles(designs: Sequence[str]) -> list[str]:
    return [DESIGNS[design].title for design in designs]


def _latency(seconds: Sequence[float]) -> str:
    return f"{_ms(median(seconds))} ({_ms(percentile(seconds, 0.99) or 0.0)})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}" if seconds < 0.1 else f"{seconds * 1000:,.0f}"


def _spread(values: Sequence[float]) -> str:
    low, high = middle_half(values)
    return f"{median(values):.2f} ({low:.2f}-{high:.2f})"
