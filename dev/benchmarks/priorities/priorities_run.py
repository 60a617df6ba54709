"""The runs: each trace with both designs."""

from __future__ import annotations

from typing import Any

from slotkeeper.slots.process import TURN_SECONDS

from .priorities_figures import backlog, out_of_order, usage
from .slot_world import SlotWorld
from .traces import PROCESS, backlogs, bursts, loads, mixes

WITH, WITHOUT = "with priorities", "without priorities"
TURNS, NO_TURNS = f"turns of {TURN_SECONDS} s", "no turns"
WEIGHTED, HALVES = "one process with weights", "two processes with half the limit"


def run_backlogs(seed: int, scale: float) -> dict[str, dict[str, Any]]:
    """Trace -> design -> figures."""
    figures: dict[str, dict[str, Any]] = {}
    for trace in backlogs(seed, scale):
        classes = [job.priority for job in trace.jobs]
        figures[trace.name] = {
            design: backlog(each.jobs, classes, SlotWorld({PROCESS: each.limit}, seed).run(each.jobs), each.limit)
            for design, each in ((WITH, trace), (WITHOUT, trace.without_priorities()))
        }
    return figures


def run_mixes(seed: int, scale: float) -> dict[str, dict[str, Any]]:
    """Trace -> design -> figures."""
    figures: dict[str, dict[str, Any]] = {}
    for trace in mixes(seed, scale):
        weights = [job.weight for job in trace.jobs]
        limits, halves = trace.in_halves()
        figures[trace.name] = {
            WEIGHTED: usage(weights, SlotWorld({PROCESS: trace.limit}, seed).run(trace.jobs), trace.limit),
            HALVES: usage(weights, SlotWorld(limits, seed).run(halves), trace.limit),
        }
    return figures


def run_turns(seed: int, scale: float) -> dict[str, dict[str, Any]]:
    """Trace -> design -> figures."""
    figures: dict[str, dict[str, Any]] = {}
    for trace in [*bursts(seed, scale), *loads(seed, scale)]:
        weights = [job.weight for job in trace.jobs]
        figures[trace.name] = {}
        for design, turn_seconds in ((TURNS, TURN_SECONDS), (NO_TURNS, 0)):
            course = SlotWorld({PROCESS: trace.limit}, seed, turn_seconds).run(trace.jobs)
            measured = out_of_order(trace.jobs, course) | usage(weights, course, trace.limit)
            figures[trace.name][design] = measured | {"receives": course.receives / len(trace.jobs)}
    return figures
