"""`make run TARGET=workflow`: the figures of a small run. Each claim fails on records that break it, and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dev.scenarios.slots import target_scenario
from dev.scenarios.slots.target_records import Called
from tests.scenarios import target_run as run
from tests.scenarios.reports import failing, not_shown
from tests.scenarios.target_run import ANSWERS, CHILDREN, ORIGIN, WORKFLOWS, records, report

LIMIT = "never more than 1 concurrently"
CHILD = "each workflow runs one child execution"
OUTCOMES = "the outcomes are those expected of the inputs"
CALLER = "the caller's Map has every answer, in order"
KEPT = "failed requests are in FailedRequestQueue"


def called(**changes: Any) -> Called:
    return replace(records().called, **changes)


def test_a_run_without_faults_passes_every_check() -> None:
    made = report(records())
    assert (failing(made), not_shown(made), made["ok"]) == ({}, {}, True)
    counts = [made[name] for name in ("requests", "called", "answers", "succeeded", "failed")]
    assert counts == [4, 2, 2, 3, 1]
    assert made["max_children_open"] == made["max_child_states_open"] == made["max_slots_held"] == 1
    assert made["answer_seconds"] == {"count": 2, "median": 0.2, "max": 0.2}
    assert made["handoff"]["count"] == 3
    assert [each["is_called"] for each in made["workflows"]] == [False, False, True, True]


@pytest.mark.parametrize(
    ("recorded", "findings"),
    [
        pytest.param(
            {"children": [*CHILDREN[:3], replace(CHILDREN[3], started=ORIGIN + 2.2)]},
            {LIMIT: "at most 2 children open, 1 inside RunStateMachine, 1 holding a slot"},
            id="two children at the same time",
        ),
        pytest.param(
            {"children": [*CHILDREN[:3], replace(CHILDREN[3], stopped=None)]},
            {CHILD: "children that have not ended: weather-4"},
            id="a child that outlives its workflow",
        ),
        pytest.param(
            {"children": CHILDREN[1:]},
            {CHILD: "workflows without a child: weather-1", OUTCOMES: "another result: r1"},
            id="a workflow that ran nothing",
        ),
        pytest.param(
            {"children": [*CHILDREN, replace(CHILDREN[0], name="other", started=ORIGIN, stopped=ORIGIN + 0.1)]},
            {CHILD: "children of no workflow: other"},
            id="a child outside the slots",
        ),
        pytest.param(
            {"children": [replace(CHILDREN[0], output={}), *CHILDREN[1:]]},
            {OUTCOMES: "another result: r1"},
            id="another result than that of the input",
        ),
        pytest.param(
            {"executions": [WORKFLOWS[0], replace(WORKFLOWS[1], status="SUCCEEDED"), *WORKFLOWS[2:]], "kept": []},
            {OUTCOMES: "ended otherwise than expected of their input: r2 SUCCEEDED"},
            id="a damaged input that succeeds",
        ),
        pytest.param({"kept": []}, {KEPT: "failed and not kept: r2"}, id="a failed request that is not kept"),
        pytest.param(
            {"called": called(answers=ANSWERS[:1])},
            {CALLER: "without an answer: r4; not in the order of the items: the answers"},
            id="an item without an answer",
        ),
        pytest.param(
            {"called": called(answers=ANSWERS[::-1])},
            {CALLER: "not in the order of the items: the answers"},
            id="answers in another order",
        ),
        pytest.param(
            {"called": called(answers=[ANSWERS[0], {"request_id": "r4", "result": {"month": "2012-02"}}])},
            {CALLER: "another answer than the child's output: r4"},
            id="the answer of another item",
        ),
        pytest.param(
            {"called": called(status="FAILED", answers=[])},
            {CALLER: "it ended as: FAILED; without an answer: r3, r4; not in the order of the items: the answers"},
            id="a caller that failed",
        ),
    ],
)
def test_records_that_break_a_claim_fail_it_alone(recorded: dict[str, Any], findings: dict[str, str]) -> None:
    assert failing(report(records(**recorded))) == findings


def test_a_failed_request_of_a_caller_is_answered_by_an_error(tmp_path: Path) -> None:
    ended = [*WORKFLOWS[:3], replace(WORKFLOWS[3], status="FAILED")]
    answers = [ANSWERS[0], {"request_id": "r4", "error": "StateMachine.ExecutionNotSucceeded"}]
    damaged = replace(run.SENT[3], request=replace(run.SENT[3].request, damaged=True))
    recorded = records(
        sent=[*run.SENT[:3], damaged],
        executions=ended,
        children=[run.child(each) for each in ended],
        kept=[run.KEPT, replace(run.KEPT, request_id="r4")],
        called=called(answers=answers),
    )
    made = report(recorded)
    assert failing(made) == {}
    assert "1 result" in {each["name"]: each["found"] for each in made["checks"]}[CALLER]
    assert len(target_scenario.tables(made)) == 3
    target_scenario.draw(made, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").stat().st_size > 10_000
