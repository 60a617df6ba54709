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


def decided(item: TokenItem, bad: KnownToken | None = BAD, **changes: Any) -> Any:
    situation: dict[str, Any] = {"watched": 0.0, "now": NOW, "left": 20.0, "timing": TIMING, **changes}
    return decide(item, bad, **situation)


def test_a_stored_token_is_used() -> None:
    assert decided(STORED, None) == Step.USE


def test_f31_a_token_other_than_the_invalid_one_is_used() -> None:
    assert decided(STORED, KnownToken("before", 2)) == Step.USE


def test_the_same_token_stored_again_counts_as_new() -> None:
    assert decided(replace(STORED, generation=4)) == Step.USE


def test_an_invalid_or_missing_token_is_refreshed() -> None:
    assert (decided(STORED), decided(TokenItem(), None)) == (Step.ACQUIRE, Step.ACQUIRE)


def test_a_live_lock_is_waited_for() -> None:
    locked = replace(STORED, lock=RefreshLock("other", NOW + 1))
    assert decided(locked) == WaitForRefresh("another instance is refreshing it")


def test_f32_an_expired_lock_is_taken_over_at_the_first_read() -> None:
    assert decided(replace(STORED, lock=RefreshLock("other", NOW))) == Step.ACQUIRE


def test_t2_a_slow_clock_does_not_extend_a_wait_beyond_the_lease() -> None:
    locked = replace(STORED, lock=RefreshLock("other", NOW + 10**9))
    assert (decided(locked, watched=TIMING.lease - 0.1).reason[:7], decided(locked, watched=TIMING.lease)) == (
        "another",
        Step.ACQUIRE,
    )


def test_a_delegated_refresh_takes_the_lock_of_its_caller_and_no_other() -> None:
    locked = replace(STORED, lock=RefreshLock("asker", NOW + 5))
    assert decided(locked, delegated_code="asker") == Step.ACQUIRE
    assert isinstance(decided(locked, delegated_code="another"), WaitForRefresh)


def test_f35_the_api_is_not_asked_until_the_refusal_ends() -> None:
    refused = replace(STORED, refused_until=NOW + 1, refused_reason="wrong credentials")
    assert (decided(refused), decided(refused, now=NOW + 1)) == (Step.RESPECT_REFUSAL, Step.ACQUIRE)


def test_f34_times_in_milliseconds_do_not_block_refreshes_forever() -> None:
    assert decided(replace(STORED, refused_until=NOW * 1000)) == Step.ACQUIRE
    assert decided(replace(STORED, stored_at=NOW * 1000)) == Step.ACQUIRE


def test_a_refusal_does_not_affect_a_valid_token() -> None:
    assert decided(replace(STORED, refused_until=NOW + 10), None) == Step.USE


def test_a_young_token_is_not_refreshed_after_one_401() -> None:
    young = replace(STORED, stored_at=NOW - TIMING.min_interval + 0.1)
    assert isinstance(decided(young), WaitForRefresh)
    assert decided(young, now=NOW + 0.1) == Step.ACQUIRE


def test_a_token_stored_by_a_clock_that_is_ahead_counts_as_young() -> None:
    assert isinstance(decided(replace(STORED, stored_at=NOW + TIMING.spread)), WaitForRefresh)


def test_f36_an_instance_with_too_little_time_takes_no_lock() -> None:
    assert (decided(STORED, left=6.9), decided(STORED, left=7.0)) == (Step.TOO_LATE, Step.ACQUIRE)


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


def test_f35_every_clock_within_the_skew_respects_a_refusal_in_full() -> None:
    until = NOW - TIMING.clock_skew + TIMING.refusal + TIMING.spread  # written by the slowest clock
    item = replace(STORED, refused_until=until)
    assert decided(item, now=NOW + TIMING.refusal - 0.1 + TIMING.clock_skew) == Step.RESPECT_REFUSAL
    latest = replace(STORED, refused_until=until + TIMING.spread)  # written by the fastest clock, read by the slowest
    assert decided(latest, now=NOW - TIMING.clock_skew) == Step.RESPECT_REFUSAL


@pytest.mark.parametrize(("asked", "seconds"), [(None, 30.0), (0.0, 0.0), (7.0, 7.0), (3600.0, 3600.0), (1e9, 3600.0)])
def test_f35_retry_after_is_respected_up_to_an_hour(asked: float | None, seconds: float) -> None:
    assert TIMING.refused_for(asked) == seconds + TIMING.spread


def test_f35_the_longest_refusal_is_respected_by_every_clock() -> None:
    until = NOW + TIMING.refused_for(3600.0) + TIMING.spread  # written by the fastest clock, seen by the slowest
    assert decided(replace(STORED, refused_until=until)) == Step.RESPECT_REFUSAL


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


def test_a_long_timeout_has_the_default_times() -> None:
    assert Timing.for_timeout(40) == Timing()


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
