"""The report of `make run` and `make soak`: figures, text timeline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dev.scenarios.slots.slot_report import timeline
from slotkeeper_cli.audit import chart
from slotkeeper_cli.audit.chart import Bar, Panel, Point
from slotkeeper_cli.audit.picture import draw_history
from slotkeeper_cli.audit.work_history import Sending, WorkHistory
from tests.cli.work_histories import START, attempt, clean, history, whole
from tests.scenarios import slot_reports
from tests.scenarios.reports import failing, not_shown


def test_the_figures_of_a_run() -> None:
    made = slot_reports.slots(whole())
    assert (failing(made), not_shown(made), made["ok"]) == ({}, {}, True)
    assert [made[name] for name in ("requests", "succeeded", "failed", "slots_in_use_at_end")] == [6, 3, 2, 0]
    assert (made["most_at_work"], made["starts_in_message_order"]) == ({"weight": 3, "limit": 3}, True)
    assert [message["code"] for message in (*made["kept"], *made["dead_lettered"])] == [
        "States.TaskFailed",
        "ABORTED",
        "InvalidRequest",
    ]
    assert made["kept"][0]["request"] == "b"
    assert (made["handoff"]["count"], made["wait"]["high"]["count"]) == (3, 1)


def test_the_soak_counts_faults_and_hand_offs_after_them() -> None:
    made = slot_reports.soak(whole())
    assert (failing(made), made["handoff"]["count"]) == ({}, 1)
    assert (made["executions"]["ABORTED"], made["kept"], made["dead_lettered"]) == (1, 2, 1)
    missing = not_shown(slot_reports.soak(whole(), slot_reports.FAULTS[1:]))
    assert missing["every kind of fault has acted"].endswith("not: abort")


def _lines(of: WorkHistory) -> list[str]:
    console = Console(width=200)
    with console.capture() as shown:
        for table in timeline(of):
            console.print(table)
    return [line.rstrip() for line in shown.get().splitlines()]


def _sent(of: WorkHistory, at: float = 0.0) -> WorkHistory:
    """All messages are sent at the same time."""
    sendings = [Sending(each.execution, START + at, n) for n, each in enumerate(of.attempts)]
    return replace(of, sendings=sendings, since=START + at)


def test_the_terminal_shows_when_each_request_waited_and_held_a_slot() -> None:
    attempts = [attempt("a", 0.25, 1), attempt("b", 1.5, 1, "FAILED"), attempt("c", 2.75, 1)]
    assert _lines(_sent(history(attempts))) == [
        "   · waiting, █ holding a slot, 0.25 s each",
        "1  ·███",
        "2  ······███ FAILED",
        "3  ···········███",
    ]


def test_a_long_timeline_fits_the_terminal_and_many_requests_have_none() -> None:
    long = _lines(_sent(history([attempt("a", 100, 500)])))
    assert long[0].endswith("10 s each")
    assert len(long[1]) < 70
    assert _lines(_sent(history([attempt(str(n), n, 0.5) for n in range(21)]))) == []
    assert _lines(replace(clean(), attempts=[])) == []


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
