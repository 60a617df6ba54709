"""The measurement's course: every design in every cell of the grid, in turns, in short rounds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from dev.benchmarks.outcome import Tell
from dev.benchmarks.slot_cycle.crew import DESIGNS, Crew, Taken, processor_seconds
from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.slots.protocol import PRECHECK_FROM_HOLDERS
from slotkeeper.slots.request import execution_name

COMPARED = ("slotkeeper", "floor", "small-floor", "counter", "transaction", "lock-client")
# Seconds in a cell after which the lock client is left out of its further rounds: for the last free key of hundreds it
# looks for seconds.
ENOUGH = 4.0
REFUSED = ("slotkeeper", "looks-first", "counter", "transaction", "lock-client")


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    Args:
        turns: by the number of contenders, how many rounds there are, and how many seconds each design has in a round.
            Each contender takes a cycle at least.
    """

    holders: Sequence[int]
    turns: Mapping[int, tuple[int, float]]
    refused_seconds: float

    @property
    def contenders(self) -> list[int]:
        return list(self.turns)


# As short as they can be: what disturbs the machine for a while then hits all of them.
WHOLE = Extent((1, 10, 100, 500), {1: (40, 0.03), 8: (16, 0.05), 32: (6, 0.0)}, refused_seconds=0.3)
SMALL = Extent((1, 10), {1: (2, 0.01), 2: (1, 0.01)}, refused_seconds=0.01)


@dataclass
class Cell:
    """One design among so many holders and contenders.

    Args:
        rounds: seconds that a cycle took in each. Of one contender it is the median, which no interruption moves; of
            several, who wait for each other, what they got done in which time.
        busy: seconds of all rounds.
        engine: processor seconds; None where the system does not tell.
    """

    design: str
    holders: int
    contenders: int
    taken: Taken = field(default_factory=Taken)
    rounds: list[float] = field(default_factory=list)
    busy: float = 0.0
    engine: float | None = 0.0

    @property
    def calls_a_second(self) -> float:
        return self.taken.calls / self.busy


@dataclass(frozen=True)
class Metered:
    """What the engine reckons for one cycle, or one refusal: write and read units, calls by the operation's name."""

    written: float
    read: float
    calls: dict[str, int]


@dataclass
class Course:
    """All that was measured."""

    cells: dict[tuple[str, int, int], Cell] = field(default_factory=dict)
    refused: dict[tuple[str, int], Taken] = field(default_factory=dict)
    cycle_units: dict[tuple[str, int], Metered] = field(default_factory=dict)
    refused_units: dict[tuple[str, int], Metered] = field(default_factory=dict)

    def ratios(self, design: str, holders: int, contenders: int, to: str = "floor") -> list[float]:
        """A cycle of the design in cycles of the other, round by round."""
        mine, others = (self.cells[one, holders, contenders].rounds for one in (design, to))
        return [one / other for one, other in zip(mine, others, strict=False)]


def table(design: str, holders: int, full: bool = False) -> str:
    """The table of a design for so many holders; it is its own where nobody finds a place."""
    return f"{design}-{holders}" + ("-full" if full else "")


def standing(design: str, holders: int, contenders: int) -> int:
    """How many stand in the design's item all the time.

    Of the floor as many as in ours on average: a contender of ours stands there for two of its three steps.
    """
    return holders + max(1, round(contenders * 2 / 3)) if design == "floor" else holders


def run(engine: DynamoDbLocal, extent: Extent, tell: Tell) -> Course:
    """Measure all of it."""
    course = Course()
    dynamodb = engine.client()
    cells = [(holders, contenders) for holders in extent.holders for contenders in extent.contenders]
    with Crew(engine.endpoint, processes()) as crew:
        for holders in extent.holders:
            for design in COMPARED:
                DESIGNS[design](dynamodb, table(design, holders), 0, 0).create()
        _warm_up(crew, dynamodb, extent)
        for number, (holders, contenders) in enumerate(cells):
            tell(f"{holders} holders, {contenders} contenders", number / (len(cells) + 1))
            _measure(course, engine, crew, dynamodb, extent, holders, contenders)
        tell("who is refused", len(cells) / (len(cells) + 1))
        for holders in extent.holders:
            _refuse(course, crew, dynamodb, extent, holders)
    return course


