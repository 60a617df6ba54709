"""`make run PRIORITIES=yes`: every figure of a small run, and each claim failing on records that break it alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dev.scenarios.slots.priority_records import PriorityRecords, read_refusals
from dev.scenarios.slots.slot_records import Execution, GlueRun
from tests.scenarios import priority_run as run
from tests.scenarios.priority_run import CHANGES, ORIGIN, WORKFLOWS, aws, change, name, records, report, workflow
from tests.scenarios.reports import failing, not_shown

WEIGHT = "never more weight than the limit at the same time"
ORDER = "each priority starts in message order"
KEEPS_OUT = "a waiting request keeps lower priorities out"
URGENT = "an urgent request starts as soon as it fits"
BLOCKED = "a request above the limit keeps none out, and starts after it was raised"
CANCELLED = "a cancelled head keeps none out"
COUNTER = "slots_in_use is the weight held"
KEPT = "failed requests are in FailedRequestQueue"
HANDOFF = "hand-off median below 1.5 s"


def moved(request_id: str, start: float, stop: float) -> dict[str, Any]:
    """Records in which a request's workflow has other times."""
    sent = next(each for each in run.SENT if each.request.request_id == request_id)
    return of_workflows([e for e in WORKFLOWS if e.request_id != request_id] + [workflow(sent, start, stop)])


def of_workflows(executions: list[Execution]) -> dict[str, Any]:
    executions.sort(key=lambda e: e.started)
    runs = [GlueRun(e.name, e.name, e.status, *e.states["RunGlueJob"]) for e in executions]
    outputs = frozenset(f"output/{e.request_id}.json" for e in executions)
    return {"records": aws(executions=executions, glue_runs=runs, outputs=outputs)}


def without(number: int, *instead: Any) -> dict[str, Any]:
    return {"changes": [*CHANGES[:number], *instead, *CHANGES[number + 1 :]]}


def test_a_run_in_which_all_requests_take_their_turn_passes_every_check() -> None:
    made = report(records())
    assert (failing(made), list(not_shown(made))) == ({}, [KEPT])
    assert (made["requests"], made["succeeded"], made["failed"]) == (6, 5, 0)
    assert (made["limits"], made["total_seconds"]) == ([(0.0, 1), (7.0, 3)], 9.1)
    assert made["most_weight"] == [
        {"glue_runs": 1, "glue_states": 1, "held": 1},
        {"glue_runs": 3, "glue_states": 3, "held": 3},
    ]
    assert made["waits"]["high"] == {"count": 1, "p50": 1.7, "max": 1.7}, "without the blocked request"
    assert made["waits"]["low"] == {"count": 2, "p50": 0.2, "max": 6.5}
    assert (made["passed"], made["ahead"]) == ({"r3": 0}, 1), "low r1 started before normal r2 was delivered"


def test_a_hand_off_is_from_a_release_or_a_raised_limit_to_the_start_of_the_request_that_had_the_turn() -> None:
    handoffs = [(each["at"], each["seconds"], each["request_id"]) for each in report(records())["handoffs"]]
    assert handoffs == [(2.1, 0.1, "r3"), (4.3, 0.1, "r2"), (6.3, 0.2, "r4"), (7.0, 0.1, "b")]


def test_the_timeline_has_each_request_also_the_cancelled_one() -> None:
    timeline = {each["request_id"]: each for each in report(records())["timeline"]}
    assert timeline["c"] == {
        "request_id": "c",
        "priority": "high",
        "weight": 1,
        "end": "CANCELLED",
        "sent": 3.5,
        "started": None,
        "released": None,
        "ended": 4.0,
        "blocked_until": None,
    }
    assert (timeline["b"]["blocked_until"], timeline["b"]["released"], timeline["b"]["end"]) == (7.0, 8.9, "SUCCEEDED")


