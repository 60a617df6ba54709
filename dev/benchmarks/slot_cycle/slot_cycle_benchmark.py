"""The slot's cycle on DynamoDB Local: every design with every number of holders and contenders, in short turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from dev.benchmarks.outcome import Goal, Grid, Notify, Outcome
from dev.benchmarks.slot_cycle.counter_designs import Design
from dev.benchmarks.slot_cycle.crew import DESIGNS, Crew
from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.slots.process import MAX_HOLDERS
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.audit.intervals import percentile

TITLE = "The slot's cycle: reserve, confirm, release"
MINUTES = 3
MOST = 1.10  # x the floor


@dataclass(frozen=True)
class Extent:
    """The size of the measurement.

    Args:
        turns: contenders -> number of rounds, and seconds of each design in a round. Each contender completes at least
            one cycle.
    """

    holders: Sequence[int]
    turns: Mapping[int, tuple[int, float]]

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Holders and contenders."""
        return [(holders, contenders) for holders in self.holders for contenders in self.turns]


# Rounds are short, so that a disturbance of the machine affects all designs.
WHOLE = Extent((1, 10, 100, MAX_HOLDERS - 1), {1: (40, 0.03), 8: (16, 0.05), 32: (6, 0.0)})
SMALL = Extent((1, 10), {1: (2, 0.01), 2: (1, 0.01)})


@dataclass
class Cell:
    """One design with a number of holders and contenders.

    Args:
        cycles: seconds of each.
        rounds: seconds per cycle in each round. Of one contender it is the median, which an interruption does not
            change; of several, which wait for each other, the time divided by the cycles.
        written: write units of one cycle, by the engine's ConsumedCapacity.
    """

    written: float
    cycles: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)


Cells = dict[tuple[str, int, int], Cell]  # by design, holders and contenders


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Raises EngineError."""
    extent = SMALL if small else WHOLE
    cells: Cells = {}
    with DynamoDbLocal.start(folder / "dynamodb.log") as engine, Crew(engine.endpoint) as crew:
        dynamodb = engine.client()
        for holders, contenders in extent.cells:
            notify(f"{holders} holders, {contenders} contenders")
            _measure(cells, crew, dynamodb, holders, contenders, *extent.turns[contenders])
    return Outcome(
        [cycles(cells, extent), ratios(cells, extent), units(cells, extent)],
        goals(cells, extent),
        {
            "cells": [
                {
                    "design": design,
                    "holders": holders,
                    "contenders": contenders,
                    "median": median(cell.cycles),
                    "p99": percentile(cell.cycles, 0.99),
                    "written": cell.written,
                    "ratio_to_floor": to_floor(cells, design, holders, contenders),
                }
                for (design, holders, contenders), cell in cells.items()
            ]
        },
    )


def permanent(design: str, holders: int, contenders: int) -> int:
    """The number of permanent holders in the design's item.

    With the contenders they are at most as many as a process may have. The floor has the average number of
    Slotkeeper's, in whose item a contender is for two of its three steps.
    """
    others = min(holders, MAX_HOLDERS - contenders)
    return others + max(1, round(contenders * 2 / 3)) if design == "floor" else others


def _measure(
    cells: Cells, crew: Crew, dynamodb: Any, holders: int, contenders: int, rounds: int, seconds: float
) -> None:
    others = permanent("slotkeeper", holders, contenders)
    limit = others + contenders
    for name, kind in DESIGNS.items():
        design = kind(dynamodb, f"{name}-{holders}-{contenders}", permanent(name, holders, contenders), limit)
        design.create()
        design.set_up()
        cells[name, holders, contenders] = Cell(written_by_a_cycle(design))
        crew.work(name, design.table, others, limit, contenders, 0.0)  # opens connections and fills caches
    names = list(DESIGNS)
    for number in range(rounds):
        first = number % len(names)  # so that the order of the designs varies
        for name in (*names[first:], *names[:first]):
            cell = cells[name, holders, contenders]
            taken = crew.work(name, f"{name}-{holders}-{contenders}", others, limit, contenders, seconds)
            together = (taken.ended - taken.started) * contenders / len(taken.cycles)
            cell.rounds.append(median(taken.cycles) if contenders == 1 else together)
            cell.cycles += taken.cycles


def written_by_a_cycle(design: Design) -> float:
    written: list[float] = []

    def ask(params: dict[str, Any], **_: Any) -> None:
        params["ReturnConsumedCapacity"] = "TOTAL"

    def note(parsed: dict[str, Any], **_: Any) -> None:
        written.append(parsed["ConsumedCapacity"]["CapacityUnits"])

    events = design.dynamodb.meta.events
    events.register("provide-client-params.dynamodb.*", ask)
    events.register("after-call.dynamodb.*", note)
    try:
        design.cycle(execution_name("sample", "meter", 1))
    finally:
        events.unregister("provide-client-params.dynamodb.*", ask)
        events.unregister("after-call.dynamodb.*", note)
    return sum(written)


def to_floor(cells: Cells, design: str, holders: int, contenders: int) -> list[float]:
    """The duration of the design's cycle divided by that of three bare writes, by round."""
    mine, floor = (cells[one, holders, contenders].rounds for one in (design, "floor"))
    return [one / other for one, other in zip(mine, floor, strict=True)]


def cycles(cells: Cells, extent: Extent) -> Grid:
    def cell(design: str, holders: int, contenders: int) -> str:
        seconds = cells[design, holders, contenders].cycles
        return f"{median(seconds) * 1000:.1f} ({(percentile(seconds, 0.99) or 0.0) * 1000:.1f})"

    return _grid("A cycle, in ms: median (p99)", extent, cell, "")


def ratios(cells: Cells, extent: Extent) -> Grid:
    def cell(design: str, holders: int, contenders: int) -> str:
        ratios = to_floor(cells, design, holders, contenders)
        low, _, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        return f"{median(ratios):.2f} ({low:.2f}-{high:.2f})"

    caption = "Slotkeeper's code and conditions are the part above 1.00."
    return _grid(
        "A cycle, in three bare writes of the same item: median of the rounds (middle half)", extent, cell, caption
    )


def units(cells: Cells, extent: Extent) -> Grid:
    def cell(design: str, holders: int, contenders: int) -> str:
        return f"{cells[design, holders, contenders].written:g}"

    caption = "Names of process and job of 6 characters."
    return _grid("Write units of a cycle", extent, cell, caption)


def _grid(title: str, extent: Extent, cell: Callable[[str, int, int], str], caption: str) -> Grid:
    rows = [
        (f"{holders}, {contenders}", *(cell(design, holders, contenders) for design in DESIGNS))
        for holders, contenders in extent.cells
    ]
    return Grid(title, ("holders, contenders", *(design.title for design in DESIGNS.values())), rows, caption)


def goals(cells: Cells, extent: Extent) -> list[Goal]:
    """At most 1.10 x the floor.

    One contender is judged by the worst number of holders. Several contenders wait for one engine, and a single cell
    varies by more than the goal: they are judged over all numbers of holders.
    """
    judged = []
    for contenders in extent.turns:
        ratios = {holders: to_floor(cells, "slotkeeper", holders, contenders) for holders in extent.holders}
        medians = ", ".join(f"{median(each):.2f} at {holders}" for holders, each in ratios.items()) + " holders"
        one = max(map(median, ratios.values()))
        found = one if contenders == 1 else median(ratio for each in ratios.values() for ratio in each)
        aim = f"a cycle at most {MOST:.2f} x three bare writes of the same item, contenders: {contenders}"
        judged.append(Goal(aim, f"{found:.2f} ({medians})", found <= MOST))
    return judged
