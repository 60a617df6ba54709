"""What runs add to the audit: the facts that they know, and their own checks, each of which fails on its fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dev.judge.slot_item import Holder, Item
from dev.scenarios.runner import audit
from dev.scenarios.runner.claims import Claim
from dev.scenarios.slots.slot_requests import Request, SentRequest
from dev.scenarios.slots.slot_stack import results_are_those
from dev.scenarios.slots.target_requests import expected
from dev.scenarios.slots.target_scenario import caller_has_all
from dev.scenarios.slots.target_scenario import results_are_those as outputs_are_those
from dev.scenarios.slots.target_stack import Called
from dev.scenarios.soak.soak_plan import BAD
from dev.scenarios.soak.soak_records import FaultMark, JanitorRun, SentMessage, whole_run
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.audit.work_history import AuditBounds, Disturbance, ItemVersion, Sending, WholeRun
from tests.cli.work_histories import START, attempt, clean, history, name, whole

HELD = {"sample-1": Holder("RUNNING", weight=2), "sample-2": Holder("RESERVED")}


def test_the_versions_of_an_item_are_read_with_a_pause_as_a_limit_of_0() -> None:
    items = [Item("sample", 3, 3, HELD, at=5.0), Item("sample", 3, 3, HELD, paused=True, at=6.0)]
    weights, confirmed = {"sample-1": 2, "sample-2": 1}, frozenset({"sample-1"})
    assert audit.versions(items) == {
        "sample": [ItemVersion(5.0, 3, weights, confirmed), ItemVersion(6.0, 0, weights, confirmed)]
    }


def test_the_messages_of_a_run_are_its_own_and_those_that_its_workflows_have_returned() -> None:
    sent, returned = Sending("sample-1", 1.0, 1), Sending("sample-2", 2.0)
    read = replace(clean(), sendings=[Sending("sample-1", 1.5), Sending("sample-9", 1.0, 7), returned])
    assert audit.with_facts(read, [sent], WholeRun(), AuditBounds()).sendings == [sent, returned]


def test_a_write_that_no_condition_allows_fails_the_run() -> None:
    items = [Item("sample", 1, 0, {}), Item("sample", 1, 2, {"sample-1": Holder("RESERVED", weight=2)})]
    by_name = {claim.name: claim for claim in audit.claims_of(whole(), items)}
    wrong = by_name["every version of the items is right, and each write is allowed"]
    assert (wrong.ok, "S1: sample: sample-1 of weight 2 takes a slot although none is free" in wrong.finding) == (
        False,
        True,
    )
    assert [claim.ok for claim in audit.claims_of(whole(), [])] == [True] * 6


def test_a_check_that_fails_names_what_fails() -> None:
    lost = replace(whole(), queued=2)
    (claim,) = (claim for claim in audit.claims_of(lost, []) if claim.ok is False)
    assert claim.finding.endswith("2 messages left on RequestQueue")


def test_the_outcome_of_a_request_is_that_of_its_input() -> None:
    request = Request("r1", "2012-01", {}, damaged=True)
    sending = SentRequest(request, 5, START).sending()
    assert (sending.execution, sending.outcome) == (execution_name("sample", "r1", 1), "FAILED")
    assert SentRequest(replace(request, damaged=False), 5, START).sending().outcome == "SUCCEEDED"


# ------------------------------------------------------------------------------------------------------------- results

ONE, TWO = attempt("a", 0, 10), attempt("b", 1, 12, "FAILED", error="RequestFailed")
SENT = [
    SentRequest(Request(each, "2012-01", {"--output_key": f"output/{each}"}, damaged=each == "b"), 1, START)
    for each in "ab"
]


@pytest.mark.parametrize(
    ("outputs", "finding"),
    [
        ({"output/a"}, ""),
        (set(), "succeeded without a result: output/a"),
        ({"output/a", "output/b"}, "result without a success: output/b"),
    ],
)
def test_a_result_exists_exactly_for_each_success(outputs: set[str], finding: str) -> None:
    claim = results_are_those(history([ONE, TWO]), SENT, outputs)
    assert claim.ok is not bool(finding)
    assert finding in claim.finding


INPUT = {"month": "2012-01", "days": [{"temp_max": 7.5, "precipitation": 0.1}]}
REQUESTS = [Request("a", "2012-01", {}, False, input=INPUT), Request("b", "2012-01", {}, True, input=INPUT)]
OUTPUTS: Mapping[str, Any] = {name("a"): expected(INPUT)}


def test_the_output_of_a_child_is_compared_with_its_input() -> None:
    assert outputs_are_those(REQUESTS, history([ONE, TWO]), OUTPUTS).ok is True
    assert outputs_are_those(REQUESTS, history([ONE, TWO]), {name("a"): {}}).finding == "another result: a"


ANSWERS: list[dict[str, Any]] = [{"request_id": "a", "result": expected(INPUT)}, {"request_id": "b", "error": "E"}]


@pytest.mark.parametrize(
    ("called", "finding"),
    [
        (Called("SUCCEEDED", ["a", "b"], ANSWERS), "1 result and 1 error for 2 items"),
        (Called("FAILED", ["a", "b"], ANSWERS), "it ended as: FAILED"),
        (Called("SUCCEEDED", ["a", "b"], ANSWERS[:1]), "without an answer: b; not in the order"),
        (Called("SUCCEEDED", ["a", "b"], ANSWERS[::-1]), "not in the order of the items: the answers"),
        (Called("SUCCEEDED", ["a"], [{"request_id": "a", "result": {}}]), "another answer than the child's output: a"),
        (Called("SUCCEEDED", ["b"], [{"request_id": "b", "result": {}}]), "another answer than the child's output: b"),
    ],
)
def test_a_caller_has_the_answer_of_each_request_in_order(called: Called, finding: str) -> None:
    claim: Claim = caller_has_all(called, history([ONE, TWO]), OUTPUTS)
    assert claim.finding.startswith(finding)
    assert claim.ok is finding.startswith("1 result")


# ---------------------------------------------------------------------------------------------------------------- soak


def test_a_fault_may_delay_starts_for_seconds_and_an_engine_that_is_down_for_as_long_as_it_is() -> None:
    faults = [
        FaultMark(10, "abort", "", "soak-a", 10),
        FaultMark(12, "bad message", "", "soak-a", 12),
        FaultMark(20, "engine killed", "", "", 30),
    ]
    known = whole_run([], [JanitorRun(1, 2, True), JanitorRun(3, 4, False)], faults, calm_from=35)
    assert known.disturbances == [
        Disturbance(10, 20, "soak-a"),
        Disturbance(20, 35),
        Disturbance(20, 30, is_outage=True),
    ]
    assert known.janitor_runs == [(1, 2)], "an interrupted run does not count"


def test_a_bad_message_is_dead_lettered_and_another_one_must_start() -> None:
    message = SentMessage("soak-a", "r1", "m1", "7", 5.0, "{}")
    assert message.sending == Sending(execution_name("soak-a", "r1", 1), 5.0, 7, message_id="m1", outcome="STARTED")
    outcomes = [replace(message, bad=bad).sending.outcome for bad in BAD]
    assert outcomes == ["InvalidRequest", "UnknownProcess", "InvalidRequest", "InvalidRequest"]
