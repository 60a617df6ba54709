"""Slots over time, as they were seen since the console was started: small in a table's row, large on a page."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from nicegui import ui

from slotkeeper_cli.formatting import local_time
from slotkeeper_cli.web.reading import Timeline

# The last minutes that a row shows, in a box of this size.
_RECENT, _WIDTH, _HEIGHT = 900.0, 120, 20
# Vue puts the row's value into an attribute, not into markup.
SPARK = f"""<q-td :props="props"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img"
:aria-label="props.row.recent_text"><path :d="props.row.recent" fill="none" stroke="currentColor"
stroke-width="1.5"/></svg></q-td>"""


def spark(timeline: Timeline, now: float) -> dict[str, str]:
    """The fields `recent` and `recent_text` of a row: the last 15 minutes as an SVG path, and in words."""
    shown = [
        (max(start.at, now - _RECENT), end.at, start.in_use, start.limit or 0)
        for start, end in pairwise(timeline.until_now())
        if start.in_use is not None and end.at >= now - _RECENT
    ]
    most = max([1, *(max(in_use, limit) for _, _, in_use, limit in shown)])

    def place(at: float, in_use: int) -> str:
        return f"{_WIDTH * (1 - (now - at) / _RECENT):.1f} {_HEIGHT - 1 - (_HEIGHT - 2) * in_use / most:.1f}"

    path, last = "", None
    for start, end, in_use, _ in shown:
        path += f"{'L' if start == last else 'M'}{place(start, in_use)}L{place(end, in_use)}"
        last = end
    used = [in_use for _, _, in_use, _ in shown]
    minutes = int(_RECENT / 60)
    text = f"between {min(used)} and {max(used)} as seen in the last {minutes} minutes" if used else "not seen yet"
    return {"recent": path, "recent_text": text}


def slots_chart(name: str) -> ui.echart:
    """A chart of the slots in use and the limit of a process; `update_chart` gives it data."""
    series: dict[str, Any] = {"type": "line", "step": "end", "symbol": "none", "data": []}
    options = {
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
    chart = ui.echart(options).classes("w-full h-64").props("role=img")
    # Not as a text of props: a name of the address could end the attribute.
    chart.props["aria-label"] = f"Slots in use of {name} since the console was started"
    return chart


def update_chart(chart: ui.echart, timeline: Timeline) -> None:
    """Show a timeline until the last reading. A gap is where no page was open."""
    points = timeline.until_now()
    values = ([each.in_use for each in points], [each.limit for each in points])
    for series, of in zip(chart.options["series"], values, strict=True):
        series["data"] = [[each.at * 1000, value] for each, value in zip(points, of, strict=True)]
    seen = f"as seen since {local_time(points[0].at)}" if points else ""
    chart.options["title"] = {"text": seen, "right": 0, "textStyle": {"fontSize": 11, "color": "#888"}}
    chart.update()