def processes() -> int:
    """Of contenders: one for each processor, four at the most."""
    return min(4, max(2, os.cpu_count() or 2))


def _warm_up(crew: Crew, dynamodb: Any, extent: Extent) -> None:
    holders = extent.holders[0]
    for design in COMPARED:
        DESIGNS[design](dynamodb, table(design, holders), standing(design, holders, 1), holders + 8).set_up()
        crew.work(design, table(design, holders), holders, holders + 8, 8, extent.refused_seconds)


def _measure(
    course: Course, engine: DynamoDbLocal, crew: Crew, dynamodb: Any, extent: Extent, holders: int, contenders: int
) -> None:
    limit = holders + contenders
    for design in COMPARED:
        made = DESIGNS[design](dynamodb, table(design, holders), standing(design, holders, contenders), limit)
        made.set_up()
        if contenders == extent.contenders[0] and design != "lock-client":
            course.cycle_units[design, holders] = _metered_cycle(dynamodb, design, holders, limit)
        if design != "lock-client" or contenders == extent.contenders[0]:
            crew.work(design, made.table, holders, limit, contenders, 0.0)  # for its connections and its caches
        course.cells[design, holders, contenders] = Cell(design, holders, contenders)
    rounds, seconds = extent.turns[contenders]
    for number in range(rounds):
        # Each round begins with another design, so that none always comes after the same one.
        for design in COMPARED[number % len(COMPARED) :] + COMPARED[: number % len(COMPARED)]:
            cell = course.cells[design, holders, contenders]
            if design == "lock-client" and cell.busy > ENOUGH:
                continue
            before = processor_seconds(engine.pid)
            taken = crew.work(design, table(design, holders), holders, limit, contenders, seconds)
            after = processor_seconds(engine.pid)
            together = taken.span * contenders / len(taken.cycles)
            cell.rounds.append(median(taken.cycles) if contenders == 1 else together)
            cell.busy += taken.span
            cell.engine = None if cell.engine is None or after is None else cell.engine + after - (before or 0.0)
            cell.taken.add(taken)


def refusable(holders: int) -> list[str]:
    """Whose refusals there are with so many holders: the starter looks first at large processes alone."""
    return [design for design in REFUSED if design != "looks-first" or holders >= PRECHECK_FROM_HOLDERS]


def _refuse(course: Course, crew: Crew, dynamodb: Any, extent: Extent, holders: int) -> None:
    for design in refusable(holders):
        made = DESIGNS[design](dynamodb, table(design, holders, full=True), holders, holders)
        made.create()
        made.set_up()
        if design != "lock-client":
            with metered(dynamodb) as meter:
                made.full(execution_name("sample", "meter", 1))
            course.refused_units[design, holders] = meter.read_off()
        crew.refused(design, made.table, holders, extent.refused_seconds / 10)
        course.refused[design, holders] = crew.refused(design, made.table, holders, extent.refused_seconds)


def _metered_cycle(dynamodb: Any, design: str, holders: int, limit: int) -> Metered:
    made = DESIGNS[design](dynamodb, table(design, holders), holders, limit)
    with metered(dynamodb) as meter:
        for _, take in made.steps():
            take(execution_name("sample", "meter", 1))
    return meter.read_off()


class Meter:
    """Adds up what the engine reckons for a client's calls; a refused one it does not tell."""

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
    """The client's calls are told what they consume, while it lasts."""
    meter, events = Meter(), dynamodb.meta.events
    events.register("provide-client-params.dynamodb.*", meter.ask)
    events.register("after-call.dynamodb.*", meter.note)
    try:
        yield meter
    finally:
        events.unregister("provide-client-params.dynamodb.*", meter.ask)
        events.unregister("after-call.dynamodb.*", meter.note)
