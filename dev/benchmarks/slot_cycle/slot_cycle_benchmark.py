"""The slot's cycle on DynamoDB Local: its measurement, tables, goals, figures and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from dev.benchmarks.outcome import Goal, Notify, Outcome
from dev.benchmarks.slot_cycle import slot_cycle_tables
from dev.benchmarks.slot_cycle.slot_cycle_run import SMALL, WHOLE, Extent, Measurements, processes, run
from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper_cli.audit.intervals import percentile

TITLE = "The slot's cycle: reserve, confirm, release"
MINUTES = 3.8
MOST = 1.10  # x the floor
MOST_OF_FORMER = 1.05  # x the cycle without priorities and weights; the rest is noise


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Raises EngineError, CannotContinue."""
    extent = SMALL if small else WHOLE
    with DynamoDbLocal.start(folder / "dynamodb.log") as engine:
        return outcome(run(engine, extent, notify), extent)


def outcome(course: Measurements, extent: Extent) -> Outcome:
    tables = slot_cycle_tables
    grids = (tables.cycles, tables.ratios, tables.forms, tables.units, tables.refusals)
    return Outcome(
        grids=[grid(course, extent) for grid in grids],
        goals=[*goals(course, extent), *goals_of_priorities(course, extent)],
        figures=figures(course),
        notes=notes(extent),
    )


def goals(course: Measurements, extent: Extent) -> list[Goal]:
    """At most 1.10 x the floor.

    One contender is judged by the worst number of holders. Several contenders wait for one engine, and a single cell
    varies by more than the goal: they are judged over all numbers of holders.
    """
    goals_met = []
    for contenders in extent.contenders:
        ratios = {holders: course.ratios("slotkeeper", holders, contenders) for holders in extent.holders}
        medians = ", ".join(f"{median(ratio):.2f} at {holders}" for holders, ratio in ratios.items()) + " holders"
        aim = f"a cycle at most {MOST:.2f} x three bare writes of the same item"
        if contenders == 1:
            met = max(map(median, ratios.values())) <= MOST
            goals_met.append(Goal(f"{aim}, 1 contender, any number of holders", medians, met))
        else:
            together = median(ratio for each in ratios.values() for ratio in each)
            goals_met.append(Goal(f"{aim}, {contenders} contenders", f"{together:.2f} ({medians})", together <= MOST))
    return goals_met


def goals_of_priorities(course: Measurements, extent: Extent) -> list[Goal]:
    """A cycle of weight 1 is neither slower nor dearer than without priorities and weights.

    The time is judged over all numbers of holders, with an allowance for noise: a single number varies by more. Units
    do not vary, and are judged for each.
    """
    former, first = "without-priorities", extent.contenders[0]
    ratios = {holders: course.ratios("slotkeeper", holders, first, to=former) for holders in extent.holders}
    together = median(ratio for each in ratios.values() for ratio in each)
    medians = ", ".join(f"{median(ratio):.2f} at {holders}" for holders, ratio in ratios.items())
    units = [
        (course.cycle_units["slotkeeper", holders], course.cycle_units[former, holders]) for holders in extent.holders
    ]
    pairs = ", ".join(
        f"{now.written:g} for {before.written:g} at {holders}"
        for holders, (now, before) in zip(extent.holders, units, strict=True)
    )
    return [
        Goal(
            f"a cycle of weight 1 at most {MOST_OF_FORMER:.2f} x one without priorities and weights, 1 contender",
            f"{together:.2f} ({medians} holders)",
            together <= MOST_OF_FORMER,
        ),
        Goal(
            "at most as many write units, and no read",
            f"{pairs} holders",
            all(now.written <= before.written and now.read <= before.read for now, before in units),
        ),
    ]


def figures(course: Measurements) -> dict[str, Any]:
    """For report.json. Seconds."""
    return {
        "cells": [
            {
                "design": cell.design,
                "holders": cell.holders,
                "contenders": cell.contenders,
                "cycles": len(cell.taken.cycles),
                "cycle": _percentiles(cell.taken.cycles),
                "ratio_to_floor": course.ratios(cell.design, cell.holders, cell.contenders),
            }
            for cell in course.cells.values()
        ],
        "refused": [
            {"design": design, "holders": holders, "seconds": _percentiles(taken.cycles)}
            for (design, holders), taken in course.refused.items()
        ],
        "metered": [
            {"design": design, "holders": holders, **asdict(units)}
            for (design, holders), units in course.cycle_units.items()
        ],
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    return {"p50": percentile(seconds, 0.5), "p99": percentile(seconds, 0.99)}


def notes(extent: Extent) -> list[str]:
    """The method, and the differences between the designs."""
    turns = ", ".join(f"{rounds} rounds for {contenders}" for contenders, (rounds, _) in extent.turns.items())
    return [
        f"Method: {processes()} processes of threads call DynamoDB Local, all designs in turns: {turns} contenders. "
        "Each round starts with another design, and each contender completes at least one cycle in it. All designs "
        "have the same client settings. The holders keep their slots, and a slot is free for every contender.",
        "The engine is the bottleneck. It serializes writes, so with several contenders a cycle mostly waits, and the "
        "ratios are those of the engine's time per call. Larger items are slower; DynamoDB charges for the size "
        "instead.",
        "Confirm and release are sent as by the workflow's states, except for confirm's ReturnValues: DynamoDB returns "
        "one holder, this engine all of them.",
        "Write units are the engine's ConsumedCapacity, computed from the items' sizes by the rules of the DynamoDB "
        "guide.",
        "The lock client, python-dynamodb-lock, is a lock: a semaphore of N slots is N keys, tried in random order, on "
        "average half of them. Its heartbeats are enabled; a cycle without a job has none. It detects a dead owner "
        "after thirty seconds without a heartbeat, and a slow owner loses its lock in the same way. It reports no "
        "holders, and has no pause.",
        "The AWS sample has no confirm, so a late start may run alongside the owner that took its slot. Its limit is "
        "part of the deployment. After the limit was lowered below the owners, it admits every request, since it "
        "refuses only at exactly the limit. A refused owner polls. Its owners are the executions' ARNs; here their "
        "names are as short as Slotkeeper's.",
        "DynamoDB refuses transactions in conflict, and the caller pays for each retry. This engine runs transactions "
        "one by one and refuses none, and their prepare and commit phases are not measured.",
    ]
