"""The rules by which attempts begin, and by which their outcomes change the state of the downstream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.retry.downstream.health import (
    Answer,
    Breaker,
    BreakerSettings,
    Budget,
    BudgetSettings,
    Call,
    Concurrency,
    ConcurrencySettings,
    DownstreamSettings,
    Health,
    Permit,
    Refusal,
    State,
)
from slotkeeper.retry.downstream.rules import (
    HOLD_WINDOWS,
    MAX_CHANGES,
    ask,
    force_closed,
    force_open,
    give_back,
    grown,
    reduced,
    report,
)

NOW = 1_800_000_000.0
LEASE = 125.0
MOST = 8
THRESHOLD, RECOVERY = 18, 10.0
NEVER = 10**6
ALL = DownstreamSettings(most=MOST)
NO_BREAKER = replace(ALL, breaker=BreakerSettings(enabled=False))
NO_LIMIT = replace(ALL, concurrency=ConcurrencySettings(enabled=False))
BREAKER_ONLY = replace(NO_LIMIT, budget=BudgetSettings(enabled=False))
FEW = replace(NO_BREAKER, budget=BudgetSettings(capacity=2, percent=50, window=60))

SUCCEEDED, THROTTLED, FAILED, UNKNOWN = Answer.SUCCEEDED, Answer.THROTTLED, Answer.FAILED, Answer.UNKNOWN


class Downstream:
    """The state of one downstream with a test's clock. Each attempt has a code: 0, 1, 2, ..."""

    def __init__(self, settings: DownstreamSettings = ALL) -> None:
        self.health = Health()
        self.settings = settings
        self.now = NOW
        self.asked = 0

    @property
    def breaker(self) -> Breaker:
        return self.health.breaker

    @property
    def concurrency(self) -> Concurrency:
        return self.health.concurrency

    @property
    def budget(self) -> Budget:
        return self.health.budget

    def ask(self, *, is_retry: bool = False, again: Permit | None = None) -> Permit | Refusal:
        """`again`: the permit of a call whose answer was lost."""
        self.asked += again is None
        wanted = again or Permit(str(self.asked), self.now + LEASE, is_retry=is_retry)
        self.health, answer = ask(self.health, self.settings, wanted, self.now)
        return answer

    def begin(self, **how: Any) -> Permit:
        permit = self.ask(**how)
        assert isinstance(permit, Permit)
        return permit

    def refused(self, **how: Any) -> Refusal:
        refusal = self.ask(**how)
        assert isinstance(refusal, Refusal)
        return refusal

    def report(self, permit: Permit, answer: Answer, seconds: float = 1.0) -> bool:
        """Whether a failure may count."""
        self.health, counts = report(self.health, self.settings, permit, Call(answer, seconds), self.now)
        return counts

    def attempt(self, answer: Answer, **how: Any) -> bool:
        return self.report(self.begin(**how), answer)

    def give_back(self, permit: Permit) -> None:
        self.health = give_back(self.health, permit, self.now)

    def limited(self, limit: int, **fields: Any) -> Downstream:
        self.health = replace(self.health, concurrency=Concurrency(limit, **fields))
        return self

    def spend(self, retries: int) -> Downstream:
        """Let retries fail."""
        for _ in range(retries):
            self.attempt(FAILED, is_retry=True)
        return self

    def opened(self) -> Downstream:
        """Let attempts fail until the breaker is open."""
        while self.health.breaker.state == State.CLOSED:
            self.attempt(FAILED)
        return self

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def wait_for_probe(self) -> float:
        """Wait until the next probe is due; return for how long."""
        before = self.now
        self.now = self.refused().not_before
        return self.now - before


def healthy(settings: DownstreamSettings = ALL, limit: int = 0) -> Downstream:
    downstream = Downstream(settings).limited(limit)
    downstream.attempt(SUCCEEDED)
    return downstream


def opened(wait: float = 0.0) -> Downstream:
    """A downstream whose breaker has been open for so many seconds."""
    downstream = healthy().opened()
    downstream.wait(wait)
    return downstream


# The breaker.


