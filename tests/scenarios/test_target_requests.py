"""The requests of `make run TARGET=workflow`."""

from __future__ import annotations

import json

from dev.emulator.sample_data import read_dataset
from dev.scenarios.slots.target_requests import MOST_CALLED, callers_input, plan


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
