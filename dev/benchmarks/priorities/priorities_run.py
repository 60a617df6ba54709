"""The runs: each trace with both designs."""

from __future__ import annotations

from typing import Any

from .priorities_figures import backlog, usage
from .slot_world import SlotWorld
from .traces import PROCESS, backlogs, mixes

WITH, WITHOUT = "with priorities", "without priorities"
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