@pytest.mark.parametrize(
    ("recorded", "findings"),
    [
        pytest.param(
            {
                "records": aws(
                    glue_runs=[*aws().glue_runs, GlueRun("x", name("r2"), "SUCCEEDED", ORIGIN + 1, ORIGIN + 2)]
                )
            },
            {WEIGHT: "above the limit of 1: glue_runs 2"},
            id="two Glue runs at the same time",
        ),
        pytest.param(
            {"raised": (ORIGIN + 7.3, ORIGIN + 7.4)},
            {WEIGHT: "above the limit of 1: glue_runs 3", BLOCKED: "started before the limit was raised: b"},
            id="the blocked request before the limit was raised",
        ),
        pytest.param(
            {"sent": [replace(each, sequence=9) if each.request.request_id == "r1" else each for each in run.SENT]},
            {ORDER: "out of order: r4 after r1"},
            id="a later message of the same priority first",
        ),
        pytest.param(
            without(5, change(2.1, "r2", high=("r3", 1)), CHANGES[5]),
            {KEEPS_OUT: f"passed: {name('r2')} takes a slot before {name('r3')}"},
            id="a lower priority while a higher one is registered",
        ),
        pytest.param(
            {"refusals": [*records().refusals, replace(records().refusals[0], request_id="r1", at=ORIGIN)]},
            {KEEPS_OUT: "refused but not registered: r1"},
            id="a refusal without a registration",
        ),
        pytest.param(
            {"changes": [change(-1), change(0.3, high=("r3", 1)), *CHANGES[1:3], *CHANGES[5:]]},
            {KEEPS_OUT: f"passed: {name('r1')} takes a slot before {name('r3')}"},
            id="a slot is reserved although a higher priority is registered",
        ),
        pytest.param(moved("b", 12.6, 14.6), {URGENT: "late: b (5.6 s)"}, id="an urgent request long after it fitted"),
        pytest.param(
            {"records": aws(dead=[])},
            {
                run.ACCOUNTED: "neither started nor dead-lettered: c",
                KEEPS_OUT: "registration lost: c",
                URGENT: "late: c (inf s)",
                CANCELLED: "not dead-lettered once: c (0)",
            },
            id="the cancelled request is lost",
        ),
        pytest.param(
            {"records": aws(dead=[replace(run.CANCELLED, error="Expired")])},
            {CANCELLED: "without the reason: c"},
            id="dead-lettered for another reason",
        ),
        pytest.param(
            without(17, replace(CHANGES[17], count=1)),
            {COUNTER: "differs: slots_in_use is 1, and 0 holders weigh 0"},
            id="a counter that has drifted",
        ),
        pytest.param(
            without(17, change(8.95, limit=3, low=("r4", 1))),
            {COUNTER: f"registrations left: {name('r4')}"},
            id="a registration that is left over",
        ),
    ],
)
def test_records_that_break_a_claim_fail_it_alone(recorded: dict[str, Any], findings: dict[str, str]) -> None:
    found = failing(report(records(**recorded)))
    assert {claim: text[: len(findings[claim])] for claim, text in found.items() if claim in findings} == findings
    assert found.keys() == findings.keys()


def test_a_blocked_request_that_does_not_start_and_a_cancelled_one_that_does_are_named() -> None:
    left = [e for e in WORKFLOWS if e.request_id != "b"]
    assert "it did not start: b" in failing(report(records(**of_workflows(left))))[BLOCKED]
    started = [*WORKFLOWS, workflow(run.C, 9.2, 11.2)]
    assert "started: c" in failing(report(records(**of_workflows(started))))[CANCELLED]


def test_a_registration_that_a_wake_has_ended_must_come_back_within_a_hand_off() -> None:
    cleared = change(2.1, normal=("r2", 1))
    assert failing(report(records(changes=[*CHANGES[:5], cleared, *CHANGES[5:]]))) == {}
    absent = [
        change(2.15, normal=("r2", 1)),
        change(3.6, normal=("r2", 1), high=("c", 1)),
        change(4.0, normal=("r2", 1)),
    ]
    recorded = records(changes=[*CHANGES[:5], cleared, *absent, *CHANGES[8:]])
    assert failing(report(recorded)) == {KEEPS_OUT: "registration lost: r3"}


def test_what_did_not_happen_is_not_shown() -> None:
    nothing = aws(executions=[], glue_runs=[])
    recorded = records(raised=None, refusals=[], sent=run.SENT[:3], records=nothing, changes=CHANGES[:1])
    shown = not_shown(report(recorded))
    assert shown.keys() >= {WEIGHT, KEEPS_OUT, URGENT, BLOCKED, CANCELLED, HANDOFF}
    assert shown[URGENT] == "no urgent request started"


def test_a_cancellation_that_came_too_late_is_not_shown() -> None:
    last = workflow(run.C, 9.2, 11.2)
    recorded = replace(records(**of_workflows([*WORKFLOWS, last])), cancel_was_late=True)
    recorded = replace(recorded, records=replace(recorded.records, dead=[]))
    assert not_shown(report(recorded))[CANCELLED] == "c had its slots before it was cancelled"
    assert CANCELLED not in failing(report(recorded))


def test_starts_of_lower_priority_between_the_refusal_and_the_start_are_counted() -> None:
    made = report(records(**moved("r3", 4.41, 6.0)))
    assert made["passed"] == {"r3": 1}


def test_refusals_are_read_from_the_log_among_other_lines(tmp_path: Path) -> None:
    line = {"timestamp": "2026-11-23 03:38:21,513+0000", "request_id": "r1", "because": "full"}
    blocked, visible = (json.dumps(line | {"because": because}) for because in ("blocked", "contended"))
    lines = [json.dumps(line), "not JSON", json.dumps({"level": "INFO"}), blocked, visible]
    log = tmp_path / "engine.log"
    log.write_text("\n".join(lines) + "\n")
    refusal, _ = read_refusals(log)
    assert (refusal.request_id, refusal.at) == ("r1", pytest.approx(1795405101.513))


def test_the_records_have_the_requests_in_the_order_of_their_sending() -> None:
    recorded: PriorityRecords = records()
    assert list(recorded.last) == ["r1", "r2", "r4", "r3", "b"]
