"""Steps, percentiles, and which request could start when."""

from __future__ import annotations

import math

import pytest

from slotkeeper.slots.queued import before_key
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


def test_steps_have_one_entry_an_instant() -> None:
    assert weighted_steps([((0.0, 1.0), 1), ((1.0, 2.0), 1)]) == [(0.0, 1), (1.0, 1), (2.0, 0)]


@pytest.mark.parametrize(("share", "expected"), [(0.99, 99.0), (1.0, 100.0), (0.5, 50.0), (0.995, 100.0), (0.001, 1.0)])
def test_the_percentile_is_a_value_that_occurred(share: float, expected: float) -> None:
    assert percentile([float(i) for i in range(100, 0, -1)], share) == expected


def test_no_values_have_no_percentile() -> None:
    assert percentile([], 0.99) is None


OPEN = [(-math.inf, 4)]


def asking(
    name: str,
    sent: float,
    until: float,
    *,
    priority: Priority = "normal",
    weight: int = 1,
    sequence: int = 1,
    key: str = "",
) -> Asking:
    place = f"{before_key(str(PRIORITIES.index(priority)), key)}{sequence}"
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


def test_a_start_of_a_key_ends_the_time_in_which_its_request_fitted_and_that_of_the_others_begins() -> None:
    of_a, of_b = asking("a", 0, 9, key="a"), asking("b", 0, 4, key="b")
    assert shown(turns([of_a, of_b], [(0, 0)], OPEN)) == [("b", 0, 4), ("a", 4, 9)]


def test_a_key_at_its_limit_does_not_fit_and_keeps_back_no_other() -> None:
    of_a, low = asking("a", 0, 9, key="a"), asking("low", 0, 20, priority="low", key="a")
    of_b, blocked = asking("b", 2, 5, key="b"), asking("blocked", 0, 20, key="c", weight=2)
    limited = {"a": ([(0, 1), (8, 0)], [(-math.inf, 1)]), "c": ([], [(-math.inf, 1)])}
    found = turns([of_a, low, of_b, blocked], [(0, 1), (8, 0)], OPEN, keys=limited)
    assert shown(found) == [("b", 2, 5), ("a", 8, 9), ("low", 9, 20)]


def test_whose_turn_it_was_is_not_decided_so_each_first_request_must_fit() -> None:
    light, heavy = asking("light", 0, 9, key="a"), asking("heavy", 3, 6, key="b", weight=2)
    assert shown(turns([light, heavy], [(0, 3)], OPEN)) == [("light", 0, 3), ("light", 6, 9)]
