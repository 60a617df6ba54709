"""The panels that the charts of `make run` share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dev.scenarios.runner import chart
from dev.scenarios.runner.chart import Panel, Point


def slot_panels(report: Mapping[str, Any], end: float) -> list[Panel]:
    """The slots in use against the limit, and the hand-offs. `end`: the last second that is shown."""
    workflows, limit = report["workflows"], report["parameters"]["limit"]
    held = [(w["started"], end if w["release_entered"] is None else w["release_entered"]) for w in workflows]
    gaps = [Point(h["released"], h["seconds"], chart.BLUE, "", "o") for h in report["handoffs"]]
    most, handoff = report["max_slots_held"], report["handoff"]
    median = f"{handoff['median']:.2f} s (median of {handoff['count']})" if gaps else "none"
    return [
        chart.limit_panel(
            f"{'Never more than' if most <= limit else 'OVER the limit: up to'} {most} of {limit} slots in use",
            "slots in use",
            held,
            limit,
            "in use",
            end,
        ),
        Panel(
            f"From a release to the next start: {median}",
            "hand-off (s)",
            1.5,
            [lambda axes: chart.draw_points(axes, gaps)],
        ),
    ]
