"""What came out: tables, goals, figures, notes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from dev.benchmarks.outcome import Goal, Outcome
from dev.benchmarks.slot_cycle import slot_cycle_tables
from dev.benchmarks.slot_cycle.slot_cycle_run import Course, Extent, processes
from dev.scenarios.runner.intervals import percentile

MOST = 1.10  # times the floor


def outcome(course: Course, extent: Extent) -> Outcome:
    """All of it."""
    grids = (
        slot_cycle_tables.cycles,
        slot_cycle_tables.ratios,
        slot_cycle_tables.operations,
        slot_cycle_tables.rates,
        slot_cycle_tables.units,
        slot_cycle_tables.refusals,
    )
    return Outcome(
        grids=[grid(course, extent) for grid in grids],
        goals=goals(course, extent),
        figures=figures(course),
        notes=notes(course, extent),
    )


def goals(course: Course, extent: Extent) -> list[Goal]:
    """Within 1.10 times the floor.

    With one contender it is judged by the worst number of holders. Several wait in line for one engine, and a cell of
    theirs alone strays by more than what is asked about: they are judged over all numbers of holders together.
    """
    goals_met = []
    for contenders in extent.contenders:
        ratios = {holders: course.ratios("slotkeeper", holders, contenders) for holders in extent.holders}
        medians = ", ".join(f"{median(ratio):.2f} at {holders}" for holders, ratio in ratios.items()) + " holders"
        aim = f"a cycle within {MOST:.2f} times three bare writes of the same item"
        if contenders == 1:
            met = max(map(median, ratios.values())) <= MOST
            goals_met.append(Goal(f"{aim}, 1 contender, any number of holders", medians, met))
        else:
            together = median(ratio for each in ratios.values() for ratio in each)
            goals_met.append(Goal(f"{aim}, {contenders} contenders", f"{together:.2f} ({medians})", together <= MOST))
    return goals_met


def figures(course: Course) -> dict[str, Any]:
    """As JSON has it. Seconds."""
    return {
        "cells": [
            {
                "design": cell.design,
                "holders": cell.holders,
                "contenders": cell.contenders,
                "cycles": len(cell.taken.cycles),
                "cycle": _percentiles(cell.taken.cycles),
                "steps": {step: _percentiles(seconds) for step, seconds in cell.taken.steps.items()},
                "calls_a_second": cell.calls_a_second,
                "ratio_to_floor": course.ratios(cell.design, cell.holders, cell.contenders),
                "tries": cell.taken.tries / len(cell.taken.cycles),
                "engine_processors": None if cell.engine is None else cell.engine / cell.busy,
                "contenders_processors": cell.taken.processor / cell.busy,
            }
            for cell in course.cells.values()
        ],
        "refused": [
            {"design": design, "holders": holders, "seconds": _percentiles(taken.cycles)}
            for (design, holders), taken in course.refused.items()
        ],
        "metered": [
            {"design": design, "holders": holders, "what": what, **asdict(units)}
            for what, measured in (("cycle", course.cycle_units), ("refusal", course.refused_units))
            for (design, holders), units in measured.items()
        ],
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    return {"p50": percentile(seconds, 0.5), "p99": percentile(seconds, 0.99)}


def notes(course: Course, extent: Extent) -> list[str]:
    """What a reader must know to judge."""
    alone, most = extent.contenders[0], extent.contenders[-1]
    locks = [course.cells["lock-client", holders, alone] for holders in extent.holders]
    tried = ", ".join(f"{cell.taken.tries / len(cell.taken.cycles):.0f} at {cell.holders}" for cell in locks)
    turns = ", ".join(f"{rounds} rounds for {who}" for who, (rounds, _) in extent.turns.items())
    busy = [cell for cell in course.cells.values() if cell.contenders == most]
    return [
        f"Method: {processes()} processes of threads call DynamoDB Local, all designs in turns: {turns} contenders. "
        "Each round begins with another design, and each contender takes a cycle in it at least. Client settings are "
        "the same for all. The holders are there all the time, and beside them every contender has room.",
        f"The bottleneck is the engine: with {most} contenders it keeps "
        f"{slot_cycle_tables.engine_processors(busy)} processors busy, they "
        f"{slot_cycle_tables.contenders_processors(busy)}. It takes one write after the other, so with several "
        "contenders a cycle is mostly waiting in line, and the ratios say what a call costs the engine. With the size "
        "of an item it becomes slower; DynamoDB charges for it instead.",
        "Confirm and release are sent as the workflow's states send them, but for confirm's ReturnValues: DynamoDB "
        "returns the one holder, this engine all of them.",
        "Write units are what the engine returns as ConsumedCapacity. It computes them from the sizes of the items, by "
        "the rules of the DynamoDB guide.",
        "The lock client, python-dynamodb-lock, is a lock, so a semaphore of N places is N keys, tried in an order "
        f"drawn by chance: {tried} holders, with one contender; half of them is the average. Its heartbeats are on; a "
        "cycle without a job has none. It finds a dead owner by itself, after thirty seconds without a heartbeat; a "
        "live one that was only slow loses its lock so. It tells nobody who holds what, and knows no pause.",
        "The AWS sample confirms nothing, so a late start may run beside whoever took its place. Its limit is in the "
        "deployment; lowered below the owners it admits everybody, since it refuses at exactly the limit. Whoever is "
        "refused polls. Its owners are the executions' ARNs; here they have names as short as ours.",
        "Transactions in conflict are refused by DynamoDB, and tried again by the caller at the price of another one; "
        "this engine takes them one by one, and refuses none. What preparing and committing takes there is not seen "
        "here either.",
    ]
