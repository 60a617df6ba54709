"""The measurements: every design with every number of holders and contenders, in turns, in short rounds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from dev.benchmarks.outcome import Notify
from dev.benchmarks.slot_cycle.counter_designs import Design
from dev.benchmarks.slot_cycle.crew import DESIGNS, Crew, Taken
from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.slots.process import MAX_HOLDERS
from slotkeeper.slots.protocol import PRECHECK_FROM_HOLDERS
from slotkeeper.slots.request import execution_name

COMPARED = ("slotkeeper", "floor", "small-floor", "counter", "transaction", "lock-client")
# Other forms of Slotkeeper, measured with the first number of contenders, and those of which only units are measured.
FORMS = ("without-priorities", "weighted")
METERED = ("without-priorities-waited", "three-priorities")
# Seconds in a cell after which the lock client has no further rounds. It needs seconds to find the last of hundreds of
# keys.
ENOUGH = 4.0
REFUSED = ("slotkeeper", "reads-first", "counter", "transaction", "lock-client")


@dataclass(frozen=True)
class Extent:
    """The size of the measurement.

    Args:
        turns: contenders -> number of rounds, and seconds of each design in a round. Each contender completes at least
            one cycle.
    """

    holders: Sequence[int]
    turns: Mapping[int, tuple[int, float]]
    refused_seconds: float

    @property
    def contenders(self) -> list[int]:
        return list(self.turns)


# Rounds are short, so that a disturbance of the machine affects all designs.
WHOLE = Extent((1, 10, 100, MAX_HOLDERS - 1), {1: (40, 0.03), 8: (16, 0.05), 32: (6, 0.0)}, refused_seconds=0.3)
SMALL = Extent((1, 10), {1: (2, 0.01), 2: (1, 0.01)}, refused_seconds=0.01)


@dataclass
class Cell:
    """One design with a number of holders and contenders.

    Args:
        rounds: seconds per cycle in each round. Of one contender it is the median, which an interruption does not
            change; of several, which wait for each other, the time divided by the cycles.
        busy: seconds of all rounds.
    """

    design: str
    holders: int
    contenders: int
    taken: Taken = field(default_factory=Taken)
    rounds: list[float] = field(default_factory=list)
    busy: float = 0.0


@dataclass(frozen=True)
class Metered:
    """The consumed capacity of a cycle or a refusal: write and read units, and calls by operation."""

    written: float
    read: float
    calls: dict[str, int]


@dataclass
class Measurements:
    """All measurements, by design, holders and contenders."""

    cells: dict[tuple[str, int, int], Cell] = field(default_factory=dict)
    refused: dict[tuple[str, int], Taken] = field(default_factory=dict)
    cycle_units: dict[tuple[str, int], Metered] = field(default_factory=dict)

    def ratios(self, design: str, holders: int, contenders: int, to: str = "floor") -> list[float]:
        """The duration of the design's cycle divided by that of the other's, by round."""
        mine, others = (self.cells[one, holders, contenders].rounds for one in (design, to))
        return [one / other for one, other in zip(mine, others, strict=False)]


def table(design: str, holders: int, full: bool = False) -> str:
    """The name of a design's table for so many holders. `full`: all slots are taken."""
    return f"{design}-{holders}" + ("-full" if full else "")


def permanent(design: str, holders: int, contenders: int) -> int:
    """The number of permanent holders in the design's item.

    With the contenders they are at most as many as a process may have. The floor has the average number of
    Slotkeeper's, in whose item a contender is for two of its three steps.
    """
    others = min(holders, MAX_HOLDERS - contenders)
    return others + max(1, round(contenders * 2 / 3)) if design == "floor" else others


def compared(extent: Extent, contenders: int) -> tuple[str, ...]:
    """The designs that are measured with so many contenders."""
    return (*COMPARED, *FORMS) if contenders == extent.contenders[0] else COMPARED


def run(engine: DynamoDbLocal, extent: Extent, notify: Notify) -> Measurements:
    course = Measurements()
    dynamodb = engine.client()
    cells = [(holders, contenders) for holders in extent.holders for contenders in extent.contenders]
    with Crew(engine.endpoint, processes()) as crew:
        for holders in extent.holders:
            for design in (*COMPARED, *FORMS, *METERED):
                DESIGNS[design](dynamodb, table(design, holders), 0, 0).create()
        _warm_up(crew, dynamodb, extent)
        for number, (holders, contenders) in enumerate(cells):
            notify(f"{holders} holders, {contenders} contenders", number / (len(cells) + 1))
            _measure(course, crew, dynamodb, extent, holders, contenders)
        notify("refusals", len(cells) / (len(cells) + 1))
        for holders in extent.holders:
            _refuse(course, crew, dynamodb, extent, holders)
    return course


