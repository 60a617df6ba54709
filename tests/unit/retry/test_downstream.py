"""The rules by which attempts begin, and by which their outcomes change the state of the downstream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.retry.downstream.health import (
    Answer,
    BreakerSettings,
    BudgetSettings,
    ConcurrencySettings,
    DownstreamSettings,
    Health,
    Permit,
    Refusal,
    State,
)
from slotkeeper.retry.downstream.rules import MAX_CHANGES, ask, force_closed, force_open, give_back, report, set_limit

NOW = 1_800_000_000.0
LEASE = 125.0
MOST = 8
THRESHOLD, WINDOW, RECOVERY = 15, 16, 30.0
BREAKER_ONLY = DownstreamSettings(concurrency=ConcurrencySettings(enabled=False), budget=BudgetSettings(enabled=False))
ALL = DownstreamSettings()

SUCCEEDED, THROTTLED, FAILED, UNKNOWN = Answer.SUCCEEDED, Answer.THROTTLED, Answer.FAILED, Answer.UNKNOWN


class Downstream:
    """The state of one downstream with a test's clock. Each attempt has a code: 0, 1, 2, ..."""

    def __init__(self, health: Health | None = None, settings: DownstreamSettings = ALL, now: float = NOW) -> None:
        self.health = health or Health()
        self.settings = settings
        self.now = now
        self.asked = 0

    def ask(self, *, is_retry: bool = False, again: Permit | None = None) -> Permit | Refusal:
        """`again`: the permit of a call whose answer was lost."""
        self.asked += again is None
        wanted = again or Permit(str(self.asked), self.now + LEASE, is_retry=is_retry)
        self.health, answer = ask(self.health, self.settings, wanted, MOST, self.now)
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
        self.health, counts = report(self.health, self.settings, permit, answer, seconds, MOST, self.now)
        return counts

    def attempt(self, answer: Answer, **how: Any) -> bool:
        return self.report(self.begin(**how), answer)

    def give_back(self, permit: Permit) -> None:
        self.health = give_back(self.health, permit, self.now)

    def opened(self) -> Downstream:
        """Let attempts fail until the breaker is open."""
        while self.health.state == State.CLOSED:
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
    downstream = Downstream(Health(limit=limit), settings)
    downstream.attempt(SUCCEEDED)
    return downstream


# The breaker.


@pytest.mark.parametrize("successes", [0, WINDOW - THRESHOLD])
def test_the_breaker_opens_when_nearly_all_of_the_last_calls_failed(successes: int) -> None:
    downstream = healthy()
    for answer in [FAILED] + [SUCCEEDED] * successes + [FAILED] * (THRESHOLD - 2):
        downstream.attempt(answer)
    assert downstream.health.state == State.CLOSED
    downstream.attempt(FAILED)
    assert (downstream.health.state, downstream.health.epoch) == (State.OPEN, 1)
    assert downstream.health.changes[-1].why == "15 of the last 16 calls failed"


def test_calls_before_the_last_ones_do_not_open_the_breaker() -> None:
    downstream = healthy()
    for _ in range(10):
        for answer in [SUCCEEDED] * (WINDOW - THRESHOLD + 1) + [FAILED] * (THRESHOLD - 1):
            downstream.attempt(answer)
    assert downstream.health.state == State.CLOSED


def test_with_a_threshold_above_the_window_as_many_calls_are_considered() -> None:
    downstream = healthy(replace(ALL, breaker=BreakerSettings(failure_threshold=20, window_calls=3)))
    for _ in range(20):
        assert downstream.health.state == State.CLOSED
        downstream.attempt(FAILED)
    assert downstream.health.state == State.OPEN


def test_the_first_probe_comes_early_and_each_failed_one_doubles_the_wait() -> None:
    downstream = healthy().opened()
    waits = []
    for _ in range(8):
        waits.append(downstream.wait_for_probe())
        downstream.attempt(FAILED)
    longest = [RECOVERY * min(1, 2**number / 32) for number in range(8)]
    assert all(0.8 * most <= wait <= most for wait, most in zip(waits, longest, strict=True))
    assert len({wait / most for wait, most in zip(waits, longest, strict=True)}) == len(waits)  # jitter
    downstream.wait_for_probe()
    downstream.attempt(SUCCEEDED)
    assert downstream.opened().wait_for_probe() <= longest[0]


