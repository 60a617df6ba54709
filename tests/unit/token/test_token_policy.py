"""The decision of an instance that needs a token, and its times."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.token import Timing
from slotkeeper.token.item import RefreshLock, TokenItem
from slotkeeper.token.timing import (
    LONGEST_POLL_SECONDS,
    OWN_FAILURE_PAUSE,
    SHARES,
    SHORTEST_TIMEOUT,
    KnownToken,
    Step,
    WaitForRefresh,
    decide,
    longest_poll_interval,
)

NOW = 1_800_000_000.0
TIMING = Timing()
STORED = TokenItem("a", 3, NOW - 1000)
BAD = KnownToken("a", 3)
LOCKED = replace(STORED, lock=RefreshLock("other", NOW + 1))
SLOW_CLOCK = replace(STORED, lock=RefreshLock("other", NOW + 10**9))
REFUSED = replace(STORED, refused_until=NOW + 1, refused_reason="wrong credentials")
YOUNG = replace(STORED, stored_at=NOW - TIMING.min_interval + 0.1)
# A refusal that the slowest clock wrote, and the longest one that the fastest clock wrote.
BY_THE_SLOWEST = replace(STORED, refused_until=NOW - TIMING.clock_skew + TIMING.refusal + TIMING.spread)
BY_THE_FASTEST = replace(STORED, refused_until=NOW + TIMING.refused_for(3600.0) + TIMING.spread)


def decided(item: TokenItem, bad: KnownToken | None = BAD, **changes: Any) -> Any:
    situation: dict[str, Any] = {"watched": 0.0, "now": NOW, "left": 20.0, "timing": TIMING, **changes}
    return decide(item, bad, **situation)


@pytest.mark.parametrize(
    ("item", "bad", "changes", "step"),
    [
        pytest.param(STORED, None, {}, Step.USE, id="a stored token"),
        pytest.param(STORED, KnownToken("before", 2), {}, Step.USE, id="f31_another token than the invalid one"),
        pytest.param(replace(STORED, generation=4), BAD, {}, Step.USE, id="the same text stored again"),
        pytest.param(STORED, BAD, {}, Step.ACQUIRE, id="an invalid token"),
        pytest.param(TokenItem(), None, {}, Step.ACQUIRE, id="no token"),
        pytest.param(LOCKED, BAD, {}, WaitForRefresh, id="a live lock"),
        pytest.param(LOCKED, BAD, {"now": NOW + 1}, Step.ACQUIRE, id="f32_an expired lock at the first read"),
        pytest.param(SLOW_CLOCK, BAD, {"watched": TIMING.lease - 0.1}, WaitForRefresh, id="t2_before the lease"),
        pytest.param(
            SLOW_CLOCK, BAD, {"watched": TIMING.lease}, Step.ACQUIRE, id="t2_after the lease, by a slow clock"
        ),
        pytest.param(LOCKED, BAD, {"delegated_code": "other"}, Step.ACQUIRE, id="the lock of the delegating instance"),
        pytest.param(LOCKED, BAD, {"delegated_code": "another"}, WaitForRefresh, id="a lock of another one"),
        pytest.param(REFUSED, BAD, {}, Step.RESPECT_REFUSAL, id="f35_a refusal"),
        pytest.param(REFUSED, BAD, {"now": NOW + 1}, Step.ACQUIRE, id="f35_a refusal that has ended"),
        pytest.param(REFUSED, None, {}, Step.USE, id="a refusal next to a valid token"),
        pytest.param(
            BY_THE_SLOWEST,
            BAD,
            {"now": NOW + TIMING.refusal - 0.1 + TIMING.clock_skew},
            Step.RESPECT_REFUSAL,
            id="f35_by the fastest clock",
        ),
        pytest.param(BY_THE_FASTEST, BAD, {}, Step.RESPECT_REFUSAL, id="f35_by the slowest clock"),
        pytest.param(replace(STORED, refused_until=NOW * 1000), BAD, {}, Step.ACQUIRE, id="f34_a refusal in ms"),
        pytest.param(replace(STORED, stored_at=NOW * 1000), BAD, {}, Step.ACQUIRE, id="f34_stored in ms"),
        pytest.param(YOUNG, BAD, {}, WaitForRefresh, id="a young token after one 401"),
        pytest.param(YOUNG, BAD, {"now": NOW + 0.1}, Step.ACQUIRE, id="a token that is no longer young"),
        pytest.param(
            replace(STORED, stored_at=NOW + TIMING.spread), BAD, {}, WaitForRefresh, id="stored by a clock ahead"
        ),
        pytest.param(STORED, BAD, {"left": 6.9}, Step.TOO_LATE, id="f36_too little time"),
        pytest.param(STORED, BAD, {"left": 7.0}, Step.ACQUIRE, id="f36_enough time"),
    ],
)
def test_an_instance_decides_by_the_item(item: TokenItem, bad: KnownToken | None, changes: Any, step: Any) -> None:
    got = decided(item, bad, **changes)
    assert got == step if isinstance(step, Step) else isinstance(got, step)


@given(
    holder=st.floats(-1, 1),
    observer=st.floats(-1, 1),
    after=st.floats(0, 1, exclude_max=True),
    skew=st.floats(0, 5),
)
def test_t1_no_clock_within_the_skew_sees_a_lock_expired_while_its_holder_works(
    holder: float, observer: float, after: float, skew: float
) -> None:
    timing = replace(TIMING, clock_skew=skew)
    locked = replace(STORED, lock=RefreshLock("holder", NOW + holder * skew + timing.lease))
    at_work = after * timing.holding * (1 - 1e-6)  # the clocks are floats of a large number
    seen = decided(locked, now=NOW + at_work + observer * skew, watched=at_work, timing=timing)
    assert isinstance(seen, WaitForRefresh)


def test_control_an_instance_with_shorter_times_takes_over_a_live_lock() -> None:
    locked = replace(STORED, lock=RefreshLock("holder", NOW + TIMING.lease))
    short = Timing.for_timeout(6)
    assert short.lease < TIMING.holding  # the holder may still be working
    assert decided(locked, now=NOW + short.lease, watched=short.lease, timing=short) == Step.ACQUIRE


POSITIVE = ["api", "store", "refusal", "patience"]


@pytest.mark.parametrize(
    ("field", "seconds"),
    [(field, 0.0) for field in POSITIVE]
    + list(product([*POSITIVE, "clock_skew", "longest_retry_after", "min_interval"], [nan, inf, -1.0])),
)
def test_an_invalid_time_is_refused_and_named(field: str, seconds: float) -> None:
    minimum = " above 0" if field in POSITIVE else ", 0 or more"
    with pytest.raises(ValueError, match=f"Timing.{field} must be a finite number of seconds{minimum}, got {seconds}"):
        replace(TIMING, **{field: seconds})


def test_a_patience_too_short_for_a_refresh_is_refused() -> None:
    with pytest.raises(ValueError, match=r"patience must be above api \+ store, 7 s, got 7"):
        Timing(patience=7)


def test_the_default_patience_covers_a_dead_holders_lease_and_the_next_refresh() -> None:
    assert TIMING.patience >= TIMING.lease + LONGEST_POLL_SECONDS + TIMING.holding + 1


# ------------------------------------------------------------------------------------------------ times for a timeout


def test_a_function_of_six_seconds_refreshes_within_a_quarter_of_them() -> None:
    short = Timing.for_timeout(6)
    times = [short.api, short.store, short.holding, short.min_interval, short.patience]
    assert times == pytest.approx([1.2, 0.3, 1.5, 1, 4])
    assert (short.clock_skew, short.refusal) == (TIMING.clock_skew, TIMING.refusal)


@given(st.floats(SHORTEST_TIMEOUT, 900))
def test_the_times_for_a_timeout_fit_into_two_thirds_of_it(seconds: float) -> None:
    fitted = Timing.for_timeout(seconds)
    assert all(getattr(fitted, name) <= getattr(TIMING, name) for name in SHARES)
    assert fitted.min_interval + fitted.holding < fitted.patience <= seconds * 2 / 3
    # The probe of an instance that then fails itself, one's own probe, and a refresh.
    assert 2 * fitted.api + fitted.holding < fitted.patience


@pytest.mark.parametrize("seconds", [0, -1, 2.9, inf, nan])
def test_a_timeout_too_short_for_a_refresh_is_refused_with_the_shortest_one(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"a function's timeout of 3 s or more, got .*: raise the function's timeout"):
        Timing.for_timeout(seconds)


# ------------------------------------------------------------------------------------------------- between two polls


@pytest.mark.parametrize("expected", [-1.0, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("waited", [0.0, 0.1, 0.5, 1.0, 3.0, 15.0])
def test_a_poll_interval_is_at_most_half_of_the_time_waited(waited: float, expected: float) -> None:
    pause = longest_poll_interval(waited, expected)
    assert 0 < pause <= min(LONGEST_POLL_SECONDS, 0.25 + waited / 2)


def test_an_instance_whose_refresh_failed_pauses_for_several_reads_of_the_others() -> None:
    assert OWN_FAILURE_PAUSE >= 3 * LONGEST_POLL_SECONDS


def test_without_an_expected_time_polls_become_less_frequent() -> None:
    pauses = [longest_poll_interval(waited, -1.0) for waited in (0.0, 0.5, 1.0, 2.0, 9.0)]
    assert pauses == pytest.approx([0.05, 0.15, 0.25, 0.45, LONGEST_POLL_SECONDS])


def test_the_next_poll_is_at_the_expected_time() -> None:
    assert (longest_poll_interval(0.5, 0.3), longest_poll_interval(0.5, 0.0)) == (0.3, pytest.approx(0.15))
