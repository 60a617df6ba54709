"""The measurements as tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

from dev.benchmarks.outcome import Grid
from dev.benchmarks.slot_cycle.crew import DESIGNS
from dev.benchmarks.slot_cycle.slot_cycle_run import COMPARED, Extent, Measurements, refusable
from slotkeeper.slots.protocol import PRECHECK_FROM_HOLDERS
from slotkeeper_cli.audit.intervals import percentile

UNITS = {
    "without-priorities": "units, without",
    "without-priorities-waited": "waited",
    "slotkeeper": "weight 1",
    "three-priorities": "three priorities in use",
    "weighted": "weights 2 to 6",
}
RIVALS = ("counter", "transaction", "lock-client")
REASONS = {
    "slotkeeper": "full, paused, mine, cancelled",
    "reads-first": "full, paused, mine, cancelled",
    "counter": "full, mine",
    "transaction": "full or paused, mine",
    "lock-client": "nothing",
}


def cycles(course: Measurements, extent: Extent) -> Grid:
    """The duration of a cycle."""
    rows = [
        (*map(str, where), *(_latency(course.cells[one, *where].taken.cycles) for one in COMPARED))
        for where in _grid(extent)
    ]
    return Grid(
        "A cycle, in ms: median (p99)",
        ("holders", "contenders", *_titles(COMPARED)),
        rows,
        "AWS sample: its counter. Lock client: python-dynamodb-lock. Both have two operations, without confirm.",
        words=0,
    )


def ratios(course: Measurements, extent: Extent) -> Grid:
    """A cycle relative to the floor of the same round."""
    rows = []
    for where in _grid(extent):
        cells = [_spread(course.ratios(one, *where)) for one in ("slotkeeper", *RIVALS)]
        rows.append((*map(str, where), *cells, _spread(course.ratios("floor", *where, to="small-floor"))))
    return Grid(
        "A cycle, in cycles of three bare writes of the same item: median of the rounds (middle half)",
        ("holders", "contenders", *_titles(("slotkeeper", *RIVALS)), "bare write in bare, empty item"),
        rows,
        "Slotkeeper's code and conditions are the part above 1.00. Cycles of AWS sample and lock client have two "
        "operations. The last column is the effect of the item's size in this engine.",
        words=0,
    )


def refusals(course: Measurements, extent: Extent) -> Grid:
    """The time of a refused reserve until the caller has the reason."""
    rows = [
        (DESIGNS[design].title, str(holders), _latency(course.refused[design, holders].cycles), REASONS[design])
        for holders in extent.holders
        for design in refusable(holders)
    ]
    return Grid(
        "A refused reserve, in ms: median (p99)",
        ("design", "holders", "time", "reasons"),
        rows,
        f"From {PRECHECK_FROM_HOLDERS} holders on the starter reads before it writes, after a first refusal. Below "
        "that it needs a second call in this engine only, which does not return the item with a refusal.",
    )


def units(course: Measurements, extent: Extent) -> Grid:
    designs = [design for design in COMPARED if (design, extent.holders[0]) in course.cycle_units]
    rows = [
        (str(holders), *(f"{course.cycle_units[design, holders].written:g}" for design in designs))
        for holders in extent.holders
    ]
    return Grid(
        "Write units of a cycle",
        ("holders", *_titles(designs)),
        rows,
        "Names of process and job of 6 characters. The AWS sample has no confirm: two writes instead of three.",
        words=0,
    )


def forms(course: Measurements, extent: Extent) -> Grid:
    """Slotkeeper next to itself without priorities and weights, and to heavier requests."""
    first = extent.contenders[0]
    rows = []
    for holders in extent.holders:
        ratios = (
            course.ratios("slotkeeper", holders, first, to="without-priorities"),
            course.ratios("weighted", holders, first, to="slotkeeper"),
        )
        metered = [course.cycle_units[design, holders] for design in UNITS]
        units = [f"{each.written:g}" + (f" + {each.read:g} read" if each.read else "") for each in metered]
        rows.append((str(holders), *map(_spread, ratios), *units))
    return Grid(
        "What priorities and weights cost: a cycle's time as a ratio (middle half), and its units",
        ("holders", "time, weight 1", "time, weights 2 to 6", *UNITS.values()),
        rows,
        "The time of weight 1 is relative to the same round without priorities and weights, that of weights 2 to 6 to "
        "weight 1: they read before they write. Waited: the item of a request that has waited kept its registration, "
        "605 bytes. Now a grant replaces it by a tombstone, 70 bytes for each priority in use. With names of 6 "
        "characters the second KB began at 11 holders (waited: 4), now at 10, and at 9 with three priorities in use.",
        words=0,
    )


def middle_half(values: Sequence[float]) -> tuple[float, float]:
    """The limits of the middle half of the values; of one or two values, both ends."""
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