def test_until_the_probe_is_due_every_attempt_is_refused() -> None:
    downstream = healthy().opened()
    refusal = downstream.refused()
    downstream.now = refusal.not_before - 0.01
    assert downstream.refused() == refusal
    assert refusal.reason == "breaker"
    downstream.now = refusal.not_before
    downstream.begin()
    assert (downstream.health.state, downstream.health.epoch) == (State.HALF_OPEN, 2)


def test_a_shorter_recovery_time_applies_to_an_open_breaker() -> None:
    hour = replace(ALL, breaker=BreakerSettings(recovery=3600.0))
    downstream = healthy(hour).opened()
    downstream.settings = ALL
    assert downstream.refused().not_before == NOW + RECOVERY


def test_a_breaker_that_a_clock_ahead_of_the_others_opened_begins_a_probe_immediately() -> None:
    downstream = healthy()
    downstream.now = NOW + 600
    downstream.opened()
    downstream.now = NOW
    downstream.begin()


@pytest.mark.parametrize("answer", [UNKNOWN, THROTTLED])
def test_an_answer_that_is_no_failure_does_not_open_the_breaker(answer: Answer) -> None:
    downstream = healthy(replace(ALL, concurrency=ConcurrencySettings(enabled=False)))
    for _ in range(3 * THRESHOLD):
        downstream.attempt(answer)
    assert (downstream.health.state, downstream.health.failures) == (State.CLOSED, 0)


def test_throttling_at_one_caller_opens_the_breaker() -> None:
    downstream = healthy(limit=1)
    for _ in range(THRESHOLD):
        downstream.attempt(THROTTLED)
    assert downstream.health.state == State.OPEN


@pytest.mark.parametrize("first", [SUCCEEDED, THROTTLED])
def test_the_limit_does_not_grow_after_a_window_in_which_one_caller_was_throttled(first: Answer) -> None:
    downstream = Downstream(Health(limit=1))
    for answer in (first, THROTTLED, SUCCEEDED):
        downstream.attempt(answer)
    downstream.wait(10)
    downstream.begin()
    assert downstream.health.limit == 1


def test_one_probe_is_under_way_at_a_time() -> None:
    downstream = healthy().opened()
    downstream.wait(RECOVERY)
    downstream.begin()
    for so_far, wait in ((0, 0), (2, 2), (RECOVERY, RECOVERY), (100, RECOVERY)):
        downstream.now = downstream.health.since + so_far
        refusal = downstream.refused()
        assert (refusal.reason, refusal.not_before) == ("breaker", downstream.now + wait)


def test_the_probes_success_closes_the_breaker_and_the_limit_is_the_one_before() -> None:
    downstream = healthy().opened()
    downstream.health = replace(downstream.health, limit=4, proven=3, throttled=6, calm=2)
    downstream.wait(RECOVERY)
    downstream.attempt(SUCCEEDED)
    health = downstream.health
    assert (health.state, health.epoch, health.failures) == (State.CLOSED, 3, 0)
    assert (health.limit, health.proven, health.throttled, health.calm) == (4, 3, 6, 2)


def test_an_operators_close_starts_at_one_caller() -> None:
    downstream = Downstream(Health(limit=4, proven=3, throttled=6, calm=2))
    downstream.health = force_closed(downstream.health, NOW, "repaired")
    health = downstream.health
    assert (health.limit, health.proven, health.throttled, health.calm) == (1, 0, 0, 0)
    downstream.begin()
    assert downstream.refused().reason == "concurrency"


@pytest.mark.parametrize("answer", [FAILED, THROTTLED])
def test_the_probes_failure_opens_the_breaker_again(answer: Answer) -> None:
    downstream = healthy().opened()
    downstream.wait(RECOVERY)
    downstream.attempt(answer)
    assert (downstream.health.state, downstream.health.epoch) == (State.OPEN, 3)
    assert downstream.refused().not_before > downstream.now


