"""The hand-off benchmark without an engine: the figures from records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dev.benchmarks.hand_off.hand_off_benchmark import goals
from dev.benchmarks.hand_off.hand_off_figures import (
    Execution,
    gaps,
    out_of_order,
    read_executions,
    read_invocations,
    starts_a_second,
)


class Pages:
    """A client whose paginators return one page."""

    def __init__(self, **pages: Any) -> None:
        self.pages = pages

    def get_paginator(self, name: str) -> Any:
        page = self.pages[name]
        return type("Paginator", (), {"paginate": staticmethod(lambda **_: [page])})


def test_an_execution_has_the_times_of_its_release() -> None:
    def at(seconds: float) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)

    events = [
        {"timestamp": at(1), "stateEnteredEventDetails": {"name": "RunGlueJob"}},
        {"timestamp": at(2), "stateEnteredEventDetails": {"name": "ReleaseSlot"}},
        {"timestamp": at(3), "stateExitedEventDetails": {"name": "ReleaseSlot"}},
    ]
    listed = [{"name": "e", "executionArn": "arn", "startDate": at(0)}]
    zero = at(0).timestamp()
    client = Pages(get_execution_history={"events": events})
    assert read_executions(client, listed) == [Execution("e", zero, zero + 2, zero + 3)]


def test_an_invocation_starts_its_duration_before_its_report() -> None:
    lines = [
        {"timestamp": 2000, "message": "REPORT RequestId: b\tDuration: 500 ms\tBilled Duration: 500 ms"},
        {"timestamp": 1000, "message": '{"message": "REPORT that a function wrote"}'},
    ]
    assert read_invocations(Pages(filter_log_events={"events": lines}), "group") == [1.5]


def _executions(releases: list[float], starts: list[float]) -> list[Execution]:
    """Those that start, and others that have started before. Each release lasts 0.1 s."""
    return [*(Execution("r", 0.0, at - 0.1, at) for at in releases), *(Execution("s", at) for at in starts)]


@pytest.mark.parametrize(
    ("releases", "starts", "unused", "expected"),
    [
        # Two end almost together; two wait, and start 0.3 s and 0.5 s later.
        pytest.param([5.0, 5.1], [5.3, 5.6], 0, [0.3, 0.5], id="each release has a start"),
        pytest.param([5.1, 5.0], [5.6, 5.3], 0, [0.3, 0.5], id="records in any order"),
        pytest.param([5.0, 5.1, 5.2], [5.4], 0, [0.4], id="no start has two releases"),
        # One starts after the release, but in a slot that was always free.
        pytest.param([1.0], [1.5], 1, [], id="the first starts take unused slots"),
        pytest.param([5.0], [4.95], 0, [0.0], id="a start inside the release has no gap"),
        pytest.param([5.0, 6.0], [4.0, 6.2], 0, [1.2], id="a start before the release"),
        pytest.param([5.0, 6.0], [5.2], 0, [0.2], id="a release without a waiting request"),
    ],
)
def test_each_release_has_the_next_start_that_waited(
    releases: list[float], starts: list[float], unused: int, expected: list[float]
) -> None:
    assert gaps(_executions(releases, starts), len(releases) + unused) == pytest.approx(expected)


def test_starts_a_second_are_counted_between_the_first_and_the_last() -> None:
    assert starts_a_second([1.0, 1.5, 2.0]) == 2.0


@pytest.mark.parametrize(("order", "wrong"), [("abc", 0), ("acb", 1), ("cab", 1), ("cba", 2)])
def test_a_grant_before_one_with_an_earlier_place_is_out_of_order(order: str, wrong: int) -> None:
    rows = [{"granted": {"S": f"{number}"}, "placed": {"S": place}} for number, place in enumerate(order)]
    assert out_of_order([*rows, {"placed": {"S": "0"}}]) == wrong


@pytest.mark.parametrize(
    ("median", "starts", "wrong", "met"),
    [(0.02, 40.0, 0, [True] * 5), (1.0, 20.0, 1, [False] * 5)],
)
def test_goals_are_judged_by_the_figures(median: float, starts: float, wrong: int, met: list[bool]) -> None:
    figures = {"median": median, "p99": 2 * median, "starts_a_second": starts, "out_of_order": wrong, "answer": median}
    assert [goal.met for goal in goals(figures)] == met
