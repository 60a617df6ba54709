"""The hand-off's method: what the rivals are made of, and how records become figures. No engine, no timings."""

from __future__ import annotations

import importlib
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dev.benchmarks.hand_off import hand_off_report
from dev.benchmarks.hand_off.figures import expected, holding, parts, slots_used, spread_out, summary, window
from dev.benchmarks.hand_off.hand_off_designs import WAKE_STATES, without_wake
from dev.benchmarks.hand_off.records import Call, Passage, parse_call, parse_passage, read_calls, read_invocations
from dev.scenarios.runner.scenario import CannotGoOn
from slotkeeper.slots import admission
from slotkeeper.slots.admission import Starter, Waiting
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import Delivery

WORKFLOW = Path(__file__).resolve().parents[2] / "statemachines" / "glue_workflow.asl.json"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


# ------------------------------------------------------------------------------------------------------------ rivals


def following(machine: dict[str, Any]) -> set[str]:
    """Every state that some state leads to."""

    def named(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(named, value))
        if isinstance(value, dict):
            next_states = {value[key] for key in ("Next", "Default") if isinstance(value.get(key), str)}
            return next_states.union(*map(named, value.values()))
        return set()

    return named(machine["States"])


def test_the_rival_workflow_is_the_deployed_one_without_its_wake():
    deployed = json.loads(WORKFLOW.read_text())
    rival = json.loads(without_wake(WORKFLOW.read_text(), "${RequestQueueUrl}", "http://rival"))
    assert deployed["States"].keys() - rival["States"].keys() == set(WAKE_STATES)
    assert following(rival) <= rival["States"].keys()
    release = rival["States"]["ReleaseSlot"]
    assert release["Next"] == "ChooseOutcome"
    assert [catch["Next"] for catch in release["Catch"]] == ["ChooseOutcome"]
    changed = {name for name, state in rival["States"].items() if state != deployed["States"][name]}
    assert changed == {"ReleaseSlot", "ReturnRequest"}  # the one for its own queue


@pytest.mark.parametrize("gone", [*WAKE_STATES, "ReleaseSlot", "ChooseOutcome"])
def test_a_workflow_that_lost_a_state_is_not_passed_off_as_a_rival(gone: str):
    machine = json.loads(WORKFLOW.read_text())
    del machine["States"][gone]
    with pytest.raises(CannotGoOn, match=gone):
        without_wake(json.dumps(machine), "${RequestQueueUrl}", "http://rival")


def test_a_wake_that_is_reached_another_way_is_noticed():
    text = WORKFLOW.read_text().replace('"Default": "ReleaseSlot"', '"Default": "WakeWaiting"')
    with pytest.raises(CannotGoOn, match="another way"):
        without_wake(text, "${RequestQueueUrl}", "http://rival")


class FullTable:
    """A process without room; counts what is asked of it."""

    def __init__(self) -> None:
        self.updates: list[str] = []

    def update_item(self, **asked: Any) -> Any:
        self.updates.append(asked["UpdateExpression"])
        item = {
            "process_name": {"S": "p"},
            "slot_limit": {"N": "1"},
            "slots_in_use": {"N": "1"},
            "holders": {"M": {"other": {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}}}}},
            "job_name": {"S": "job"},
        }
        error_response: Any = {"Error": {"Code": "ConditionalCheckFailedException", "Message": ""}, "Item": item}
        raise ClientError(error_response, "UpdateItem")

    def get_item(self, **_: Any) -> Any:
        pytest.fail("a polling starter looks once")


class HidingQueue:
    def __init__(self) -> None:
        self.hidden: list[int] = []

    def hide(self, _: Delivery, seconds: int) -> None:
        self.hidden.append(seconds)


def test_the_rival_starter_hides_for_its_period_and_registers_nobody(monkeypatch: pytest.MonkeyPatch):
    for owner, name in ((Slots, "wait"), (Slots, "can_proceed"), (admission, "hide_seconds")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # so that they are put back
    app = ModuleType("app")
    app.handler = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "app", app)
    monkeypatch.delitem(sys.modules, "dev.benchmarks.hand_off.polling_starter", raising=False)
    monkeypatch.setenv("POLL_SECONDS", "30")
    importlib.import_module("dev.benchmarks.hand_off.polling_starter")
    table, queue, anything = FullTable(), HidingQueue(), Any
    starter = Starter(Slots(table, "t"), queue, anything, 180, 1209600, 1000)  # type: ignore[arg-type]
    body = json.dumps({"process": "p", "request_id": "r"})
    outcome = starter.admit(Delivery("m", body, "p", "handle", "1", 1, sent_at=0.0), now=100.0)
    assert isinstance(outcome, Waiting)
    assert queue.hidden == [30]
    assert len(table.updates) == 1


