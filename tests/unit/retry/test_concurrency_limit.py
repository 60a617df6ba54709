"""How the adaptive concurrency limit changes: within its bounds, and towards what the downstream takes."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.retry.downstream.health import Answer, DownstreamSettings, Health, Permit
from slotkeeper.retry.downstream.rules import HOLD_WINDOWS, Limit, ask, grown, reduced, report

MOST = 16
SETTINGS = DownstreamSettings()


def follow(limit: Limit, capacity: int, windows: int, most: int = MOST) -> list[Limit]:
    """The limits of windows in full use, against a downstream that throttles above its capacity."""
    limits = [limit]
    for _ in range(windows):
        limit = limits[-1]
        limits.append(reduced(limit) if limit.callers > capacity else grown(limit, most))
    return limits


@given(st.integers(2, 1000), st.data())
def test_the_limit_is_never_below_one_nor_above_the_most_and_at_most_halved(most: int, data: st.DataObject) -> None:
    limit = Limit(most)
    for throttled in data.draw(st.lists(st.booleans(), max_size=40)):
        before, limit = limit, reduced(limit) if throttled else grown(limit, most)
        assert max(1, before.callers // 2 if throttled else before.callers) <= limit.callers <= most
        assert limit.callers < before.callers or before.callers == 1 or not throttled


def test_after_a_step_of_the_capacity_the_limit_is_within_a_tenth_in_ten_windows() -> None:
    limit = Limit(MOST)
    for capacity in (10, 4, 12):
        limits = follow(limit, capacity, 30)
        assert all(0.9 * capacity <= each.callers <= capacity + 1 for each in limits[10:])
        limit = limits[-1]


def test_the_limit_is_one_too_high_in_one_of_the_windows_after_each_hold() -> None:
    settled = follow(Limit(MOST), 10, 100)[20:]
    assert {each.callers for each in settled} == {10, 11}
    assert sum(each.callers == 11 for each in settled) <= len(settled) / HOLD_WINDOWS


def test_a_limit_that_was_proven_is_halved_when_it_is_throttled() -> None:
    assert reduced(Limit(10, proven=10)).callers == 5
    assert reduced(reduced(Limit(11, proven=10))).callers == 5
    assert reduced(Limit(16)).callers == 8


def test_from_one_the_limit_reaches_the_most_in_a_logarithmic_number_of_windows() -> None:
    callers = [each.callers for each in follow(Limit(1), 1000, 9)]
    assert callers == [1, 2, 3, 4, 6, 9, 13, 16, 16, 16]


def window(health: Health, callers: int, answers: list[Answer], now: float) -> Health:
    """A window in which this many callers are under way, of which the first ones end with these answers."""
    permits = []
    for number in range(callers):
        health, permit = ask(health, SETTINGS, Permit(f"{now}-{number}", now + 60), MOST, now)
        assert isinstance(permit, Permit)
        permits.append(permit)
    answered = itertools.zip_longest(permits, answers, fillvalue=Answer.UNKNOWN)
    for permit, answer in answered:
        health, _ = report(health, SETTINGS, permit, answer, 1.0, MOST, now + 1)  # type: ignore[arg-type]
    return health


def test_the_limit_grows_only_after_a_window_in_which_it_was_in_full_use() -> None:
    start = Health(limit=4, window=0.0)
    for callers, expected in ((3, 4), (4, 6)):
        health = window(start, callers, [Answer.SUCCEEDED], 11.0)
        health, _ = ask(health, SETTINGS, Permit("next", 100), MOST, 22.0)
        assert health.limit == expected


def test_many_throttled_answers_reduce_the_limit_once_per_window() -> None:
    health = window(Health(limit=8), 8, [Answer.THROTTLED] * 8, 11.0)
    assert (health.limit, health.throttled) == (4, 8)
    health = window(health, 4, [Answer.THROTTLED] * 4, 22.0)
    assert health.limit == 2


def test_an_operators_limit_leaves_the_adaptive_one_unchanged() -> None:
    start = Health(limit=8, limit_set=3)
    for answer in (Answer.SUCCEEDED, Answer.THROTTLED):
        health = window(start, 3, [answer] * 3, 11.0)
        health, _ = ask(health, SETTINGS, Permit("next", 100), MOST, 22.0)
        assert (health.limit, health.callers(SETTINGS, MOST)) == (8, 3)
