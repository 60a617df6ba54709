"""The hand-off benchmark without an engine: the polling variants, and the figures from records."""

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
from dev.benchmarks.hand_off.figures import expected, holding, slots_used, spread_out, summary, window
from dev.benchmarks.hand_off.hand_off_designs import WAKE_STATES, without_wake
from dev.benchmarks.hand_off.records import Call, parse_call, read_calls, read_invocations
from dev.benchmarks.hand_off.workflow_records import Execution
from dev.scenarios.runner.scenario import CannotContinue
from slotkeeper.slots import admission
from slotkeeper.slots.admission import Starter, Waiting
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import Delivery

WORKFLOW = Path(__file__).resolve().parents[2] / "statemachines" / "slot_workflow.asl.json"
ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)


# ---------------------------------------------------------------------------------------------------------- variants


def following(machine: dict[str, Any]) -> set[str]:
    """Every state that another state leads to."""

    def named(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(named, value))
        if isinstance(value, dict):
            next_states = {value[key] for key in ("Next", "Default") if isinstance(value.get(key), str)}
            return next_states.union(*map(named, value.values()))
        return set()

    return named(machine["States"])


def test_the_polling_workflow_is_the_deployed_one_without_its_wake():
    deployed = json.loads(WORKFLOW.read_text())
    polling = json.loads(without_wake(WORKFLOW.read_text(), "${RequestQueueUrl}", "http://own-queue"))
    assert deployed["States"].keys() - polling["States"].keys() == set(WAKE_STATES)
    assert following(polling) <= polling["States"].keys()
    release = polling["States"]["ReleaseSlot"]
    assert release["Next"] == "ChooseOutcome"
    assert [catch["Next"] for catch in release["Catch"]] == ["ChooseOutcome"]
    changed = {name for name, state in polling["States"].items() if state != deployed["States"][name]}
    assert changed == {"ReleaseSlot", "ReturnRequest"}  # the latter has its own queue


@pytest.mark.parametrize("missing", [*WAKE_STATES, "ReleaseSlot", "ChooseOutcome"])
def test_a_workflow_without_an_expected_state_is_refused(missing: str):
    machine = json.loads(WORKFLOW.read_text())
    del machine["States"][missing]
    with pytest.raises(CannotContinue, match=missing):
        without_wake(json.dumps(machine), "${RequestQueueUrl}", "http://own-queue")


def test_a_wake_that_is_reached_by_another_way_is_refused():
    text = WORKFLOW.read_text().replace('"Default": "ReleaseSlot"', '"Default": "WakeWaiting"')
    with pytest.raises(CannotContinue, match="another way"):
        without_wake(text, "${RequestQueueUrl}", "http://own-queue")


class FullTable:
    """A process without a free slot. Records the updates."""

    def __init__(self) -> None:
        self.updates: list[str] = []

    def update_item(self, **call: Any) -> Any:
        self.updates.append(call["UpdateExpression"])
        item = {
            "process_name": {"S": "p"},
            "slot_limit": {"N": "1"},
            "slots_in_use": {"N": "1"},
            "holders": {"M": {"other": {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}}}}},
            "target": {"S": "job"},
        }
        error_response: Any = {"Error": {"Code": "ConditionalCheckFailedException", "Message": ""}, "Item": item}
        raise ClientError(error_response, "UpdateItem")

    def get_item(self, **_: Any) -> Any:
        pytest.fail("a polling starter checks once, and wakes none")


class HidingQueue:
    def __init__(self) -> None:
        self.hidden: list[int] = []

    def hide(self, _: Delivery, seconds: int) -> None:
        self.hidden.append(seconds)