# ----------------------------------------------------------------------------------------------------------- records


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def test_a_workflow_is_read_from_its_history():
    listed = {"name": "p-1", "status": "SUCCEEDED", "startDate": at(0), "stopDate": at(9)}
    events = [
        {"type": "TaskStateEntered", "timestamp": at(1), "stateEnteredEventDetails": {"name": "RunGlueJob"}},
        {"type": "TaskSubmitted", "timestamp": at(2)},
        {"type": "TaskStateExited", "timestamp": at(8), "stateExitedEventDetails": {"name": "RunGlueJob"}},
    ]
    passage = parse_passage(listed, events)
    assert passage.states == {"RunGlueJob": (at(1).timestamp(), at(8).timestamp())}
    assert (passage.entered("ReleaseSlot"), passage.exited("RunGlueJob")) == (None, at(8).timestamp())


def trail_event(number: int, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    source = f"{'dynamodb' if name.endswith('Item') else 'states'}.amazonaws.com"
    detail = {"eventSource": source, "eventName": name, "requestParameters": asked}
    return {"EventId": str(number), "EventTime": at(number), "CloudTrailEvent": json.dumps(detail)}


def test_a_call_belongs_to_the_way_that_it_names():
    ways = {"wake": "wake", "arn:poll": "poll-5"}
    key = {"Key": {"process_name": {"S": "wake"}}, "ExpressionAttributeNames": {"#me": "wake-1"}}
    reserve = parse_call(trail_event(1, "UpdateItem", key), ways)
    start = parse_call(trail_event(2, "StartExecution", {"stateMachineArn": "arn:poll", "name": "poll-1"}), ways)
    assert reserve == Call(at(1).timestamp(), "dynamodb", "UpdateItem", "wake", "wake-1")
    assert start == Call(at(2).timestamp(), "states", "StartExecution", "poll-5", "poll-1")
    assert parse_call(trail_event(3, "UpdateItem", {"Key": {"token_name": {"S": "wake"}}}), ways) is None


class Trail:
    """Answers 50 at most, the newest first, up to EndTime."""

    def __init__(self, count: int) -> None:
        self._events = [
            trail_event(number, "StartExecution", {"stateMachineArn": "arn", "name": str(number)})
            for number in range(count)
        ]

    def lookup_events(self, MaxResults: int, EndTime: datetime | None = None) -> Any:
        events = [event for event in self._events if EndTime is None or event["EventTime"] <= EndTime]
        return {"Events": events[::-1][:MaxResults]}


def test_the_trail_is_read_to_its_beginning():
    calls = read_calls(Trail(173), {"arn": "wake"})
    assert [call.execution for call in calls] == [str(number) for number in range(173)]


class Logs:
    def get_paginator(self, _: str) -> Any:
        return self

    def paginate(self, **_: Any) -> Any:
        lines = [
            (2000, "REPORT RequestId: b\tDuration: 500 ms\tBilled Duration: 500 ms"),
            (900, "REPORT RequestId: a\tDuration: 100 ms\tBilled Duration: 100 ms"),
            (1000, '{"message": "REPORT that a function wrote"}'),
        ]
        return [{"events": [{"timestamp": when, "message": line} for when, line in lines]}]


def test_an_invocation_begins_its_duration_before_its_report():
    assert read_invocations(Logs(), "group") == [(0.8, 0.9), (1.5, 2.0)]


# ----------------------------------------------------------------------------------------------------------- figures


def passage(name: str, started: float, released: float, *, wake: tuple[float, float] | None = None) -> Passage:
    states = {
        "ConfirmSlot": (started, started),
        "RunGlueJob": (started, released - 0.1),
        "ReleaseSlot": (released - 0.1, released),
    }
    if wake is not None:
        states |= {"ReadWaiting": (released, wake[0]), "WakeWaiting": wake}
    return Passage(name, "SUCCEEDED", started, released, states)


# Two slots, looked at every 10 s: at 0, at 10 and at 20.
POLLED = [passage(f"e{n}", 10.0 * (n // 2) + 0.1 * (n % 2), 10.0 * (n // 2) + 2.0) for n in range(6)]


def test_of_polling_only_whole_periods_count():
    polled = window(POLLED, (0.0, 25.0), 10, limit=2)
    assert polled.whole == (0.0, 20.0)
    assert polled.admitted == 4
    assert slots_used([polled]) == pytest.approx((1.9 + 1.8) * 2 / 40)


def test_a_window_leaves_out_what_started_before_it():
    assert [p.name for p in window(POLLED, (9.0, 15.0), 10, limit=2).passages] == ["e2", "e3"]


def test_a_hand_off_lasts_from_a_release_to_the_next_start():
    gaps = [handoff.seconds for handoff in window(POLLED, (0.0, 25.0), 10, limit=2).handoffs()]
    assert gaps == pytest.approx([8.0, 8.1, 8.0, 8.1])


def test_what_a_request_costs_is_counted_over_the_same_rounds():
    polled = window(POLLED, (0.0, 25.0), 10, limit=2)
    begun = [0.05, 0.2, 10.0, 10.05, 10.2, 19.9, 20.3]  # the last in a round that is not whole
    calls = [Call(started, "dynamodb", "UpdateItem", "poll-10", None) for started in begun]
    figures_of_way = summary([polled], [(started, started + 0.01) for started in begun], calls)
    assert figures_of_way["per_request"]["invocations"] == 6 / 4
    # The starter's, and a confirm and a release each.
    assert figures_of_way["per_request"]["DynamoDB writes"] == (6 + 8) / 4
    assert figures_of_way["expected"]["slots_used"] == pytest.approx(holding([polled]) / 10)


def woken() -> tuple[list[Passage], list[tuple[float, float]], list[Call]]:
    """One slot; the second request was refused at its first delivery and is woken by the first one's end."""
    passages = [passage("a", 0.0, 1.0, wake=(1.02, 1.03)), passage("b", 1.09, 2.0)]
    invocations = [(0.1, 0.2), (1.04, 1.1)]
    calls = [
        Call(0.15, "dynamodb", "UpdateItem", "wake", "b"),
        Call(1.07, "dynamodb", "UpdateItem", "wake", "b"),
        Call(1.09, "states", "StartExecution", "wake", "b"),
    ]
    return passages, invocations, calls


def test_the_parts_of_a_hand_off_add_up_to_it():
    passages, invocations, calls = woken()
    each = window(passages, (0.0, 3.0), None, limit=1)
    (shares,) = parts(each, invocations, calls)
    assert shares == pytest.approx((0.02, 0.02, 0.03, 0.02))
    assert sum(shares) == pytest.approx(each.handoffs()[0].seconds)


def test_a_hand_off_by_another_wake_has_no_parts():
    passages, _, calls = woken()
    each = window(passages, (0.0, 3.0), None, limit=1)
    assert parts(each, [(0.1, 0.2), (1.01, 1.1)], calls) == []  # the starter ran before this wake


def test_arithmetic_of_polling():
    short = expected(period=30, held=1.2, limit=4)
    assert (short.hand_off, short.slots_used, short.invocations) == pytest.approx((28.8, 0.04, 1.25))
    long = expected(period=5, held=12, limit=4)
    assert (long.hand_off, long.slots_used, long.invocations) == pytest.approx((3, 0.8, 1.75))
    spread = spread_out(period=30, held=60, limit=4)
    assert (spread.hand_off, spread.slots_used, spread.invocations) == pytest.approx((15, 0.8, 1.625))


# ------------------------------------------------------------------------------------------------------------ report


def figures(median: float, used: float, invocations: float) -> dict[str, Any]:
    def way(period: int | None, share: float) -> dict[str, Any]:
        measured: dict[str, Any] = {
            "period": period,
            "admitted": 10,
            "hand_offs": [median] * 10,
            "median": median,
            "p99": 2 * median,
            "medians": [median],
            "slots_used": share,
            "slots_used_by_window": [share],
            "jobs_running": share,
            "per_request": {"invocations": invocations},
        }
        expected = {"hand_off": 4.0, "slots_used": 0.2, "invocations": 1.25}
        return measured | ({"expected": expected} if period else {})

    ways = {"wake": way(None, used), "poll-5": way(5, 0.2), "poll-30": way(30, 0.04), "poll-300": way(300, 0.004)}
    return {"ways": ways, "parts": hand_off_report.part_figures([(0.1, 0.2, 0.3, 0.4)], 2)}


@pytest.mark.parametrize(
    ("measured", "met"),
    [
        ((0.02, 0.97, 1.9), [True, True, True, True, True]),
        ((1.0, 0.97, 1.9), [False, False, True, True, True]),
        ((0.02, 0.94, 2.3), [True, True, False, True, False]),
        ((0.02, 0.19, 1.9), [True, True, False, False, True]),
    ],
)
def test_goals_are_judged_by_the_figures(measured: tuple[float, float, float], met: list[bool]):
    outcome = hand_off_report.outcome(figures(*measured), 4)
    assert [goal.met for goal in outcome.goals] == met
    for grid in outcome.grids:
        assert {len(row) for row in grid.rows} == {len(grid.columns)}