@pytest.mark.parametrize("successes", [0, 1])
def test_the_breaker_opens_when_as_many_of_the_last_calls_failed(successes: int) -> None:
    downstream = healthy(replace(ALL, breaker=BreakerSettings(window_calls=THRESHOLD + successes)))
    for answer in [FAILED] + [SUCCEEDED] * successes + [FAILED] * (THRESHOLD - 2):
        downstream.attempt(answer)
    assert downstream.breaker.state == State.CLOSED
    downstream.attempt(FAILED)
    assert (downstream.breaker.state, downstream.breaker.epoch) == (State.OPEN, 1)
    assert downstream.breaker.changes[-1].why == f"18 of the last {18 + successes} calls failed"


def test_calls_before_the_last_ones_do_not_open_the_breaker() -> None:
    downstream = healthy()
    for _ in range(10):
        for answer in [SUCCEEDED] + [FAILED] * (THRESHOLD - 1):
            downstream.attempt(answer)
    assert downstream.breaker.state == State.CLOSED


@pytest.mark.parametrize(
    ("settings", "limit", "answer", "calls"),
    [
        (ALL, 0, FAILED, THRESHOLD),
        (replace(ALL, breaker=BreakerSettings(failure_threshold=20, window_calls=3)), 0, FAILED, 20),
        (ALL, 1, THROTTLED, THRESHOLD),
        (NO_LIMIT, 0, THROTTLED, NEVER),
        (NO_LIMIT, 0, UNKNOWN, NEVER),
        (NO_BREAKER, 0, FAILED, NEVER),
    ],
)
def test_so_many_calls_open_the_breaker(settings: DownstreamSettings, limit: int, answer: Answer, calls: int) -> None:
    downstream = healthy(settings, limit)
    for _ in range(min(calls, 3 * THRESHOLD)):
        assert downstream.breaker.state == State.CLOSED
        downstream.attempt(answer)
    assert (downstream.breaker.state == State.OPEN) == (calls != NEVER)


def test_the_first_probe_comes_early_and_each_failed_one_lengthens_the_wait_by_half() -> None:
    downstream = opened()
    waits = []
    for _ in range(12):
        waits.append(downstream.wait_for_probe())
        downstream.attempt(FAILED)
    longest = [RECOVERY * min(1, 1.5**number / 32) for number in range(12)]
    assert all(0.8 * most <= wait <= most for wait, most in zip(waits, longest, strict=True))
    assert len({wait / most for wait, most in zip(waits, longest, strict=True)}) == len(waits)  # jitter
    downstream.wait_for_probe()
    downstream.attempt(SUCCEEDED)
    assert downstream.opened().wait_for_probe() <= longest[0]


def test_until_the_probe_is_due_every_attempt_is_refused() -> None:
    downstream = opened()
    refusal = downstream.refused()
    downstream.now = refusal.not_before - 0.01
    assert downstream.refused() == refusal
    assert refusal.reason == "breaker"
    downstream.now = refusal.not_before
    downstream.begin()
    assert (downstream.breaker.state, downstream.breaker.epoch) == (State.HALF_OPEN, 2)


def test_a_shorter_recovery_time_applies_to_an_open_breaker() -> None:
    downstream = healthy(replace(ALL, breaker=BreakerSettings(recovery=3600.0))).opened()
    downstream.settings = ALL
    assert downstream.refused().not_before == NOW + RECOVERY


def test_a_breaker_that_a_clock_ahead_of_the_others_opened_begins_a_probe_immediately() -> None:
    downstream = healthy()
    downstream.now = NOW + 600
    downstream.opened()
    downstream.now = NOW
    downstream.begin()


def test_one_probe_is_under_way_at_a_time() -> None:
    downstream = opened(RECOVERY)
    downstream.begin()
    for so_far, wait in ((0, 0), (2, 2), (RECOVERY, RECOVERY), (100, RECOVERY)):
        downstream.now = downstream.breaker.since + so_far
        refusal = downstream.refused()
        assert (refusal.reason, refusal.not_before) == ("breaker", downstream.now + wait)


def test_the_probes_success_closes_the_breaker_and_the_limit_is_the_one_before() -> None:
    downstream = opened(RECOVERY).limited(4, proven=3, throttled=6, calm=2)
    downstream.attempt(SUCCEEDED)
    assert (downstream.breaker.state, downstream.breaker.epoch, downstream.breaker.failures) == (State.CLOSED, 3, 0)
    limit = downstream.concurrency
    assert (limit.limit, limit.proven, limit.throttled, limit.calm) == (4, 3, 6, 2)


