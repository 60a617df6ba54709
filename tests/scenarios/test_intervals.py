"""Peaks, percentiles, and the start that belongs to each release."""

from __future__ import annotations

import math

import pytest

from dev.scenarios.runner.intervals import Release, Start, handoffs, peak, percentile, steps, utilisation


def releases(*exits: float) -> list[Release]:
    """Each lasts 0.1 s."""
    return [Release(f"old-{i}", at - 0.1, at) for i, at in enumerate(exits)]


def starts(*instants: float, sent: float = 0.0) -> list[Start]:
    return [Start(f"new-{i}", at, sent) for i, at in enumerate(instants)]


def gaps(released: list[Release], started: list[Start], limit: int) -> list[float]:
    return [round(handoff.seconds, 3) for handoff in handoffs(released, started, limit)]


def test_with_two_slots_each_release_gets_the_next_start_after_it() -> None:
    # Two start together and end almost together; two wait, and start 0.3 s and 0.5 s later.
    assert gaps(releases(5.0, 5.1), starts(0.0, 0.1, 5.3, 5.6), limit=2) == [0.3, 0.5]


def test_with_three_slots_a_start_is_never_given_to_two_releases() -> None:
    assert gaps(releases(5.0, 5.1, 5.2), starts(0.0, 0.1, 0.2, 5.4), limit=3) == [0.4]


def test_the_first_starts_take_unused_slots() -> None:
    # The third starts after the first release, but in a slot that was always free.
    assert gaps(releases(1.0), starts(0.0, 0.1, 1.5), limit=3) == []


def test_a_start_in_the_middle_of_the_release_is_a_hand_off_without_a_gap() -> None:
    assert gaps(releases(5.0), starts(0.0, 4.95), limit=1) == [0.0]


def test_a_start_before_the_release_began_is_not_its_hand_off() -> None:
    assert gaps(releases(5.0, 6.0), starts(0.0, 4.0, 6.2), limit=1) == [1.2]


def test_a_request_that_came_after_the_release_was_not_handed_off_late() -> None:
    late = [*starts(0.0), Start("late", 9.0, sent=8.9)]
    assert gaps(releases(5.0), late, limit=1) == []


def test_releases_without_a_waiting_request_are_ignored() -> None:
    assert gaps(releases(5.0, 6.0), starts(0.0, 5.2), limit=1) == [0.2]


def test_the_order_in_which_records_arrive_does_not_matter() -> None:
    assert gaps(releases(5.1, 5.0), starts(5.6, 0.1, 5.3, 0.0), limit=2) == [0.3, 0.5]


def test_intervals_are_half_open() -> None:
    assert peak([(0.0, 1.0), (1.0, 2.0)]) == 1
    assert peak([(0.0, 1.0), (0.999, 2.0)]) == 2


def test_an_interval_without_end_counts_to_the_end() -> None:
    assert peak([(0.0, math.inf), (5.0, math.inf), (7.0, 8.0)]) == 3


def test_an_empty_interval_is_never_open() -> None:
    assert peak([(1.0, 1.0), (1.0, 1.0)]) == 0
    assert peak([]) == 0


def test_steps_have_one_entry_an_instant() -> None:
    assert steps([(0.0, 1.0), (1.0, 2.0)]) == [(0.0, 1), (1.0, 1), (2.0, 0)]


@pytest.mark.parametrize(("share", "expected"), [(0.99, 99.0), (1.0, 100.0), (0.5, 50.0), (0.995, 100.0), (0.001, 1.0)])
def test_the_percentile_is_a_value_that_occurred(share: float, expected: float) -> None:
    assert percentile([float(i) for i in range(100, 0, -1)], share) == expected


def test_no_values_have_no_percentile() -> None:
    assert percentile([], 0.99) is None


def test_utilisation_is_cut_at_the_window() -> None:
    assert utilisation([(0.0, 4.0), (3.0, math.inf)], (2.0, 6.0), 2) == pytest.approx(5 / 8)
    assert utilisation([(0.0, 1.0)], (2.0, 2.0), 2) is None
