"""Steps, percentiles, and the start that belongs to each release."""

from __future__ import annotations

import math

import pytest

from slotkeeper_cli.audit.intervals import Release, Start, handoffs, percentile, weighted_steps


def releases(*exits: float) -> list[Release]:
    """Each lasts 0.1 s."""
    return [Release(at - 0.1, at) for at in exits]


def starts(*instants: float, sent: float = 0.0) -> list[Start]:
    return [Start(at, sent) for at in instants]


@pytest.mark.parametrize(
    ("released", "started", "limit", "expected"),
    [
        # Two start together and end almost together; two wait, and start 0.3 s and 0.5 s later.
        pytest.param(releases(5.0, 5.1), starts(0.0, 0.1, 5.3, 5.6), 2, [0.3, 0.5], id="each release has a start"),
        pytest.param(releases(5.1, 5.0), starts(5.6, 0.1, 5.3, 0.0), 2, [0.3, 0.5], id="records in any order"),
        pytest.param(releases(5.0, 5.1, 5.2), starts(0.0, 0.1, 0.2, 5.4), 3, [0.4], id="no start has two releases"),
        # The third starts after the first release, but in a slot that was always free.
        pytest.param(releases(1.0), starts(0.0, 0.1, 1.5), 3, [], id="the first starts take unused slots"),
        pytest.param(releases(5.0), starts(0.0, 4.95), 1, [0.0], id="a start inside the release has no gap"),
        pytest.param(releases(5.0, 6.0), starts(0.0, 4.0, 6.2), 1, [1.2], id="a start before the release"),
        pytest.param(releases(5.0, 6.0), starts(0.0, 5.2), 1, [0.2], id="a release without a waiting request"),
        pytest.param(releases(5.0), [*starts(0.0), Start(9.0, 8.9)], 1, [], id="a request after the release"),
    ],
)
def test_each_release_has_the_next_start_that_waited(
    released: list[Release], started: list[Start], limit: int, expected: list[float]
) -> None:
    assert [round(handoff.seconds, 3) for handoff in handoffs(released, started, limit)] == expected


@pytest.mark.parametrize(
    ("intervals", "most"),
    [
        ([], 0),
        ([(1.0, 1.0), (1.0, 1.0)], 0),
        ([(0.0, 1.0), (1.0, 2.0)], 1),
        ([(0.0, 1.0), (0.999, 2.0)], 2),
        ([(0.0, math.inf), (5.0, math.inf), (7.0, 8.0)], 3),
    ],
)
def test_intervals_are_half_open_and_may_have_no_end(intervals: list[tuple[float, float]], most: int) -> None:
    assert max((open_ for _, open_ in weighted_steps((each, 1) for each in intervals)), default=0) == most


def test_steps_have_one_entry_an_instant() -> None:
    assert weighted_steps([((0.0, 1.0), 1), ((1.0, 2.0), 1)]) == [(0.0, 1), (1.0, 1), (2.0, 0)]


@pytest.mark.parametrize(("share", "expected"), [(0.99, 99.0), (1.0, 100.0), (0.5, 50.0), (0.995, 100.0), (0.001, 1.0)])
def test_the_percentile_is_a_value_that_occurred(share: float, expected: float) -> None:
    assert percentile([float(i) for i in range(100, 0, -1)], share) == expected


def test_no_values_have_no_percentile() -> None:
    assert percentile([], 0.99) is None