def test_an_operators_close_starts_at_one_caller() -> None:
    downstream = Downstream().limited(4, proven=3, throttled=6, calm=2)
    downstream.health = force_closed(downstream.health, NOW, "repaired")
    assert downstream.concurrency == Concurrency(1, window=NOW)
    downstream.begin()
    assert downstream.refused().reason == "concurrency"


def _proves_nothing(downstream: Downstream) -> None:
    downstream.attempt(UNKNOWN)


def _is_given_back(downstream: Downstream) -> None:
    downstream.give_back(downstream.begin())


@pytest.mark.parametrize("end", [_proves_nothing, _is_given_back])
def test_after_a_probe_without_an_answer_the_next_one_is_due_immediately(end: Callable[[Downstream], None]) -> None:
    downstream = opened(RECOVERY)
    end(downstream)
    assert (downstream.breaker.state, downstream.health.permits) == (State.OPEN, {})
    downstream.begin()
    assert downstream.breaker.state == State.HALF_OPEN


def test_a_probe_whose_container_died_has_failed_when_its_lease_ends() -> None:
    downstream = opened(RECOVERY)
    dead = downstream.begin()
    downstream.wait(LEASE - 0.1)
    downstream.refused()
    downstream.wait(0.1)
    due = downstream.refused().not_before
    assert (downstream.breaker.state, downstream.breaker.failed_probes) == (State.OPEN, 1)
    assert downstream.now < due <= downstream.now + RECOVERY / 16
    downstream.now = due
    probe = downstream.begin()
    downstream.report(dead, FAILED)  # it was slow, not dead
    assert downstream.breaker.state == State.HALF_OPEN
    downstream.report(probe, SUCCEEDED)
    assert downstream.breaker.state == State.CLOSED


def test_calls_that_hang_until_their_functions_are_stopped_open_the_breaker() -> None:
    downstream = healthy()
    for _ in range(THRESHOLD):
        downstream.begin()
        downstream.wait(LEASE)
    assert downstream.refused().reason == "breaker"
    assert (downstream.breaker.state, downstream.health.permits) == (State.OPEN, {})


def test_a_permit_of_an_earlier_epoch_that_ends_is_no_failure() -> None:
    downstream = healthy()
    downstream.begin()
    downstream.opened()
    downstream.wait(RECOVERY)
    downstream.attempt(SUCCEEDED)
    downstream.wait(LEASE)
    downstream.begin()
    assert (downstream.breaker.failures, downstream.breaker.healthy) == (0, True)


def late_permit(state: State) -> tuple[Downstream, Permit]:
    """A permit that began before the breaker opened, when it is in this state."""
    downstream = healthy()
    late = downstream.begin(is_retry=True)
    downstream.opened()
    if state != State.OPEN:
        downstream.wait(RECOVERY)
        probe = downstream.begin()
        if state == State.CLOSED:
            downstream.report(probe, SUCCEEDED)
    assert downstream.breaker.state == state
    return downstream, late


@pytest.mark.parametrize("answer", [*Answer, None])
@pytest.mark.parametrize("state", State)
def test_an_outcome_of_an_earlier_epoch_changes_nothing_but_its_permit(answer: Answer | None, state: State) -> None:
    """Without an answer the permit is given back."""
    downstream, late = late_permit(state)
    before = downstream.health
    if answer is None:
        downstream.give_back(late)
    else:
        assert downstream.report(late, answer) is False
    permits = {code: held for code, held in before.permits.items() if code != late.code}
    assert downstream.health == replace(before, permits=permits)


def test_an_operators_open_refuses_until_an_operators_close() -> None:
    downstream = healthy()
    under_way = downstream.begin()
    downstream.health = force_open(downstream.health, NOW, "planned", "me")
    downstream.report(under_way, SUCCEEDED)
    for seconds in (0, RECOVERY, LEASE, 10**6):
        downstream.wait(seconds)
        refusal = downstream.refused()
        assert (refusal.reason, refusal.not_before) == ("breaker", downstream.now + RECOVERY)
    assert (downstream.breaker.state, downstream.breaker.forced) == (State.OPEN, True)
    downstream.health = force_closed(downstream.health, downstream.now, "repaired", "me")
    downstream.begin()
    assert (downstream.breaker.state, downstream.breaker.forced) == (State.CLOSED, False)
    assert [(change.to, change.why, change.by) for change in downstream.breaker.changes] == [
        ("OPEN", "planned", "me"),
        ("CLOSED", "repaired", "me"),
    ]


