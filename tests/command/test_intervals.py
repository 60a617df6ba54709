"""Steps, percentiles, and which request could start when."""

from __future__ import annotations

import math

import pytest

from slotkeeper.slots.request import PRIORITIES, Priority
from slotkeeper_cli.audit.free_slot_checks import Asking, Turn, turns
from slotkeeper_cli.audit.intervals import percentile, weighted_steps


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


@pytest.mark.parametrize(("share", "expected"), [(0.99, 99.0), (1.0, 100.0), (0.5, 50.0), (0.995, 100.0), (0.001, 1.0)])
def test_the_percentile_is_a_value_that_occurred(share: float, expected: float) -> None:
    assert percentile([float(i) for i in range(100, 0, -1)], share) == expected


def test_no_values_have_no_percentile() -> None:
    assert percentile([], 0.99) is None


OPEN = [(-math.inf, 4)]


def asking(
    name: str, sent: float, until: float, *, priority: Priority = "normal", weight: int = 1, sequence: int = 1
) -> Asking:
    place = f"{PRIORITIES.index(priority)}#{sequence}"
    return Asking(name, place, weight, sent, until, started=True)


def shown(found: list[Turn]) -> list[tuple[str, float, float]]:
    return [(turn.request.name, turn.began, turn.ended) for turn in found]


def test_the_higher_priority_has_the_turn_and_then_the_earlier_message() -> None:
    low = asking("low", 0, 9, priority="low")
    second, first = asking("second", 0, 6, sequence=2), asking("first", 0, 4, sequence=1)
    high = asking("high", 1, 2, priority="high")
    found = turns([low, second, first, high], [(0, 0)], OPEN)
    assert shown(found) == [("first", 0, 1), ("high", 1, 2), ("first", 2, 4), ("second", 4, 6), ("low", 6, 9)]
    assert [turn.started for turn in found] == [False, True, True, True, True]


def test_a_head_above_the_limit_keeps_no_other_out_until_the_limit_is_raised() -> None:
    blocked = asking("blocked", 0, 7, priority="high", weight=5, sequence=1)
    behind, normal = asking("behind", 0, 4, priority="high", sequence=2), asking("normal", 0, 9)
    found = turns([blocked, behind, normal], [(0, 0)], [*OPEN, (6, 5)])
    assert shown(found) == [("behind", 0, 4), ("normal", 4, 6), ("blocked", 6, 7), ("normal", 7, 9)]
    assert [turn.after_release for turn in found] == [False, False, True, False]
