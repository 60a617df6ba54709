"""The picture of `slotkeeper audit --picture`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slotkeeper_cli.audit import chart
from slotkeeper_cli.audit.chart import Bar, Panel, Point
from slotkeeper_cli.audit.picture import draw_history
from tests.cli.work_histories import whole


def test_the_picture_has_bars_for_waiting_and_working_by_priority_and_the_work_on_top(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: list[Bar] = []
    panel = chart.lanes_panel

    def note(title: str, ylabel: str, lanes: int, bars: list[Bar], points: list[Point]) -> Panel:
        drawn.extend(bars)
        return panel(title, ylabel, lanes, bars, points)

    monkeypatch.setattr(chart, "lanes_panel", note)
    made = whole()
    called = [replace(each, caller="hash") if each.request_id == "a" else each for each in made.attempts]
    draw_history(replace(made, attempts=called), tmp_path / "timeline.png")
    assert [bar.label for bar in drawn if bar.lane == 5] == ["waiting", "workflow of high priority", "Glue run"]
    assert [bar.label for bar in drawn if bar.lane == 1][-1] == "Glue run, whose caller waits"
    assert len({bar.color for bar in drawn}) == len({bar.label for bar in drawn}) == 5