def test_after_a_probe_that_proves_nothing_the_next_one_is_due_immediately() -> None:
    downstream = healthy().opened()
    downstream.wait(RECOVERY)
    downstream.attempt(UNKNOWN)
    assert downstream.health.state == State.OPEN
    downstream.begin()
    assert downstream.health.state == State.HALF_OPEN


def test_after_a_probe_that_is_given_back_the_next_one_is_due_immediately() -> None:
    downstream = healthy().opened()
    downstream.wait(RECOVERY)
    downstream.give_back(downstream.begin())
    assert (downstream.health.state, downstream.health.permits) == (State.OPEN, {})
    downstream.begin()
    assert downstream.health.state == State.HALF_OPEN


def test_a_probe_whose_container_died_has_failed_when_its_lease_ends() -> None:
    downstream = healthy().opened()
    downstream.wait(RECOVERY)
    dead = downstream.begin()
    downstream.wait(LEASE - 0.1)
    downstream.refused()
    downstream.wait(0.1)
    due = downstream.refused().not_before
    assert (downstream.health.state, downstream.health.failed_probes) == (State.OPEN, 1)
    assert downstream.now < due <= downstream.now + RECOVERY / 16
    downstream.now = due
    probe = downstream.begin()
    downstream.report(dead, FAILED)  # it was slow, not dead
    assert downstream.health.state == State.HALF_OPEN
    downstream.report(probe, SUCCEEDED)
    assert downstream.health.state == State.CLOSED


def test_calls_that_hang_until_their_functions_are_stopped_open_the_breaker() -> None:
    downstream = healthy()
    for _ in range(THRESHOLD):
        downstream.begin()
        downstream.wait(LEASE)
    assert downstream.refused().reason == "breaker"
    assert (downstream.health.state, downstream.health.permits) == (State.OPEN, {})


def test_a_permit_of_an_earlier_epoch_that_ends_is_no_failure() -> None:
    downstream = healthy()
    downstream.begin()
    downstream.opened()
    downstream.wait(RECOVERY)
    downstream.attempt(SUCCEEDED)
    downstream.wait(LEASE)
    downstream.begin()
    assert (downstream.health.failures, downstream.health.healthy) == (0, True)


@pytest.mark.parametrize("answer", Answer)
@pytest.mark.parametrize("state", State)
def test_an_outcome_of_an_earlier_epoch_changes_nothing_but_its_permit(answer: Answer, state: State) -> None:
    downstream = healthy()
    late = downstream.begin(is_retry=True)
    downstream.opened()
    if state != State.OPEN:
        downstream.wait(RECOVERY)
        probe = downstream.begin()
        if state == State.CLOSED:
            downstream.report(probe, SUCCEEDED)
    before = downstream.health
    counts = downstream.report(late, answer)
    assert (before.state, counts) == (state, False)
    assert downstream.health == replace(before, permits={k: v for k, v in before.permits.items() if k != late.code})


@pytest.mark.parametrize("state", State)
def test_a_permit_of_an_earlier_epoch_that_is_given_back_changes_nothing_but_itself(state: State) -> None:
    downstream = healthy()
    late = downstream.begin()
    downstream.opened()
    if state != State.OPEN:
        downstream.wait(RECOVERY)
        probe = downstream.begin()
        if state == State.CLOSED:
            downstream.report(probe, SUCCEEDED)
    before = downstream.health
    downstream.give_back(late)
    assert downstream.health == replace(before, permits={k: v for k, v in before.permits.items() if k != late.code})


def test_an_operators_open_refuses_until_an_operators_close() -> None:
    downstream = healthy()
    under_way = downstream.begin()
    downstream.health = force_open(downstream.health, NOW, "planned", "me")
    downstream.report(under_way, SUCCEEDED)
    for seconds in (0, RECOVERY, LEASE, 10**6):
        downstream.wait(seconds)
        refusal = downstream.refused()
        assert (refusal.reason, refusal.not_before) == ("breaker", downstream.now + RECOVERY)
    assert (downstream.health.state, downstream.health.forced) == (State.OPEN, True)
    downstream.health = force_closed(downstream.health, downstream.now, "repaired", "me")
    downstream.begin()
    assert (downstream.health.state, downstream.health.forced) == (State.CLOSED, False)
    assert [(change.to, change.why, change.by) for change in downstream.health.changes] == [
        ("OPEN", "planned", "me"),
        ("CLOSED", "repaired", "me"),
    ]