def test_a_breaker_that_the_policy_disables_is_closed_unless_an_operator_opened_it() -> None:
    downstream = opened()
    downstream.settings = NO_BREAKER
    downstream.begin()
    assert downstream.breaker.state == State.CLOSED
    downstream.health = force_open(downstream.health, NOW, "planned")
    downstream.refused()


def test_the_last_changes_are_kept() -> None:
    health = Health()
    for at in range(2 * MAX_CHANGES):
        health = force_open(health, at, "x") if at % 2 else force_closed(health, at, "x")
    assert [change.at for change in health.breaker.changes] == list(range(MAX_CHANGES, 2 * MAX_CHANGES))


# Which failures count.


@pytest.mark.parametrize(
    ("settings", "answers", "counted"),
    [
        pytest.param(ALL, [FAILED, FAILED], [False, False], id="before the first answer"),
        pytest.param(ALL, [SUCCEEDED, FAILED, FAILED, SUCCEEDED, FAILED], [True, False, True], id="between successes"),
        pytest.param(NO_BREAKER, [FAILED] * 3, [True] * 3, id="without the breaker"),
    ],
)
def test_a_failure_counts_after_a_success(
    settings: DownstreamSettings, answers: list[Answer], counted: list[bool]
) -> None:
    downstream = Downstream(settings)
    counts = []
    for answer in answers:
        counts.append(downstream.attempt(answer))
        downstream.wait(1.0)
    assert [count for count, answer in zip(counts, answers, strict=True) if answer == FAILED] == counted


def test_no_failure_counts_after_an_operators_close() -> None:
    downstream = healthy()
    downstream.health = force_closed(downstream.health, NOW, "repaired")
    assert downstream.attempt(FAILED) is False


def test_the_success_of_a_call_that_began_before_a_failure_does_not_let_the_next_failure_count() -> None:
    """Ten calls are under way when the outage begins: some succeed between the failures of those that begin later."""
    downstream = healthy()
    under_way = [downstream.begin() for _ in range(3)]
    downstream.wait(0.5)
    assert downstream.attempt(FAILED) is True
    for permit in under_way:
        downstream.report(permit, SUCCEEDED, seconds=1.0)
        assert downstream.attempt(FAILED) is False


def test_a_call_that_began_after_the_first_failure_shows_that_the_downstream_works() -> None:
    downstream = healthy()
    downstream.attempt(FAILED)
    later = downstream.begin()
    downstream.wait(5)
    downstream.attempt(FAILED)
    downstream.report(later, SUCCEEDED, 5.0)
    assert downstream.attempt(FAILED) is True


# The concurrency limit.


def follow(limit: Concurrency, capacity: int, windows: int, most: int = 16) -> list[Concurrency]:
    """The limits of windows in full use, against a downstream that throttles above its capacity."""
    limits = [limit]
    for _ in range(windows):
        limit = limits[-1]
        limits.append(reduced(limit, most) if limit.limit > capacity else grown(limit, most))
    return limits