def processes() -> int:
    """The number of contenders' processes: one per processor, two to four."""
    return min(4, max(2, os.cpu_count() or 2))


def _warm_up(crew: Crew, dynamodb: Any, extent: Extent) -> None:
    holders = extent.holders[0]
    for design in COMPARED:
        DESIGNS[design](dynamodb, table(design, holders), permanent(design, holders, 1), holders + 8).set_up()
        crew.work(design, table(design, holders), holders, holders + 8, 8, extent.refused_seconds)


def _measure(course: Measurements, crew: Crew, dynamodb: Any, extent: Extent, holders: int, contenders: int) -> None:
    others = permanent("slotkeeper", holders, contenders)
    limit, is_first = others + contenders, contenders == extent.contenders[0]
    designs = compared(extent, contenders)
    for design in designs:
        made = DESIGNS[design](dynamodb, table(design, holders), permanent(design, holders, contenders), limit)
        made.set_up()
        if is_first and design != "lock-client":
            course.cycle_units[design, holders] = metered_cycle(made)
        if is_first or design != "lock-client":
            crew.work(design, made.table, others, limit, contenders, 0.0)  # opens connections and fills caches
        course.cells[design, holders, contenders] = Cell(design, holders, contenders)
    for design in METERED if is_first else ():
        made = DESIGNS[design](dynamodb, table(design, holders), others, limit)
        made.set_up()
        course.cycle_units[design, holders] = metered_cycle(made)
    rounds, seconds = extent.turns[contenders]
    for number in range(rounds):
        for design in in_turn(designs, number):
            cell = course.cells[design, holders, contenders]
            if design == "lock-client" and cell.busy > ENOUGH:
                continue
            taken = crew.work(design, table(design, holders), others, limit, contenders, seconds)
            together = taken.span * contenders / len(taken.cycles)
            cell.rounds.append(median(taken.cycles) if contenders == 1 else together)
            cell.busy += taken.span
            cell.taken.add(taken)


def in_turn(designs: Sequence[str], number: int) -> list[str]:
    """The order of a round: each starts with another design, so that their order varies."""
    first = number % len(designs)
    return [*designs[first:], *designs[:first]]


def refusable(holders: int) -> list[str]:
    """The designs whose refusals are measured: the starter reads first only for large processes."""
    return [design for design in REFUSED if design != "reads-first" or holders >= PRECHECK_FROM_HOLDERS]


def _refuse(course: Measurements, crew: Crew, dynamodb: Any, extent: Extent, holders: int) -> None:
    for design in refusable(holders):
        made = DESIGNS[design](dynamodb, table(design, holders, full=True), holders, holders)
        made.create()
        made.set_up()
        crew.refused(design, made.table, holders, extent.refused_seconds / 10)
        course.refused[design, holders] = crew.refused(design, made.table, holders, extent.refused_seconds)


def metered_cycle(design: Design) -> Metered:
    with metered(design.dynamodb) as meter:
        design.cycle(execution_name("sample", "meter", 1))
    return meter.read_off()


class Meter:
    """Sums the consumed capacity of a client's calls. The engine returns none for refused calls."""

    def __init__(self) -> None:
        self._written = self._read = 0.0
        self._calls: Counter[str] = Counter()

    def ask(self, params: dict[str, Any], **_: Any) -> None:
        params["ReturnConsumedCapacity"] = "TOTAL"

    def note(self, model: Any, parsed: dict[str, Any], **_: Any) -> None:
        self._calls[model.name] += 1
        consumed = parsed.get("ConsumedCapacity", [])
        for one in consumed if isinstance(consumed, list) else [consumed]:
            if model.name == "GetItem":
                self._read += one["CapacityUnits"]
            else:
                self._written += one["CapacityUnits"]

    def read_off(self) -> Metered:
        return Metered(self._written, self._read, dict(self._calls))


@contextmanager
def metered(dynamodb: Any) -> Iterator[Meter]:
    """Meter the client's calls within this context."""
    meter, events = Meter(), dynamodb.meta.events
    events.register("provide-client-params.dynamodb.*", meter.ask)
    events.register("after-call.dynamodb.*", meter.note)
    try:
        yield meter
    finally:
        events.unregister("provide-client-params.dynamodb.*", meter.ask)
        events.unregister("after-call.dynamodb.*", meter.note)