def test_a_probe_does_not_close_what_an_operator_has_opened_meanwhile() -> None:
    downstream = healthy().opened()
    downstream.wait(RECOVERY)
    probe = downstream.begin()
    downstream.health = force_open(downstream.health, downstream.now, "planned")
    downstream.report(probe, SUCCEEDED)
    downstream.give_back(probe)
    assert (downstream.health.state, downstream.health.forced) == (State.OPEN, True)


def test_a_breaker_that_an_operator_closed_opens_again_by_its_rules() -> None:
    downstream = healthy().opened()
    downstream.health = force_closed(downstream.health, NOW, "repaired")
    downstream.opened()
    assert (downstream.health.state, downstream.health.failures) == (State.OPEN, THRESHOLD)


def test_a_disabled_breaker_never_opens_and_closes_an_open_one_but_not_the_operators() -> None:
    disabled = replace(ALL, breaker=BreakerSettings(enabled=False))
    downstream = healthy(disabled)
    for _ in range(3 * THRESHOLD):
        downstream.attempt(FAILED)
    assert downstream.health.state == State.CLOSED
    downstream = healthy().opened()
    downstream.settings = disabled
    downstream.begin()
    assert downstream.health.state == State.CLOSED
    downstream.health = force_open(downstream.health, NOW, "planned")
    downstream.refused()


def test_the_last_changes_are_kept() -> None:
    health = Health()
    for at in range(2 * MAX_CHANGES):
        health = force_open(health, at, "x") if at % 2 else force_closed(health, at, "x")
    assert [change.at for change in health.changes] == list(range(MAX_CHANGES, 2 * MAX_CHANGES))


# Which failures count.


def test_one_failure_of_an_outage_counts() -> None:
    downstream = healthy()
    counted = [downstream.attempt(FAILED) for _ in range(THRESHOLD)]
    for _ in range(3):
        downstream.wait(RECOVERY)
        counted.append(downstream.attempt(FAILED))
    assert counted == [True] + [False] * (THRESHOLD + 2)


def test_no_failure_counts_before_the_first_answer_or_after_an_operators_close() -> None:
    assert Downstream().attempt(FAILED) is False
    downstream = healthy()
    downstream.health = force_closed(downstream.health, NOW, "repaired")
    assert downstream.attempt(FAILED) is False


def test_failures_between_successes_count() -> None:
    downstream = healthy()
    counted = []
    for answer in (FAILED, SUCCEEDED, FAILED):
        counted.append(downstream.attempt(answer))
        downstream.wait(1.0)
    assert counted == [True, False, True]


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
    earlier = downstream.begin()
    downstream.wait(5)
    downstream.attempt(FAILED)
    downstream.report(earlier, SUCCEEDED, 5.0)
    assert downstream.attempt(FAILED) is False
    later = downstream.begin()
    downstream.wait(5)
    downstream.attempt(FAILED)
    downstream.report(later, SUCCEEDED, 5.0)
    assert downstream.attempt(FAILED) is True


def test_without_the_breaker_every_failure_counts() -> None:
    downstream = Downstream(settings=replace(ALL, breaker=BreakerSettings(enabled=False)))
    assert [downstream.attempt(FAILED) for _ in range(9)] == [True] * 9


# The concurrency limit; its steps are in test_concurrency_limit.py.


@pytest.mark.parametrize(
    ("health", "settings", "callers"),
    [
        (Health(), ALL, MOST),
        (Health(limit=3), ALL, 3),
        (Health(limit=MOST + 5), ALL, MOST),
        (Health(limit=3, limit_set=2), ALL, 2),
        (Health(limit=3, limit_set=5), ALL, 5),
        (Health(limit_set=2), BREAKER_ONLY, 2),
    ],
)
def test_no_more_attempts_begin_than_the_limit(health: Health, settings: DownstreamSettings, callers: int) -> None:
    downstream = Downstream(replace(health, seconds=0.5), settings)
    for _ in range(callers):
        permit = downstream.begin()
    assert downstream.refused() == Refusal("concurrency", NOW, 4 * callers / 0.5)
    downstream.report(permit, UNKNOWN)
    downstream.begin()


