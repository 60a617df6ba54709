"""Slots over time, as they were seen since the console was started: small in a table's row, large on a page."""

from __future__ import annotations

import time
from typing import Any

from nicegui import ui

from slotkeeper_cli.formatting import local_time
from slotkeeper_cli.web.reading import Timeline

# The last minutes that a row shows, in a box of this size.
_RECENT, _WIDTH, _HEIGHT = 900.0, 120, 20
# Vue puts the row's values into attributes, not into markup.
SPARK = f"""<q-td :props="props"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img"
:aria-label="props.row.recent_text"><polyline :points="props.row.recent" fill="none" stroke="currentColor"
stroke-width="1.5"/></svg></q-td>"""


def steps(timeline: Timeline, now: float) -> list[tuple[float, int, int]]:
    """The instants, slots in use and limits of a timeline as corners of steps, the last one now."""
    points = list(timeline.points)
    corners: list[tuple[float, int, int]] = []
    for at, in_use, limit in points:
        if corners:
            corners.append((at, *corners[-1][1:]))
        corners.append((at, in_use, limit))
    return [*corners, (now, *corners[-1][1:])] if corners else []


def spark(timeline: Timeline, now: float) -> dict[str, str]:
    """The fields `recent` and `recent_text` of a row: the last 15 minutes as SVG points, and in words."""
    shown = [(max(at, now - _RECENT), in_use, limit) for at, in_use, limit in steps(timeline, now)]
    most = max([1, *(max(in_use, limit) for _, in_use, limit in shown)])
    points = (
        f"{_WIDTH * (1 - (now - at) / _RECENT):.1f},{_HEIGHT - 1 - (_HEIGHT - 2) * in_use / most:.1f}"
        for at, in_use, _ in shown
    )
    used = [in_use for _, in_use, _ in shown]
    text = f"between {min(used)} and {max(used)} in the last {int(_RECENT / 60)} minutes" if used else "not read yet"
    return {"recent": " ".join(points), "recent_text": text}


def slots_chart(name: str) -> ui.echart:
    """A chart of the slots in use and the limit of a process; `update_chart` gives it data."""
    series: dict[str, Any] = {"type": "line", "step": "end", "symbol": "none", "data": []}
    return (
        ui.echart(
            {
                "aria": {"enabled": True},
                "animation": False,
                "grid": {"left": 40, "right": 16, "top": 32, "bottom": 24},
                "legend": {"top": 0, "textStyle": {"color": "#888"}},
                "tooltip": {"trigger": "axis"},
                "xAxis": {"type": "time"},
                "yAxis": {"type": "value", "minInterval": 1, "min": 0},
                "series": [
                    series | {"name": "slots in use", "areaStyle": {"opacity": 0.3}, "color": "#56b4e9"},
                    series | {"name": "limit", "color": "#d55e00"},
                ],
            }
        )
        .classes("w-full h-64")
        .props(f'role="img" aria-label="Slots in use of {name} since the console was started"')
    )


def update_chart(chart: ui.echart, timeline: Timeline) -> None:
    """Show a timeline until now."""
    points = [*timeline.points]
    if points:
        points.append((time.time(), *points[-1][1:]))
    for number, series in enumerate(chart.options["series"], 1):
        series["data"] = [[point[0] * 1000, point[number]] for point in points]
    since = local_time(points[0][0]) if points else ""
    chart.options["title"] = {"text": f"seen since {since}", "right": 0, "textStyle": {"fontSize": 11, "color": "#888"}}
    chart.update()
