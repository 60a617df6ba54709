"""Whose turn it was: by priority, message order, weight and limit."""

from __future__ import annotations

import math

import pytest

from slotkeeper.slots.request import Priority
from slotkeeper_cli.audit.free_slot_checks import Asking, Turn, turns

OPEN = [(-math.inf, 4)]


def asking(
    name: str, sent: float, until: float, *, priority: Priority = "normal", weight: int = 1, sequence: int = 1
) -> Asking:
    return Asking(name, priority, weight, sequence, sent, until, started=True)


def shown(found: list[Turn]) -> list[tuple[str, float, float]]:
    return [(turn.request.name, turn.began, turn.ended) for turn in found]


def test_the_higher_priority_has_the_turn_and_then_the_earlier_message() -> None:
    low = asking("low", 0, 9, priority="low")
    second, first = asking("second", 0, 6, sequence=2), asking("first", 0, 4, sequence=1)
    high = asking("high", 1, 2, priority="high")
    found = turns([low, second, first, high], [(0, 0)], OPEN)
    assert shown(found) == [("first", 0, 1), ("high", 1, 2), ("first", 2, 4), ("second", 4, 6), ("low", 6, 9)]
    assert [turn.started for turn in found] == [False, True, True, True, True]


def test_a_head_that_does_not_fit_keeps_lower_priorities_and_its_own_group_out() -> None:
    heavy = asking("heavy", 0, 6, priority="high", weight=3, sequence=1)
    behind, normal = asking("behind", 0, 8, priority="high", sequence=2), asking("normal", 0, 9)
    found = turns([heavy, behind, normal], [(0, 2), (5, 1)], OPEN)
    assert shown(found) == [("heavy", 5, 6), ("behind", 6, 8), ("normal", 8, 9)]


def test_a_head_above_the_limit_keeps_its_own_group_out_and_no_other_until_the_limit_is_raised() -> None:
    blocked = asking("blocked", 0, 7, priority="high", weight=5, sequence=1)
    behind, normal = asking("behind", 0, 8, priority="high", sequence=2), asking("normal", 0, 9)
    found = turns([blocked, behind, normal], [(0, 0)], [*OPEN, (6, 5)])
    assert shown(found) == [("normal", 0, 6), ("blocked", 6, 7), ("behind", 7, 8), ("normal", 8, 9)]
    assert [turn.after_release for turn in found] == [False, True, False, False]


@pytest.mark.parametrize(("held", "released"), [([(0, 4), (3, 3)], True), ([(0, 0)], False)])
def test_a_turn_after_a_release_differs_from_one_with_slots_free_all_the_time(
    held: list[tuple[float, int]], released: bool
) -> None:
    (turn,) = turns([asking("r", 1, 5)], held, OPEN)
    assert (turn.after_release, turn.seconds) == (released, 2 if released else 4)


def test_a_request_that_never_starts_has_a_turn_without_end() -> None:
    (turn,) = turns([Asking("r", "high", 1, 1, 1.0, math.inf, started=False)], [(0, 0)], OPEN)
    assert (turn.ended, turn.started) == (math.inf, False)