@given(st.integers(2, 1000), st.data())
def test_the_limit_is_never_below_one_nor_above_the_most_and_at_most_halved(most: int, data: st.DataObject) -> None:
    limit = Concurrency(most)
    for throttled in data.draw(st.lists(st.booleans(), max_size=40)):
        before, limit = limit, reduced(limit, most) if throttled else grown(limit, most)
        assert max(1, before.limit // 2 if throttled else before.limit) <= limit.limit <= most
        assert limit.limit < before.limit or before.limit == 1 or not throttled


def test_the_limit_is_one_too_high_in_one_of_the_windows_after_each_hold() -> None:
    settled = follow(Concurrency(16), 10, 100)[20:]
    assert {each.limit for each in settled} == {10, 11}
    assert sum(each.limit == 11 for each in settled) <= len(settled) / HOLD_WINDOWS


def test_a_limit_that_was_proven_is_halved_when_it_is_throttled() -> None:
    assert reduced(Concurrency(10, proven=10), 16).limit == 5
    assert reduced(reduced(Concurrency(11, proven=10), 16), 16).limit == 5


def test_from_one_the_limit_reaches_the_most_in_a_logarithmic_number_of_windows() -> None:
    assert [each.limit for each in follow(Concurrency(1), 1000, 9)] == [1, 2, 3, 4, 6, 9, 13, 16, 16, 16]


@pytest.mark.parametrize(
    ("limit", "settings", "callers"),
    [
        (Concurrency(), ALL, MOST),
        (Concurrency(3), ALL, 3),
        (Concurrency(MOST + 5), ALL, MOST),
        (Concurrency(3, limit_set=2), ALL, 2),
        (Concurrency(3, limit_set=5), ALL, 5),
        (Concurrency(limit_set=2), BREAKER_ONLY, 2),
    ],
)
def test_no_more_attempts_begin_than_the_limit(limit: Concurrency, settings: DownstreamSettings, callers: int) -> None:
    downstream = Downstream(settings)
    downstream.health = Health(concurrency=replace(limit, seconds=0.5))
    for _ in range(callers):
        permit = downstream.begin()
    assert downstream.refused() == Refusal("concurrency", NOW, 4 * callers / 0.5)
    downstream.report(permit, UNKNOWN)
    downstream.begin()


def window(downstream: Downstream, callers: int, *answers: Answer) -> Downstream:
    """A window in which this many callers are under way, of which the first ones end with these answers."""
    permits = [downstream.begin() for _ in range(callers)]
    for permit, answer in zip(permits, (*answers, *[UNKNOWN] * callers), strict=False):
        downstream.report(permit, answer)
    downstream.wait(10)
    downstream.give_back(downstream.begin())
    return downstream


@pytest.mark.parametrize(
    ("limit", "callers", "answers", "next_limit"),
    [
        pytest.param(Concurrency(4), 4, (SUCCEEDED,), 6, id="in full use"),
        pytest.param(Concurrency(4), 3, (SUCCEEDED,), 4, id="not in full use"),
        pytest.param(Concurrency(4), 4, (UNKNOWN,), 4, id="without a success"),
        pytest.param(Concurrency(1), 1, (THROTTLED, SUCCEEDED), 1, id="one caller that was throttled"),
        pytest.param(Concurrency(8, limit_set=3), 3, (SUCCEEDED,) * 3, 8, id="an operator's limit in full use"),
        pytest.param(Concurrency(8, limit_set=3), 3, (THROTTLED,) * 3, 8, id="an operator's limit, throttled"),
    ],
)
def test_the_limit_after_a_window(
    limit: Concurrency, callers: int, answers: tuple[Answer, ...], next_limit: int
) -> None:
    downstream = Downstream()
    downstream.health = Health(concurrency=replace(limit, window=NOW))
    assert window(downstream, callers, *answers).concurrency.limit == next_limit
    assert downstream.health.callers(ALL) == (limit.limit_set or next_limit)


def test_a_window_is_never_shorter_than_the_mean_duration_of_a_call() -> None:
    downstream = window(Downstream().limited(4, window=NOW, seconds=20.0), 4, SUCCEEDED)
    assert downstream.concurrency.limit == 4
    downstream.wait(20)
    downstream.begin()
    assert downstream.concurrency.limit == 6


def test_many_throttled_answers_reduce_the_limit_once_per_window() -> None:
    downstream = window(Downstream().limited(8, window=NOW), 8, *[THROTTLED] * 8)
    assert (downstream.concurrency.limit, downstream.concurrency.throttled) == (4, 8)
    assert window(downstream, 4, *[THROTTLED] * 4).concurrency.limit == 2


@pytest.mark.parametrize("ahead", [600, 10.1])
def test_a_window_that_a_clock_ahead_of_the_others_began_ends_immediately(ahead: float) -> None:
    downstream = healthy(limit=4)
    downstream.now = NOW + ahead
    downstream.attempt(THROTTLED)
    downstream.spend(2)
    assert (downstream.concurrency.window, downstream.budget.refilled) == (downstream.now, downstream.now)
    downstream.now = NOW
    downstream.begin()
    assert (downstream.concurrency.window, downstream.budget.refilled) == (NOW, NOW)
    downstream.attempt(THROTTLED)
    assert downstream.concurrency.limit == 1


def test_a_permit_of_a_dead_container_ends_with_its_lease() -> None:
    downstream = Downstream().limited(1)
    downstream.begin()
    downstream.wait(LEASE - 0.1)
    downstream.refused()
    downstream.wait(0.1)
    downstream.begin()
    assert len(downstream.health.permits) == 1


def test_a_slow_success_reduces_the_limit() -> None:
    downstream = Downstream(replace(ALL, concurrency=ConcurrencySettings(slow=2.0))).limited(8)
    downstream.report(downstream.begin(), SUCCEEDED, 2.0)
    assert downstream.concurrency.limit == 8
    downstream.report(downstream.begin(), SUCCEEDED, 2.1)
    assert (downstream.concurrency.limit, downstream.breaker.healthy) == (4, True)


def test_the_mean_duration_follows_the_calls() -> None:
    downstream = Downstream()
    for seconds, mean in ((4.0, 4.0), (9.0, 5.0)):
        downstream.report(downstream.begin(), SUCCEEDED, seconds)
        assert downstream.concurrency.seconds == mean


def test_without_limit_and_budget_a_healthy_downstream_changes_nothing() -> None:
    downstream = healthy(BREAKER_ONLY)
    before = downstream.health
    permit = downstream.begin()
    assert downstream.health == before
    downstream.wait(100)
    downstream.report(permit, SUCCEEDED, 3.0)
    assert downstream.health == before


def test_messages_return_at_four_times_the_rate_of_the_permitted_callers_but_at_least_two_a_second() -> None:
    assert opened().refused().per_second == 4 * MOST / 1.0
    assert opened().limited(4, seconds=0.5).refused().per_second == 32.0  # as before the breaker opened
    for seconds, per_second in ((0.5, 8.0), (40.0, 2.0)):
        downstream = Downstream().limited(1, seconds=seconds)
        downstream.begin()
        assert downstream.refused().per_second == per_second


# The retry budget.


def test_as_many_retries_may_fail_as_the_budgets_capacity() -> None:
    downstream = Downstream(FEW).spend(2)
    assert downstream.refused(is_retry=True) == Refusal("budget", NOW + 30, 2.0)


def test_each_success_returns_a_part_of_a_retry_up_to_the_capacity() -> None:
    downstream = Downstream(FEW).spend(2)
    for _ in range(2):
        downstream.refused(is_retry=True)
        downstream.attempt(SUCCEEDED)
    downstream.spend(1).refused(is_retry=True)
    for _ in range(50):
        downstream.attempt(SUCCEEDED)
    downstream.spend(2).refused(is_retry=True)


def test_a_first_attempt_is_never_refused_by_the_budget() -> None:
    downstream = Downstream(FEW).spend(2)
    for _ in range(50):
        downstream.attempt(FAILED)


def test_time_returns_the_capacity_in_a_window() -> None:
    downstream = Downstream(FEW).spend(2)
    downstream.wait(29)
    downstream.refused(is_retry=True)
    downstream.wait(1)
    downstream.spend(1).refused(is_retry=True)
    downstream.wait(600)
    downstream.spend(2).refused(is_retry=True)


def test_the_probe_is_exempt_from_the_budget() -> None:
    downstream = Downstream(FEW).spend(2)
    downstream.settings = replace(FEW, breaker=BreakerSettings())
    downstream.opened().wait_for_probe()
    spent = downstream.budget.spent
    downstream.report(downstream.begin(is_retry=True), FAILED)
    assert downstream.breaker.state == State.OPEN
    assert downstream.budget.spent <= spent


def test_without_the_budget_any_number_of_retries_begins() -> None:
    Downstream(replace(FEW, budget=BudgetSettings(enabled=False))).spend(50)


# A call whose own write is found again after its answer was lost.


def test_the_probe_whose_answer_was_lost_is_still_the_probe() -> None:
    downstream = opened(RECOVERY)
    lost = downstream.begin()
    downstream.limited(4, seconds=1.5, window=downstream.now)  # another container has written
    before = downstream.health
    assert downstream.begin(again=lost).epoch == lost.epoch
    assert downstream.health == before


def test_a_lost_permit_of_the_closed_breaker_is_no_second_probe() -> None:
    downstream = healthy()
    lost = downstream.begin()
    downstream.opened()
    downstream.refused(again=lost)
    downstream.wait(RECOVERY)
    downstream.begin()
    assert downstream.refused(again=lost).reason == "breaker"


def test_a_lost_permit_of_the_closed_breaker_is_found_again() -> None:
    downstream = Downstream().limited(1)
    lost = downstream.begin()
    before = downstream.health
    assert downstream.begin(again=lost) == lost
    assert downstream.health == before