def test_the_limit_stays_after_a_window_that_was_not_in_full_use() -> None:
    downstream = Downstream(Health(limit=2))
    permits = [downstream.begin(), downstream.begin()]
    for permit in permits:
        downstream.report(permit, SUCCEEDED)
    for _ in range(3):
        downstream.wait(10)
        downstream.attempt(SUCCEEDED)
        assert downstream.health.limit == 3


@pytest.mark.parametrize("ahead", [600, 10.1])
def test_a_window_that_a_clock_ahead_of_the_others_began_ends_immediately(ahead: float) -> None:
    downstream = healthy(limit=4)
    downstream.now = NOW + ahead
    downstream.attempt(THROTTLED)
    spend(downstream, 2)
    assert (downstream.health.window, downstream.health.refilled) == (downstream.now, downstream.now)
    downstream.now = NOW
    downstream.begin()
    assert (downstream.health.window, downstream.health.refilled) == (NOW, NOW)
    downstream.attempt(THROTTLED)
    assert downstream.health.limit == 1


def test_a_permit_of_a_dead_container_ends_with_its_lease() -> None:
    downstream = Downstream(Health(limit=1))
    downstream.begin()
    downstream.wait(LEASE - 0.1)
    downstream.refused()
    downstream.wait(0.1)
    downstream.begin()
    assert len(downstream.health.permits) == 1


def test_a_permit_that_was_not_used_is_free_again() -> None:
    downstream = Downstream(Health(limit=1))
    permit = downstream.begin()
    after_begin = downstream.health
    downstream.give_back(permit)
    assert downstream.health == replace(after_begin, permits={})
    downstream.begin()


def test_an_attempt_that_was_throttled_in_an_earlier_window_reduces_the_limit_once() -> None:
    downstream = Downstream(Health(limit=8, window=NOW))
    permits = [downstream.begin() for _ in range(4)]
    downstream.wait(10)
    downstream.report(permits[0], THROTTLED)
    assert (downstream.health.limit, downstream.health.cut) == (4, downstream.now)
    for permit in permits[1:]:
        downstream.report(permit, THROTTLED)
    assert downstream.health.limit == 4


def test_a_slow_success_reduces_the_limit() -> None:
    settings = replace(ALL, concurrency=ConcurrencySettings(slow=2.0))
    downstream = Downstream(Health(limit=8), settings)
    downstream.report(downstream.begin(), SUCCEEDED, 2.0)
    assert downstream.health.limit == 8
    downstream.report(downstream.begin(), SUCCEEDED, 2.1)
    assert (downstream.health.limit, downstream.health.healthy) == (4, True)


def test_the_mean_duration_follows_the_calls() -> None:
    downstream = Downstream()
    for seconds, mean in ((4.0, 4.0), (9.0, 5.0)):
        downstream.report(downstream.begin(), SUCCEEDED, seconds)
        assert downstream.health.seconds == mean


def test_without_limit_and_budget_a_healthy_downstream_changes_nothing() -> None:
    downstream = healthy(BREAKER_ONLY)
    before = downstream.health
    permit = downstream.begin()
    assert downstream.health == before
    downstream.wait(100)
    downstream.report(permit, SUCCEEDED, 3.0)
    assert downstream.health == before


def test_messages_return_at_four_times_the_rate_of_the_permitted_callers_but_at_least_two_a_second() -> None:
    assert healthy().opened().refused().per_second == 4 * MOST / 1.0
    for seconds, per_second in ((0.5, 8.0), (40.0, 2.0)):
        downstream = Downstream(Health(limit=1, seconds=seconds))
        downstream.begin()
        assert downstream.refused().per_second == per_second


# The retry budget.

FEW = replace(ALL, budget=BudgetSettings(capacity=2, percent=50, window=60), breaker=BreakerSettings(enabled=False))


def spend(downstream: Downstream, retries: int) -> Downstream:
    """Let retries fail."""
    for _ in range(retries):
        downstream.attempt(FAILED, is_retry=True)
    return downstream