def test_the_polling_starter_hides_for_its_period_and_registers_no_message(monkeypatch: pytest.MonkeyPatch):
    for owner, name in (
        (Slots, "wait"),
        (Slots, "can_proceed"),
        (admission, "hide_seconds"),
        (admission, "wake_next"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # so that monkeypatch restores them
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
    assert not admission.wake_next(starter.slots, starter.queue, "p")  # which would read the table


# ----------------------------------------------------------------------------------------------------------- records


def at(seconds: float) -> datetime:
    return ORIGIN + timedelta(seconds=seconds)


def trail_event(number: int, name: str, request: dict[str, Any]) -> dict[str, Any]:
    source = f"{'dynamodb' if name.endswith('Item') else 'states'}.amazonaws.com"
    detail = {"eventSource": source, "eventName": name, "requestParameters": request}
    return {"EventId": str(number), "EventTime": at(number), "CloudTrailEvent": json.dumps(detail)}


def test_a_call_belongs_to_the_variant_that_it_names():
    queues = {"wake": "requests", "arn:poll": "polled"}
    key = {"Key": {"process_name": {"S": "wake"}}, "ExpressionAttributeNames": {"#me": "wake-1"}}
    reserve = parse_call(trail_event(1, "UpdateItem", key), queues)
    start = parse_call(trail_event(2, "StartExecution", {"stateMachineArn": "arn:poll", "name": "poll-1"}), queues)
    assert reserve == Call(at(1).timestamp(), "dynamodb:UpdateItem", "requests")
    assert start == Call(at(2).timestamp(), "states:StartExecution", "polled")
    assert parse_call(trail_event(3, "UpdateItem", {"Key": {"token_name": {"S": "wake"}}}), queues) is None


class Trail:
    """Returns at most 50 events, the newest first, up to EndTime."""

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
    assert [call.at for call in calls] == [at(number).timestamp() for number in range(173)]


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


def test_an_invocation_starts_its_duration_before_its_report():
    assert read_invocations(Logs(), "group") == [(0.8, 0.9), (1.5, 2.0)]


# ----------------------------------------------------------------------------------------------------------- figures


def execution(name: str, started: float, released: float) -> Execution:
    states: dict[str, tuple[float, float | None]] = {
        "ConfirmSlot": (started, started),
        "RunGlueJob": (started, released - 0.1),
        "ReleaseSlot": (released - 0.1, released),
    }
    return Execution(name, started, released, states)


# Two slots and polls at 0, 10 and 20 s.
POLLED = [execution(f"e{n}", 10.0 * (n // 2) + 0.1 * (n % 2), 10.0 * (n // 2) + 2.0) for n in range(6)]


def test_only_whole_periods_of_polling_count():
    polled = window(POLLED, (0.0, 25.0), 10, limit=2)
    assert polled.whole == (0.0, 20.0)
    assert polled.admitted == 4
    assert slots_used([polled]) == pytest.approx((1.9 + 1.8) * 2 / 40)


def test_a_window_contains_only_executions_that_started_in_it():
    assert [e.name for e in window(POLLED, (9.0, 15.0), 10, limit=2).executions] == ["e2", "e3"]


def test_a_hand_off_lasts_from_a_release_to_the_next_start():
    gaps = [handoff.seconds for handoff in window(POLLED, (0.0, 25.0), 10, limit=2).handoffs()]
    assert gaps == pytest.approx([8.0, 8.1, 8.0, 8.1])


def test_the_cost_of_a_request_counts_whole_periods():
    polled = window(POLLED, (0.0, 25.0), 10, limit=2)
    starts = [0.05, 0.2, 10.0, 10.05, 10.2, 19.9, 20.3]  # the last in an incomplete period
    calls = [Call(started, "dynamodb:UpdateItem", "poll-10") for started in starts]
    made = summary([polled], [(started, started + 0.01) for started in starts], calls)
    assert made["per_request"]["invocations"] == 6 / 4
    # The starter's, and a confirm and a release per request.
    assert made["per_request"]["DynamoDB writes"] == (6 + 8) / 4
    assert made["expected"]["slots_used"] == pytest.approx(holding([polled]) / 10)


def test_expected_figures_of_polling():
    short = expected(period=30, held=1.2, limit=4)
    assert (short.hand_off, short.slots_used, short.invocations) == pytest.approx((28.8, 0.04, 1.25))
    long = expected(period=5, held=12, limit=4)
    assert (long.hand_off, long.slots_used, long.invocations) == pytest.approx((3, 0.8, 1.75))
    spread = spread_out(period=30, held=60, limit=4)
    assert (spread.hand_off, spread.slots_used, spread.invocations) == pytest.approx((15, 0.8, 1.625))


# ------------------------------------------------------------------------------------------------------------ report


def figures(median: float, used: float, invocations: float) -> dict[str, Any]:
    def variant(period: int | None, share: float) -> dict[str, Any]:
        measured: dict[str, Any] = {
            "period": period,
            "admitted": 10,
            "hand_offs": [median] * 10,
            "median": median,
            "p99": 2 * median,
            "medians": [median],
            "slots_used": share,
            "slots_used_by_window": [share],
            "work_running": share,
            "per_request": {"invocations": invocations},
        }
        expected = {"hand_off": 4.0, "slots_used": 0.2, "invocations": 1.25}
        return measured | ({"expected": expected} if period else {})

    shares = {5: 0.2, 30: 0.04, 300: 0.004}
    wakes = {name: variant(None, used) for name in ("wake", "wake-children")}
    return {"ways": wakes | {f"poll-{n}": variant(n, share) for n, share in shares.items()}}


@pytest.mark.parametrize(
    ("measured", "met"),
    [
        ((0.02, 0.97, 1.9), [True, True, True, True, True, True]),
        ((1.0, 0.97, 1.9), [False, False, False, True, True, True]),
        ((0.02, 0.94, 2.3), [True, True, True, False, True, False]),
        ((0.02, 0.19, 1.9), [True, True, True, False, False, True]),
    ],
)
def test_goals_are_judged_by_the_figures(measured: tuple[float, float, float], met: list[bool]):
    outcome = hand_off_report.outcome(figures(*measured), 4)
    assert [goal.met for goal in outcome.goals] == met
    for grid in outcome.grids:
        assert {len(row) for row in grid.rows} == {len(grid.columns)}
