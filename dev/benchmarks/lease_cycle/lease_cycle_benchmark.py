"""The lease's cycle on DynamoDB Local: its measurement, tables, goals and notes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from dev.benchmarks.lease_cycle.lease_designs import DESIGNS
from dev.benchmarks.outcome import Goal, Grid, Notify, Outcome
from dev.benchmarks.slot_cycle.counter_designs import Design
from dev.benchmarks.slot_cycle.slot_cycle_run import in_turn, metered_cycle
from dev.benchmarks.slot_cycle.slot_cycle_tables import middle_half
from dev.emulator.dynamodb_local import DynamoDbLocal

TITLE = "A lease's cycle: take, release"
MINUTES = 0.5
MOST = 1.60  # x two bare writes: with many holders, the release reads a large item
RIVALS = ("lease", "record-lock", "lock-client")

Where = tuple[int, int]  # holders that keep their slots, and contenders


@dataclass(frozen=True)
class Extent:
    """The size of the measurement. `rounds` of each design, each of `cycles` per contender."""

    holders: Sequence[int]
    contenders: Sequence[int]
    rounds: int
    cycles: int


# A lock per key needs dozens of tries to find the last of a hundred keys, so rounds are short.
WHOLE = Extent((1, 10, 100), (1, 4), rounds=10, cycles=2)
SMALL = Extent((1,), (1, 2), rounds=2, cycles=1)


@dataclass
class Measurements:
    """Seconds per cycle by round, and the write units and calls of a cycle without contention."""

    rounds: Mapping[tuple[str, Where], list[float]] = field(default_factory=lambda: defaultdict(list))
    units: dict[tuple[str, int], tuple[float, int]] = field(default_factory=dict)

    def ratios(self, design: str, where: Where) -> list[float]:
        """The design's seconds relative to the bare writes of the same round."""
        return [
            one / bare for one, bare in zip(self.rounds[design, where], self.rounds["bare-writes", where], strict=True)
        ]


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Raises EngineError."""
    extent = SMALL if small else WHOLE
    with DynamoDbLocal.start(folder / "dynamodb.log") as engine:
        return outcome(run(engine, extent, notify), extent)


def run(engine: DynamoDbLocal, extent: Extent, notify: Notify) -> Measurements:
    course = Measurements()
    grid = [(holders, contenders) for holders in extent.holders for contenders in extent.contenders]
    for done, where in enumerate(grid):
        holders, contenders = where
        notify(f"{holders} holders, {contenders} contenders", done / len(grid))
        made = {name: _made(name, engine, where) for name in DESIGNS}
        for name, design in made.items():
            _cycles(design, contenders, 1)  # opens connections and fills caches
            if contenders == extent.contenders[0] and name != "lock-client":
                read = metered_cycle(design)
                course.units[name, holders] = (read.written, sum(read.calls.values()))
        for number in range(extent.rounds):
            for name in in_turn(list(DESIGNS), number):
                course.rounds[name, where].append(_cycles(made[name], contenders, extent.cycles))
    return course


def _made(name: str, engine: DynamoDbLocal, where: Where) -> Design:
    holders, contenders = where
    design = DESIGNS[name](engine.client(), f"{name}-{holders}-{contenders}", holders, holders + contenders)
    design.create()
    design.set_up()
    return design


def _cycles(design: Design, contenders: int, cycles: int) -> float:
    """The seconds per cycle of so many contenders, each with so many cycles."""

    def contend(me: int) -> None:
        for _ in range(cycles):
            design.cycle(f"contender-{me}")

    began = time.perf_counter()
    if contenders == 1:
        contend(0)
    else:
        with ThreadPoolExecutor(contenders) as pool:
            list(pool.map(contend, range(contenders)))
    return (time.perf_counter() - began) / (cycles * contenders)


def outcome(course: Measurements, extent: Extent) -> Outcome:
    grid = [(holders, contenders) for holders in extent.holders for contenders in extent.contenders]
    rows = [
        (
            *map(str, where),
            f"{median(course.rounds['bare-writes', where]) * 1000:.2f}",
            *(_spread(course.ratios(design, where)) for design in RIVALS),
        )
        for where in grid
    ]
    units = [
        (
            str(holders),
            *(
                f"{course.units[name, holders][0]:g} ({course.units[name, holders][1]})"
                for name in DESIGNS
                if name != "lock-client"
            ),
        )
        for holders in extent.holders
    ]
    alone = {holders: median(course.ratios("lease", (holders, extent.contenders[0]))) for holders in extent.holders}
    found = ", ".join(f"{ratio:.2f} at {holders}" for holders, ratio in alone.items())
    return Outcome(
        grids=[
            Grid(
                "A cycle, in cycles of two bare writes of the same item: median of the rounds (middle half)",
                ("holders", "contenders", "bare, ms", *(DESIGNS[design].title for design in RIVALS)),
                rows,
                "The two locks are one key per slot, tried in random order. A lease is one item for all slots.",
                words=0,
            ),
            Grid(
                "Write units of a cycle without contention (calls)",
                ("holders", *(DESIGNS[name].title for name in DESIGNS if name != "lock-client")),
                units,
                words=0,
            ),
        ],
        goals=[
            Goal(
                f"a lease's cycle at most {MOST:.2f} x two bare writes, 1 contender, any number of holders",
                f"{found} holders",
                max(alone.values()) <= MOST,
            )
        ],
        figures=figures(course),
        notes=[
            "Contenders are threads of one process, all designs in turns. A slot is free for every contender, so no "
            "design waits; the engine serializes the writes of one item.",
            "The record lock has no owner and no holders' ages: a late owner deletes the next one's record. The lock "
            "client sends heartbeats, and detects a dead owner by reading its record twice.",
        ],
    )


def figures(course: Measurements) -> dict[str, Any]:
    """For report.json. Seconds."""
    return {
        "rounds": [
            {"design": design, "holders": holders, "contenders": contenders, "seconds": seconds}
            for (design, (holders, contenders)), seconds in course.rounds.items()
        ]
    }


def _spread(values: Sequence[float]) -> str:
    low, high = middle_half(values)
    return f"{median(values):.2f} ({low:.2f}-{high:.2f})"
