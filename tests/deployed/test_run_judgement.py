"""What runs add to the audit: the facts that they know, and their own checks, each of which fails on its fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dev.judge.grant_order import Row, wrong_order
from dev.judge.slot_item import Asked, Holder, Item, wrong_step
from dev.scenarios.faults.fault_player import FaultMark
from dev.scenarios.faults.fault_run import whole_run
from dev.scenarios.runner import audit
from dev.scenarios.runner.janitor_clock import JanitorRun
from dev.scenarios.runner.whole_run import Disturbance, Sending
from dev.scenarios.slots.receivers import Answered, Received, all_was_published
from dev.scenarios.slots.slot_requests import Request, SentRequest
from dev.scenarios.slots.slot_stack import results_are_those
from slotkeeper_cli.audit.check_result import Result
from slotkeeper_cli.audit.work_history import OperatorAct
from tests.command.work_histories import START, attempt, history
from tests.deployed.test_whole_run import whole

HELD = Holder("RESERVED", weight=2)
EVERY_WRITE = "every version of the items is right, and each write is allowed"


def test_a_write_that_no_condition_allows_fails_the_run() -> None:
    items = [Item("sample", 1, 0, {}), Item("sample", 1, 2, {"sample-1": HELD})]
    wrong = {each.claim: each for each in audit.checks_of(whole().history, whole().run, items)}[EVERY_WRITE]
    assert wrong.result is Result.FAILS
    assert "S1: sample: ['sample-1'] of weight 2 take slots that are not free" in wrong.finding
    assert [each.result for each in audit.checks_of(whole().history, whole().run, [])] == [Result.HOLDS] * 6


@pytest.mark.parametrize(
    ("holder", "limits", "breach"),
    [
        (Holder("RESERVED", key="k"), {"key_limit": 2, "key_limits": {"k": 1}}, "key 'k' has 2 of 1"),
        (Holder("RESERVED", weight=2), {"key_limit": 1}, "key '' has 2 of 1"),
        (Holder("LEASED", key="", weight=2), {"key_limit": 1}, ""),
        (Holder("RESERVED", key="l"), {}, "x has key 'l', but its request has 'k'"),
    ],
)
def test_a_key_never_has_more_than_its_limit(holder: Holder, limits: dict[str, Any], breach: str) -> None:
    held = {"k1": Holder("RUNNING", key="k"), "lease": Holder("LEASED")}
    before = Item("p", 9, 2, held, **limits)
    after = replace(before, holders={**held, "x": holder}, count=2 + holder.weight, grants=1)
    found = [each.text for each in wrong_step(before, after, lambda *_: Asked(key="k" if holder.key else None))]
    assert len(found) == bool(breach)
    assert not breach or breach in found[0]


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


def _keyed(grants: int, *holders: str, turns: str = "", limit: int | None = None) -> Item:
    """An item of three slots, whose holders have the first characters of their names as keys."""
    held = {name: Holder("RESERVED", key=name[0]) for name in holders}
    after = {"1": turns} if turns else {}
    return Item("p", 3, len(held), held, grants=grants, after_keys=after, key_limit=limit)


A, B = Row("p", "a", "1#1"), Row("p", "b", "1#2")
K1, K2, L1, M1 = (Row("p", name, f"1#/{name[0]}\t{at}") for at, name in enumerate(("k1", "k2", "l1", "m1")))
L2 = L1._replace(execution="l2", place="1#/l\t5")
KEYS = [_keyed(1, limit=1), K1, K2, L1, _keyed(2, limit=1)]
ORDERS: dict[str, tuple[list[Item | Row], str]] = {
    "one in front is passed": ([_item(1), A, B, _item(2), _item(3, "b")], "b is granted a slot before a, which is in"),
    "a row that is newer than the last change of grants": ([_item(1), B, _item(2), A, _item(3, "b")], ""),
    "a row that is older than it": ([_item(1), B, A, _item(2), _item(3, "b")], "b is granted a slot before a"),
    "one that has left the queue": ([_item(1), A, B, A._replace(place=""), _item(2), _item(3, "b")], ""),
    "one above the limit": ([_item(1), A._replace(weight=2), B, _item(2), _item(3, "b")], ""),
    "one that holds a slot": ([_item(1, limit=2), A, B, _item(2, "a", limit=2), _item(3, "a", "b", limit=2)], ""),
    "one that was put back": ([_item(1), A, B, _item(2, "a"), _item(3), _item(4, "b")], "before a"),
    "a batch": ([_item(1, limit=2), A, B, _item(2, limit=2), _item(3, "a", "b", limit=2)], ""),
    "the turn of each key, in one grant": ([*KEYS, _keyed(3, "k1", "l1", turns="l")], ""),
    "a key that is full after its turn in the same grant": ([L2, *KEYS, _keyed(3, "k1", "l1", "l2", turns="l")], ""),
    "a second turn before the first one of another key": ([*KEYS, _keyed(3, "k1", "k2", turns="k")], "k2 is granted a"),
    "a key whose turn was last": (
        [_keyed(1, turns="k"), K1, L1, _keyed(2, turns="k"), _keyed(3, "k1", turns="k")],
        "k1 is granted a slot before l1",
    ),
    "a key that is passed at its limit": (
        [_keyed(1, "k0", limit=1), K1, L1, _keyed(2, "k0", limit=1), _keyed(3, "k0", "l1", turns="l", limit=1)],
        "",
    ),
    "a key that was at its limit when its plan was made": (
        [*(_keyed(1, "k0", limit=1), K1, L1, _keyed(2, "k0", limit=1)), _keyed(2, limit=1), _keyed(3, "l1", turns="l")],
        "",
    ),
    "a key that a heavier request keeps back, which the plan perhaps knew": (
        [
            *(_keyed(1, "k0", limit=2), K2, L1, _keyed(2, "k0", limit=2), K1._replace(weight=2)),
            _keyed(3, "k0", "l1", turns="l", limit=2),
        ],
        "",
    ),
    "one above the limit of its key": (
        [_keyed(1, limit=1), K1._replace(weight=2), K2, _keyed(2, limit=1), _keyed(3, "k2", turns="k", limit=1)],
        "",
    ),
    "a higher priority of another key": (
        [_keyed(1), A._replace(place="0#/z\t1"), K1, _keyed(2), _keyed(3, "k1", turns="k")],
        "k1 is granted a slot before a",
    ),
    "a turn that the item does not note": ([*KEYS, _keyed(3, "k1", turns="l")], "the last turns are {'1': 'k'}"),
    "another process": ([_item(1), A._replace(process="q"), B, _item(2), _item(3, "b")], ""),
}


@pytest.mark.parametrize(("versions", "breach"), ORDERS.values(), ids=ORDERS)
def test_a_grant_passes_no_request_that_its_plan_knew(versions: list[Item | Row], breach: str) -> None:
    found = [str(each) for _, each in wrong_order(versions)]
    assert len(found) == bool(breach)
    assert not breach or breach in found[0]


# ------------------------------------------------------------------------------------------------------------- results

ONE, TWO = attempt("a", 0, 10), attempt("b", 1, 12, "FAILED", code="RequestFailed")
SENT = [SentRequest(Request(each, {"arguments": {"--output_key": f"output/{each}"}}), START) for each in "ab"]


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


# ---------------------------------------------------------------------------------------------------------------- soak


def test_a_fault_may_delay_starts_for_seconds_and_an_engine_that_is_down_for_as_long_as_it_is() -> None:
    faults = [
        FaultMark(10, "abort", "", "soak-a", 10),
        FaultMark(12, "bad message", "", "soak-a", 12),
        FaultMark(20, "engine killed", "", "", 30),
    ]
    known = whole_run([JanitorRun(1, 2, True), JanitorRun(3, 4, False)], faults, calm_from=35, grace=2)
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
    return replace(Received(events, frozenset({of["b"]}), [_caller("b", "FAILED")]), **fields)  # type: ignore[arg-type]


def _caller(request_id: str, status: str, answer: object = None) -> Answered:
    execution = {"a": ONE, "b": TWO}[request_id].execution
    return Answered(request_id, Sending(execution, START), status, answer=answer)


@pytest.mark.parametrize(
    ("received", "finding"),
    [
        (_received(), "2 ends, 1 notified failures, 1 callers"),
        (_received(events=frozenset()), "without an event: a, attempt 1 (sample), b, attempt 1 (sample)"),
        (_received(notified=frozenset()), "failed without a notification: b, attempt 1 (sample)"),
        (_received(callers=[_caller("b", "RUNNING")]), "callers without an answer: b (RUNNING)"),
        (_received(callers=[_caller("b", "SUCCEEDED")]), "callers with another answer than the outcome: b"),
    ],
)
def test_each_end_has_its_event_each_failure_its_notification_each_caller_its_answer(
    received: Received, finding: str
) -> None:
    check = all_was_published(history([ONE, TWO]), (), received)
    assert check.finding == finding
    assert (check.result is Result.HOLDS) is (received == _received())


@pytest.mark.parametrize(
    ("caller", "is_right"),
    [
        (_caller("a", "SUCCEEDED", {"days": 1}), True),
        (_caller("a", "SUCCEEDED", {}), False),
        (_caller("a", "FAILED"), False),
        (_caller("b", "FAILED"), True),
        (_caller("b", "SUCCEEDED"), False),
    ],
)
def test_without_faults_a_caller_has_the_output_of_its_requests_work(caller: Answered, is_right: bool) -> None:
    received = replace(_received(callers=[caller]), outputs={ONE.execution: {"days": 1}})
    assert (all_was_published(history([ONE, TWO]), (), received).result is Result.HOLDS) is is_right