def test_as_many_retries_may_fail_as_the_budgets_capacity() -> None:
    downstream = spend(Downstream(settings=FEW), 2)
    assert downstream.refused(is_retry=True) == Refusal("budget", NOW + 30, 2.0)


def test_each_success_returns_a_part_of_a_retry_up_to_the_capacity() -> None:
    downstream = spend(Downstream(settings=FEW), 2)
    for is_retry in (False, False):
        downstream.refused(is_retry=True)
        downstream.attempt(SUCCEEDED, is_retry=is_retry)
    spend(downstream, 1)
    downstream.refused(is_retry=True)
    for _ in range(50):
        downstream.attempt(SUCCEEDED)
    spend(downstream, 2)
    downstream.refused(is_retry=True)


def test_a_first_attempt_is_never_refused_by_the_budget() -> None:
    downstream = spend(Downstream(settings=FEW), 2)
    for _ in range(50):
        downstream.attempt(FAILED)


def test_time_returns_the_capacity_in_a_window() -> None:
    downstream = spend(Downstream(settings=FEW), 2)
    downstream.wait(29)
    downstream.refused(is_retry=True)
    downstream.wait(1)
    spend(downstream, 1)
    downstream.refused(is_retry=True)
    downstream.wait(600)
    spend(downstream, 2)
    downstream.refused(is_retry=True)


def test_a_retry_that_does_not_fail_costs_nothing() -> None:
    downstream = Downstream(settings=FEW)
    for answer in (SUCCEEDED, UNKNOWN, THROTTLED):
        downstream.attempt(answer, is_retry=True)
    downstream.begin()
    downstream.give_back(downstream.begin(is_retry=True))
    assert downstream.health.spent == 0


def test_the_probe_is_exempt_from_the_budget() -> None:
    downstream = spend(Downstream(settings=FEW), 2)
    downstream.settings = replace(FEW, breaker=BreakerSettings())
    downstream.opened()
    downstream.wait_for_probe()
    spent = downstream.health.spent
    downstream.report(downstream.begin(is_retry=True), FAILED)
    assert downstream.health.state == State.OPEN
    assert downstream.health.spent <= spent


def test_without_the_budget_any_number_of_retries_begins() -> None:
    spend(Downstream(settings=replace(FEW, budget=BudgetSettings(enabled=False))), 50)


# A call whose own write is found again after its answer was lost.


def test_the_probe_whose_answer_was_lost_is_still_the_probe() -> None:
    settings = DownstreamSettings()
    due = replace(Health(), state=State.OPEN, epoch=1, probe_at=NOW)
    wanted = Permit("mine", NOW + 125)
    written, _ = ask(due, settings, wanted, MOST, NOW)
    changed_by_another = replace(written, seconds=1.5)
    after, granted = ask(changed_by_another, settings, wanted, MOST, NOW)
    assert isinstance(granted, Permit)
    assert (granted.epoch, after) == (written.epoch, changed_by_another)


def test_a_lost_permit_does_not_begin_after_an_operators_open() -> None:
    downstream = healthy()
    lost = downstream.begin()
    downstream.health = force_open(downstream.health, NOW, "planned")
    downstream.refused(again=lost)


def test_a_lost_permit_of_the_closed_breaker_is_no_second_probe() -> None:
    downstream = healthy()
    lost = downstream.begin()
    downstream.opened()
    downstream.refused(again=lost)
    downstream.wait(RECOVERY)
    downstream.begin()
    assert downstream.refused(again=lost).reason == "breaker"


def test_a_lost_permit_of_the_closed_breaker_is_found_again() -> None:
    downstream = Downstream(Health(limit=1))
    lost = downstream.begin()
    before = downstream.health
    assert downstream.begin(again=lost) == lost
    assert downstream.health == before


# Random sequences of calls.

