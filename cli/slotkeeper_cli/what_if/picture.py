"""The picture of a replay: the queue and the slots in use over time, as recorded and as replayed."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from slotkeeper_cli.audit import chart
from slotkeeper_cli.audit.chart import Panel
from slotkeeper_cli.audit.picture import UNITS
from slotkeeper_cli.formatting import local_time
from slotkeeper_cli.what_if.replay import ReplayResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_result(result: ReplayResult, path: Path) -> None:
    """Draw the records and the replay over the same time. Raises ImportError and OSError, as chart.draw."""
    since = result.recording.since
    changes = [at for course in (result.recorded, result.replayed) for at, _ in course.used if at < math.inf]
    end = max([result.recording.until, *changes]) - since
    _, unit, noun = next(each for each in UNITS if end >= each[0])
    courses = ((result.recorded, "recorded", chart.AMBER), (result.replayed, f"limit {result.limit}", chart.BLUE))

    def draw_counts(axes: Axes, name: str) -> None:
        for course, label, color in courses:
            counts = getattr(course, name)
            inside = [(max(0.0, at - since) / unit, number) for at, number in counts if at - since <= end]
            chart.draw_steps(axes, [(0.0, 0), *inside], end / unit, color, label)
        axes.set_ylim(bottom=0)

    name = result.recording.process.name
    panels = [
        Panel(f"{name}: requests that wait", "requests", 2.4, [partial(draw_counts, name="queue")]),
        Panel(f"{name}: slots in use", "slots in use", 2.4, [partial(draw_counts, name="used")]),
    ]
    title = f"Slotkeeper, process {name} at limit {result.limit}"
    chart.draw(path, title, f"{noun} since {local_time(since)}", end / unit, panels)
