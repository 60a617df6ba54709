"""The requests of `make run TARGET=workflow`, and the messages of a caller by its history."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from dev.emulator.sample_data import read_dataset
from dev.scenarios.slots.target_requests import MOST_CALLED, callers_input, expected, plan
from dev.scenarios.slots.target_stack import messages_of


def test_the_caller_asks_for_the_second_half_as_far_as_its_map_runs_it_concurrently() -> None:
    work = plan(read_dataset(), requests=5, fail=0, run_id="run")
    assert ([each.month for each in work.produced], [each.month for each in work.called]) == (
        ["2012-01", "2012-02", "2012-03"],
        ["2012-04", "2012-05"],
    )
    assert len(plan(read_dataset(), requests=200, fail=0, run_id="run").called) == MOST_CALLED
    assert [each.request_id for each in work.requests][3] == "run-0004-2012-04"


def test_the_input_of_the_caller_is_below_the_limit_of_step_functions() -> None:
    work = plan(read_dataset(), requests=2 * MOST_CALLED, fail=1, run_id="20260101T000000")
    given = callers_input("https://sqs.us-east-1.amazonaws.com/123456789012/slotkeeper-requests.fifo", work.called)
    assert len(json.dumps(given)) < 256 * 1024
    assert [each["request_id"] for each in given["requests"]] == [each.request_id for each in work.called]


def test_a_request_has_its_days_as_input_and_a_damaged_one_a_value_that_is_no_number() -> None:
    good, damaged = plan(read_dataset(), requests=2, fail=0.5, run_id="run").requests
    assert good.body().keys() == {"process", "request_id", "input"}
    assert (good.body()["process"], len(good.body()["input"]["days"])) == ("weather", 31)
    assert [good.damaged, damaged.damaged] == [False, True]
    assert [day["temp_max"] for day in damaged.body()["input"]["days"]].count("n/a") == 1


def test_the_expected_result_of_a_month() -> None:
    (january,) = plan(read_dataset(), requests=1, fail=0, run_id="run").requests
    assert expected(january.input or {}) == {
        "month": "2012-01",
        "days": 31,
        "temperature_max_c": pytest.approx(12.8),
        "precipitation_total_mm": pytest.approx(173.3),
    }


def test_the_messages_of_a_map_are_found_through_the_events_of_each_iteration() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def scheduled(id_: int, name: str) -> dict[str, Any]:
        parameters = json.dumps({"MessageBody": {"request_id": name}})
        return {"id": id_, "previousEventId": 1, "type": "TaskScheduled"} | {
            "taskScheduledEventDetails": {"parameters": parameters}
        }

    def submitted(id_: int, before: int, sequence: int) -> dict[str, Any]:
        output = json.dumps({"SequenceNumber": str(sequence)})
        return {"id": id_, "previousEventId": before, "type": "TaskSubmitted", "timestamp": at} | {
            "taskSubmittedEventDetails": {"output": output}
        }

    events = [scheduled(2, "a"), scheduled(3, "b"), {"id": 4, "previousEventId": 3, "type": "TaskStarted"}]
    events += [submitted(5, 4, 11), submitted(6, 2, 12)]
    found = [(body["request_id"], sequence, sent) for body, sequence, sent in messages_of(events)]
    assert found == [("b", 11, at.timestamp()), ("a", 12, at.timestamp())]
