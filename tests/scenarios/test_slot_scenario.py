"""`make run`: every figure of a small run, and each claim failing on records that break it, and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dev.scenarios.slots import slot_scenario
from dev.scenarios.slots.slot_records import EndMessage, Records
from dev.scenarios.slots.slot_report import timeline
from slotkeeper_cli import chart
from slotkeeper_cli.chart import Bar, Panel, Point
from tests.scenarios.reports import failing, not_shown
from tests.scenarios.slot_run import glue_run, kept, records, report, workflow

# Three requests through one slot: each start is 0.15 s after the previous release (exit at stop - 0.05).
THREE = [workflow(1, 0.2, 1.2), workflow(2, 1.3, 2.3), workflow(3, 2.4, 3.4)]
R2_FAILED = [THREE[0], replace(THREE[1], status="FAILED"), THREE[2]]
OPEN_END: dict[str, Any] = {"stopped": None, "states": {"RunGlueJob": (1002.5, 1003.2)}}

ACCOUNTED = "every request is accounted for"
LIMIT = "never more than 1 concurrently"
ORDER = "workflows start in message order"
BACK = "every slot is released"
HANDOFF = "hand-off median below 1.5 s"
KEPT = "failed requests are in FailedRequestQueue"
OUTCOMES = "the outcomes are those expected of the inputs"


def test_a_run_without_faults_passes_every_check() -> None:
    made = report(3, records(THREE))
    assert (failing(made), made["ok"]) == ({}, True)
    assert (made["requests"], made["succeeded"], made["failed"], made["given_back"]) == (3, 3, 0, 0)
    assert made["max_glue_runs_alive"] == made["max_glue_states_open"] == made["max_slots_held"] == 1
    assert (made["starts_in_message_order"], made["total_seconds"]) == (True, 3.4)
    assert made["workflows"][0]["started"] == 0.2
    assert made["started_at"].startswith("1970-01-01T00:16:40")


def test_the_hand_off_is_measured_from_the_release_to_the_next_start() -> None:
    made = report(3, records(THREE))
    assert made["handoff"] == {"count": 2, "median": 0.15, "p99": 0.15, "max": 0.15}
    assert made["handoffs"][0] == {"released": 1.15, "seconds": 0.15, "from": "sample-1", "to": "sample-2"}


def test_utilisation_counts_the_time_from_the_first_start_to_the_last() -> None:
    made = report(3, records(THREE))
    # Window 0.2 to 2.4; held 0.2-1.1 and 1.3-2.2; in Glue 0.3-1.0 and 1.4-2.1.
    assert made["slot_utilisation"] == pytest.approx(1.8 / 2.2, abs=0.001)
    assert made["glue_utilisation"] == pytest.approx(1.4 / 2.2, abs=0.001)


@pytest.mark.parametrize(
    ("recorded", "damaged", "findings"),
    [
        (records(THREE[:2]), (), {ACCOUNTED: "neither started nor dead-lettered: r3"}),
        (
            records(THREE, dead=[EndMessage("r3", None, "E", "C", "{}")]),
            (),
            {ACCOUNTED: "started and dead-lettered: r3"},
        ),
        (records([*THREE, replace(workflow(3, 3.5, 4.5), name="x")]), (), {ACCOUNTED: "started twice: r3"}),
        (
            records([*THREE, workflow(9, 3.5, 4.5)], outputs=records(THREE).outputs),
            (),
            {ACCOUNTED: "workflows of no request: sample-9"},
        ),
        (records(THREE, still_queued=2), (), {ACCOUNTED: "still on RequestQueue: 2"}),
        (
            records(THREE, glue_runs=[glue_run(1, 0.3, 1.5), glue_run(2, 1.4, 2.1), glue_run(3, 2.5, 3.2)]),
            (),
            {LIMIT: "at most 2 Glue runs alive, 1 inside RunGlueJob, 1 holding a slot"},
        ),
        (
            records(THREE, glue_runs=[glue_run(1, 0.3, None, "RUNNING"), glue_run(2, 1.4, 2.1)]),
            (),
            {LIMIT: "at most 2 Glue runs alive, 1 inside RunGlueJob, 1 holding a slot"},
        ),
        (
            records([workflow(1, 0.2, 1.2), workflow(3, 1.3, 2.3), workflow(2, 2.4, 3.4)]),
            (),
            {ORDER: "out of order: r2 after r3"},
        ),
        (records(THREE, slots_in_use=1, holders=["sample-3"]), (), {BACK: "slots_in_use 1, holders: sample-3"}),
        (records(THREE, holders=["sample-3"]), (), {BACK: "slots_in_use 0, holders: sample-3"}),
        (
            records([workflow(1, 0.2, 1.2), workflow(2, 3.2, 4.2), workflow(3, 6.2, 7.2)]),
            (),
            {HANDOFF: "2.050 s over 2 hand-offs"},
        ),
        (records(R2_FAILED, kept=[]), (2,), {KEPT: "failed and not kept: r2"}),
        (records(R2_FAILED, kept=[kept(2, cause=None)]), (2,), {KEPT: "kept without error or cause: r2"}),
        (records(R2_FAILED, kept=[kept(2), kept(3)]), (2,), {KEPT: "kept and not failed: r3"}),
        (records(THREE), (2,), {OUTCOMES: "ended otherwise than expected of their input: r2 SUCCEEDED"}),
        (
            records(THREE, outputs=frozenset({"output/r1.json", "output/r2.json"})),
            (),
            {OUTCOMES: "succeeded without a result: output/r3.json"},
        ),
        (
            records(R2_FAILED, outputs=frozenset(f"output/r{i}.json" for i in (1, 2, 3))),
            (2,),
            {OUTCOMES: "result without a success: output/r2.json"},
        ),
    ],
)
def test_records_that_break_a_claim_fail_it_alone(
    recorded: Records, damaged: tuple[int, ...], findings: dict[str, str]
) -> None:
    assert failing(report(3, recorded, damaged=damaged)) == findings


def test_a_workflow_that_has_not_ended_is_named() -> None:
    recorded = records([*THREE[:2], workflow(3, 2.4, 3.4, status="RUNNING", **OPEN_END)], kept=[])
    assert failing(report(3, recorded))[ACCOUNTED] == "not ended: r3"


def test_a_glue_run_that_ends_in_the_instant_the_next_begins_does_not_overlap_it() -> None:
    runs = [glue_run(1, 0.0, 1.0), glue_run(2, 1.0, 2.0), glue_run(3, 2.0, 3.0)]
    assert report(3, records(THREE, glue_runs=runs))["max_glue_runs_alive"] == 1


def test_an_overlap_hidden_by_whole_seconds_of_glue_is_found_in_the_workflows_states() -> None:
    overlapping = [workflow(1, 0.2, 1.9), workflow(2, 1.3, 2.9)]
    made = report(2, records(overlapping, glue_runs=[glue_run(1, 0.0, 1.0), glue_run(2, 1.0, 2.0)]))
    assert (made["max_glue_runs_alive"], made["max_glue_states_open"]) == (1, 2)
    assert LIMIT in failing(made)


def test_a_returned_request_starts_again_from_the_tail_and_breaks_no_order() -> None:
    returned = workflow(1, 0.2, 0.4, status="FAILED", states={})
    again = replace(workflow(1, 3.5, 4.5), name="sample-1-again", attempt=2)
    made = report(3, records([returned, *THREE[1:], again], kept=[]))
    assert failing(made) == {}
    assert (made["succeeded"], made["failed"], made["given_back"]) == (3, 0, 1)


def test_a_dead_lettered_request_is_accounted_for() -> None:
    dead = EndMessage("r3", None, "UnknownProcess", "no such process", "{}")
    made = report(3, records(THREE[:2], dead=[dead]))
    assert failing(made) == {}
    assert made["dead_lettered"][0]["error"] == "UnknownProcess"


def test_failed_requests_that_are_kept_with_error_and_cause_pass() -> None:
    made = report(3, records(R2_FAILED), damaged=(2,))
    assert failing(made) == {}
    assert (made["succeeded"], made["failed"]) == (2, 1)
    assert made["kept"] == [
        {
            "request_id": "r2",
            "execution": "sample-2",
            "error": "States.TaskFailed",
            "cause": "not a number",
            "reason": "not a number",
        }
    ]


def test_fewer_requests_than_slots_have_no_hand_off() -> None:
    made = report(2, records([workflow(1, 0.2, 1.2), workflow(2, 0.3, 1.3)]), limit=3)
    assert made["handoff"] == {"count": 0, "median": None, "p99": None, "max": None}
    assert failing(made) == {}
    assert list(not_shown(made)) == ["never more than 3 concurrently", HANDOFF, KEPT]


def test_order_is_not_shown_by_one_start() -> None:
    made = report(1, records([workflow(1, 0.2, 1.2)]))
    assert not_shown(made)[ORDER] == "1 start: there is no order"
    assert made["starts_in_message_order"]


def test_without_any_start_there_is_a_report() -> None:
    made = report(2, records([]))
    assert made["total_seconds"] == 0
    assert failing(made)[ACCOUNTED] == "neither started nor dead-lettered: r1, r2"


def _lines(made: dict[str, Any]) -> list[str]:
    console = Console(width=200)
    with console.capture() as shown:
        for table in timeline(made):
            console.print(table)
    return [line.rstrip() for line in shown.get().splitlines()]


def test_the_terminal_shows_when_each_request_waited_and_held_a_slot() -> None:
    assert _lines(report(3, records(R2_FAILED))) == [
        "   · waiting, █ holding a slot, 0.25 s each",
        "1  ·███",
        "2  ·····████ FAILED",
        "3  ··········███",
    ]


def test_a_returned_request_waits_again_from_its_return() -> None:
    returned = workflow(1, 0.25, 0.5, status="FAILED", states={})
    again = replace(workflow(1, 1.5, 2.5), name="sample-1-again", attempt=2)
    assert _lines(report(1, records([returned, again], kept=[])))[1:] == ["1  ·█ FAILED", "2    ····████"]


def test_a_long_timeline_fits_the_terminal_and_many_requests_have_none() -> None:
    assert _lines(report(1, records([workflow(1, 100.0, 600.0)])))[0].endswith("10 s each")
    assert len(_lines(report(1, records([workflow(1, 100.0, 600.0)])))[1]) < 70
    assert _lines(report(21, records([workflow(n, n, n + 0.5) for n in range(1, 22)]))) == []


def test_the_picture_has_bars_of_different_colors_for_waiting_and_working(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: list[Bar] = []
    panel = chart.lanes_panel

    def note(title: str, ylabel: str, lanes: int, bars: list[Bar], points: list[Point]) -> Panel:
        drawn.extend(bars)
        return panel(title, ylabel, lanes, bars, points)

    monkeypatch.setattr(chart, "lanes_panel", note)
    slot_scenario.draw(report(3, records(THREE)), tmp_path / "timeline.png")
    assert [(bar.label, bar.start, bar.end) for bar in drawn if bar.lane == 2] == [
        ("waiting", 0.01, 1.3),
        ("rest of the workflow", 1.3, 2.3),
        ("Glue job", 1.4, 2.1),
    ]
    assert {bar.label: bar.color for bar in drawn} == {
        "waiting": chart.LIGHT,
        "rest of the workflow": chart.ORANGE,
        "Glue job": chart.BLUE,
    }
