"""The measurements as tables, and what is reckoned. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

from dev.benchmarks.outcome import Grid
from dev.benchmarks.slot_cycle import reckoning
from dev.benchmarks.slot_cycle.course import COMPARED, Cell, Course, Extent, refusable
from dev.benchmarks.slot_cycle.crew import DESIGNS
from dev.benchmarks.slot_cycle.reckoning import LONG, SHORT
from dev.scenarios.slots.figures import percentile
from slotkeeper.slots.protocol import LARGE
from slotkeeper_cli.write_units import demand

RIVALS = ("counter", "transaction", "lock-client")
STEPS = ("write", "reserve", "confirm", "release")
BOTH = ((SHORT, "short"), (LONG, "long"))
MINUTE = 60.0


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
    """What a reserve costs where there is no place, until the asker knows why."""
    rows = []
    for holders in extent.holders:
        for design in refusable(holders):
            taken = course.refused[design, holders]
            rows.append((DESIGNS[design].title, str(holders), _latency(taken.cycles), *_refusal(design, holders)))
    return Grid(
        "A refused reserve: ms here, median (p99), and what it is on DynamoDB",
        ("design", "holders", "here", "calls", "write units", "read units", "tells apart"),
        rows,
        f"From {LARGE} holders on the starter looks first, once it has been refused. Where it does not, it needs a "
        "second call in this engine alone, which refuses without the item. A transaction that is cancelled is charged "
        "too; the guide does not say for what, so the least and the most stand there.",
    )


def _refusal(design: str, holders: int) -> tuple[str, str, str, str]:
    size = reckoning.sizes(SHORT, holders)
    match design:
        case "slotkeeper":
            return "1", str(size.write), "0", "full, paused, mine, cancelled"
        case "looks-first":
            return "1", "0", str(size.read), "full, paused, mine, cancelled"
        case "counter":
            write, read = reckoning.counter(SHORT, holders) // 2, reckoning.counter_look(SHORT, holders)
            return "2", str(write), f"{read:g}", "full, mine"
        case "transaction":
            return "1", "2 to 4", "0", "full or paused, mine"
        case _:
            return str(holders), "0", str(holders), "nothing"


def units() -> Grid:
    """Write units of a cycle."""
    ours, sample = reckoning.ours, reckoning.counter
    rows = []
    for holders in (0, 1, 10, 20, 30, 50, 100, 200, 499):
        cells = [str(charged(names, holders)) for charged in (ours, sample) for names, _ in BOTH]
        rows.append((str(holders), *cells, str(reckoning.transaction(SHORT, holders)), "2"))
    flat = reckoning.transaction(SHORT, 0)
    crossed = [reckoning.dearer_than(charged, names, flat) for charged in (ours, sample) for names, _ in BOTH]
    minute, ten = (reckoning.lock_client(minutes * MINUTE) for minutes in (1, 10))
    return Grid(
        "Write units of a cycle, by those who hold a slot beside it",
        ("holders", "Slotkeeper, short", "long", "AWS sample, short", "long", "transaction", "lock client"),
        rows,
        f"Names of process and job: 6 characters (short) or 47 (long). A transaction is cheaper than Slotkeeper from "
        f"{crossed[0]} holders on (short) and from {crossed[1]} (long); than the AWS sample from {crossed[2]} and "
        f"{crossed[3]}. The lock client adds a read for each key that it tries, and a write for every five seconds of "
        f"the job: {minute:g} units for a minute, {ten:g} for ten. From 40 s on a transaction is cheaper than that.",
        words=0,
    )


def ceilings() -> Grid:
    """What one item can do."""
    rows = []
    for slots in (1, 10, 50, 100, 200, 300, 500):
        for names, label in BOTH:
            asked = demand(*names, slots)
            charged = map(str, (slots, asked.bytes, asked.cycle_units, asked.queued_units))
            rows.append((label, *charged, f"{asked.starts_a_second:.1f}", f"{asked.shortest_job:.1f}"))
    return Grid(
        "What one item can do: 1,000 write units a second",
        ("names", "slots", "bytes", "units, admitted at once", "units, after a wait", "starts/s", "shortest job, s"),
        rows,
        "All slots taken and others waiting. Of jobs shorter than the last column the slots cannot all be kept busy.",
    )


def looks() -> Grid:
    """Looking before writing."""
    rows = []
    for slots in (1, 10, 100, 500):
        for names, label in BOTH:
            both = reckoning.looking(names, slots)
            before, after = both.dollars
            charged = (str(both.written), f"{both.looked} + {both.read} read", f"{before:.2f}", f"{after:.2f}")
            rows.append((label, str(slots), *charged, f"{1 - after / before:.0%}"))
    return Grid(
        "Looking before writing: units of a request that had to wait once, and dollars of a million of them",
        ("names", "slots", "refused by a write", "refused by a read", "USD", "USD", "saved"),
        rows,
        f"The starter looks first from {LARGE} holders on. Where nobody waits it does not look.",
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