SETTINGS = st.builds(
    DownstreamSettings,
    st.builds(BreakerSettings, st.booleans(), st.integers(1, 3), st.integers(1, 5), st.sampled_from([1.0, 30.0])),
    st.builds(ConcurrencySettings, st.booleans(), st.sampled_from([1.0, 10.0]), st.sampled_from([None, 2.0])),
    st.builds(BudgetSettings, st.booleans(), st.integers(1, 3), st.sampled_from([0.0, 20.0, 100.0]), st.just(20.0)),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.booleans()),
        st.tuples(st.just("ask_again"), st.integers(0, 9)),
        st.tuples(st.just("report"), st.integers(0, 9), st.sampled_from(Answer), st.sampled_from([0.5, 5.0])),
        st.tuples(st.just("give_back"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 10.0, 30.0, LEASE])),
        st.tuples(st.just("open")),
        st.tuples(st.just("close")),
        st.tuples(st.just("limit"), st.none() | st.integers(1, 4)),
    ),
    max_size=40,
)


class Sequence:
    """A sequence of calls, each of which is checked. `number` chooses one of the attempts under way."""

    def __init__(self, settings: DownstreamSettings) -> None:
        self.downstream = Downstream(settings=settings)
        self.under_way: list[Permit] = []
        self.probes: list[int] = []

    def take(self, number: int) -> Permit | None:
        return self.under_way.pop(number % len(self.under_way)) if self.under_way else None

    def ask(self, is_retry: bool) -> None:
        before = self.downstream.health
        answer = self.downstream.ask(is_retry=is_retry)
        if isinstance(answer, Refusal):
            assert is_retry or answer.reason != "budget"
            return
        health, settings = self.downstream.health, self.downstream.settings
        self.begun(answer)
        if health.state == State.HALF_OPEN:
            assert before.probe_due(self.downstream.settings, self.downstream.now) <= self.downstream.now
            return
        callers, allowed = health.callers(settings, MOST), health.allowed_retries(settings)
        assert callers is None or len(health.permits) <= callers
        assert not is_retry or allowed is None or allowed >= 1

    def ask_again(self, number: int) -> None:
        """The answer was lost, and another container has written since."""
        if lost := self.take(number):
            count = len(self.downstream.health.permits)
            again = self.downstream.ask(again=lost)
            if isinstance(again, Permit):
                self.probes = [epoch for epoch in self.probes if epoch != lost.epoch]
                self.begun(again)
                assert len(self.downstream.health.permits) <= max(count, MOST)

    def begun(self, permit: Permit) -> None:
        health = self.downstream.health
        assert not health.forced
        assert health.state != State.OPEN
        assert permit.epoch == health.epoch
        self.under_way.append(permit)
        if health.state == State.HALF_OPEN:
            self.probes.append(health.epoch)

    def report(self, number: int, answer: Answer, seconds: float) -> None:
        before = self.downstream.health
        if permit := self.take(number):
            counts = self.downstream.report(permit, answer, seconds)
            assert not counts or not self.downstream.settings.breaker.enabled or before.state == State.CLOSED

    def give_back(self, number: int) -> None:
        if permit := self.take(number):
            self.downstream.give_back(permit)

    def wait(self, seconds: float) -> None:
        self.downstream.wait(seconds)

    def open(self) -> None:
        self.downstream.health = force_open(self.downstream.health, self.downstream.now, "planned")

    def close(self) -> None:
        self.downstream.health = force_closed(self.downstream.health, self.downstream.now, "repaired")

    def limit(self, callers: int | None) -> None:
        self.downstream.health = set_limit(self.downstream.health, callers)


@given(SETTINGS, STEPS)
def test_the_rules_hold_in_every_sequence_of_calls(settings: DownstreamSettings, steps: list[tuple[Any, ...]]) -> None:
    sequence = Sequence(settings)
    for step, *arguments in steps:
        before = sequence.downstream.health
        getattr(sequence, step)(*arguments)
        health = sequence.downstream.health
        assert before.state == health.state or before.epoch < health.epoch
        assert not health.forced or health.state == State.OPEN
        assert health.forced or not before.forced or step == "close"
        assert health.limit_set == before.limit_set or step == "limit"
        assert 0 <= health.limit <= MOST
        assert 0 <= health.spent <= settings.budget.capacity
        assert len(health.outcomes) <= max(settings.breaker.window_calls, settings.breaker.failure_threshold)
        assert len(set(sequence.probes)) == len(sequence.probes)
