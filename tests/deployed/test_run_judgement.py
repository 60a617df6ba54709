"""What runs add to the audit: the facts that they know, and their own checks, each of which fails on its fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dev.judge.grant_order import Row, wrong_order
from dev.judge.slot_item import Holder, Item
from dev.scenarios.runner import audit
from dev.scenarios.runner.janitor_clock import JanitorRun
from dev.scenarios.runner.whole_run import Disturbance, Sending
from dev.scenarios.slots.machine_run import Called, caller_has_all
from dev.scenarios.slots.slot_requests import Request, SentRequest
from dev.scenarios.slots.slot_stack import replay_agrees, results_are_those
from dev.scenarios.soak.soak_receivers import Answered, Received, all_was_published
from dev.scenarios.soak.soak_report import FaultMark, whole_run
from slotkeeper_cli.audit.check_result import Result
from slotkeeper_cli.audit.work_history import OperatorAct
from slotkeeper_cli.what_if.recording import PastRequest, Recording
from tests.command.work_histories import START, attempt, clean, history, name
from tests.deployed.test_whole_run import whole

HELD = Holder("RESERVED", weight=2)
EVERY_WRITE = "every version of the items is right, and each write is allowed"


def test_a_write_that_no_condition_allows_fails_the_run() -> None:
    items = [Item("sample", 1, 0, {}), Item("sample", 1, 2, {"sample-1": HELD})]
    wrong = {each.claim: each for each in audit.checks_of(whole().history, whole().run, items)}[EVERY_WRITE]
    assert wrong.result is Result.FAILS
    assert "S1: sample: ['sample-1'] of weight 2 take slots that are not free" in wrong.finding
    assert [each.result for each in audit.checks_of(whole().history, whole().run, [])] == [Result.HOLDS] * 6


def test_an_execution_that_an_operator_has_adopted_takes_a_slot_above_the_limit() -> None:
    running = {"sample-1": HELD._replace(state="RUNNING", target="job")}
    items = [Item("sample", 1, 0, {}), Item("sample", 1, 2, running)]
    act = OperatorAct(START, "stack reconcile", fields={"adopt": ["sample-1"]})
    found = [
        audit.checks_of(replace(whole().history, acts=acts), whole().run, items)[-1].result for acts in ([act], [])
    ]
    assert found == [Result.HOLDS, Result.FAILS]


def _item(grants: int, *holders: str, limit: int = 1, state: str = "RESERVED") -> Item:
    return Item("p", limit, len(holders), {name: Holder(state) for name in holders}, grants=grants)


A, B = Row("p", "a", "1#1"), Row("p", "b", "1#2")
ORDERS: dict[str, tuple[list[Item | Row], str]] = {
    "in order": ([_item(1), A, B, _item(2), _item(3, "a")], ""),
    "one in front is passed": ([_item(1), A, B, _item(2), _item(3, "b")], "b is granted a slot before a, which is in"),
    "a row that is newer than the last change of grants": ([_item(1), B, _item(2), A, _item(3, "b")], ""),
    "a row that is older than it": ([_item(1), B, A, _item(2), _item(3, "b")], "b is granted a slot before a"),
    "one that has left the queue": ([_item(1), A, B, A._replace(place=""), _item(2), _item(3, "b")], ""),
    "one above the limit": ([_item(1), A._replace(weight=2), B, _item(2), _item(3, "b")], ""),
    "one that holds a slot": ([_item(1, limit=2), A, B, _item(2, "a", limit=2), _item(3, "a", "b", limit=2)], ""),
    "one that was put back": ([_item(1), A, B, _item(2, "a"), _item(3), _item(4, "b")], "before a"),
    "a batch": ([_item(1, limit=2), A, B, _item(2, limit=2), _item(3, "a", "b", limit=2)], ""),
    "another process": ([_item(1), A._replace(process="q"), B, _item(2), _item(3, "b")], ""),
}


@pytest.mark.parametrize(("versions", "breach"), ORDERS.values(), ids=ORDERS)
def test_a_grant_passes_no_request_that_its_plan_knew(versions: list[Item | Row], breach: str) -> None:
    found = [str(each) for _, each in wrong_order(versions)]
    assert len(found) == bool(breach)
    assert not breach or breach in found[0]


# ------------------------------------------------------------------------------------------------------------- results

ONE, TWO = attempt("a", 0, 10), attempt("b", 1, 12, "FAILED", code="RequestFailed")
SENT = [SentRequest(Request(each, each == "b", {"--output_key": f"output/{each}"}), START) for each in "ab"]


@pytest.mark.parametrize(
    ("outputs", "finding"),
    [
        ({"output/a"}, ""),
        (set(), "succeeded without a result: output/a"),
        ({"output/a", "output/b"}, "result without a success: output/b"),
    ],
)
def test_a_result_exists_exactly_for_each_success(outputs: set[str], finding: str) -> None:
    check = results_are_those(history([ONE, TWO]), SENT, outputs)
    assert (check.result is Result.FAILS) is bool(finding)
    assert finding in check.finding


@pytest.mark.parametrize(
    ("starts", "result"),
    [
        ([0.0, 10.5, 21.0], Result.HOLDS),
        ([0.0, 0.1, 10.0], Result.FAILS),  # two ran in the slot
        ([0.0, 10.0, 20.0, 40.0], Result.FAILS),  # the last one waited although the slot was free
        ([0.0], Result.NOT_SHOWN),
    ],
)
def test_a_replay_agrees_if_the_requests_started_as_the_rules_allow(starts: list[float], result: Result) -> None:
    """Requests of ten seconds that were sent together, at one slot."""
    past = [PastRequest(f"sample-{at}", START, START + at, START + at + 10) for at in starts]
    process = replace(clean().processes["sample"], slot_limit=1)
    made = Recording(process, START, START + 100, past)
    assert replay_agrees(made, 1).result is result


OUTPUTS: Mapping[str, Any] = {name("a"): {"days": 1}}
ANSWERS: list[dict[str, Any]] = [{"request_id": "a", "result": {"days": 1}}, {"request_id": "b", "error": "E"}]


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
    check = caller_has_all(called, history([ONE, TWO]), OUTPUTS)
    assert check.finding.startswith(finding)
    assert (check.result is Result.HOLDS) is finding.startswith("1 result")


# ---------------------------------------------------------------------------------------------------------------- soak


def test_a_fault_may_delay_starts_for_seconds_and_an_engine_that_is_down_for_as_long_as_it_is() -> None:
    faults = [
        FaultMark(10, "abort", "", "soak-a", 10),
        FaultMark(12, "bad message", "", "soak-a", 12),
        FaultMark(20, "engine killed", "", "", 30),
    ]
    known = whole_run([], [], [JanitorRun(1, 2, True), JanitorRun(3, 4, False)], faults, calm_from=35, grace=2)
    assert known.disturbances == [
        Disturbance(10, 20, "soak-a"),
        Disturbance(20, 35),
        Disturbance(20, 30, is_outage=True),
    ]
    assert known.janitor_runs == [(1, 2)], "an interrupted run does not count"


def _received(**fields: object) -> Received:
    """All of ONE, which succeeded, and of TWO, which failed: its caller was answered."""
    of = {each: ("sample", each, 1) for each in "ab"}
    events = frozenset({(of["a"], "SUCCEEDED"), (of["b"], "FAILED")})
    caller = Answered("b", Sending(TWO.execution, START), "", "FAILED")
    return replace(Received(events, frozenset({of["b"]}), [caller]), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("received", "finding"),
    [
        (_received(), "2 ends, 1 notified failures, 1 answers"),
        (_received(events=frozenset()), "without an event: a, attempt 1 (sample), b, attempt 1 (sample)"),
        (_received(notified=frozenset()), "failed without a notification: b, attempt 1 (sample)"),
        (
            _received(callers=[Answered("b", Sending(TWO.execution, START), "", "RUNNING")]),
            "callers without an answer: b (RUNNING)",
        ),
        (
            _received(callers=[Answered("b", Sending(TWO.execution, START), "", "SUCCEEDED")]),
            "callers with another answer than the outcome: b",
        ),
    ],
)
def test_each_end_has_its_event_each_failure_its_notification_each_caller_its_answer(
    received: Received, finding: str
) -> None:
    check = all_was_published(history([ONE, TWO]), (), received)
    assert check.finding == finding
    assert (check.result is Result.HOLDS) is (received == _received())
