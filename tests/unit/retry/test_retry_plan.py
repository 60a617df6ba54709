"""The plan for a request after a failed attempt: a retry or a dead-letter message."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.retry.errors import Failure
from slotkeeper.retry.plan import MAX_TOTAL_ATTEMPTS, AttemptHistory, DeadLetter, RetryAt, plan_retry
from slotkeeper.retry.policy import BUILT_IN, MAX_AGE_SECONDS, MAX_ATTEMPTS, Policy, Rule

NOW = 1_800_000_000.0
FAILED = Failure(("Timeout", "Retryable"), "Timeout: no answer")
LIMITED = Failure(("RateLimited", "Retryable"), "RateLimited: 429")
PLAIN = Policy(
    Rule("exponential", "none", base=30, cap=3600),
    {"RateLimited": Rule("fixed", "none", base=10, cap=10, counts=False)},
)


def after(made: int, uncounted: int = 0, gap: float = 1.0) -> AttemptHistory:
    """The history of a request whose attempt number `made` just failed."""
    return AttemptHistory("request-1", tuple(NOW - gap * (made - number) for number in range(1, made + 1)), uncounted)


def asked(retry_after: Any, failure: Failure = FAILED) -> Failure:
    return Failure(failure.types, failure.reason, retry_after)


failures = st.builds(
    Failure,
    types=st.lists(st.sampled_from(["Timeout", "RateLimited", "Died", "Unheard"]), max_size=3).map(tuple),
    reason=st.text(min_size=1, max_size=20),
    retry_after=st.none() | st.floats() | st.integers(-(10**400), 10**400) | st.text(max_size=5),
    final=st.booleans(),
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    base = draw(st.floats(0.001, 10_000))
    return Rule(
        draw(st.sampled_from(["exponential", "linear", "fixed"])),
        draw(st.sampled_from(["none", "full", "equal", "decorrelated"])),
        base,
        base * draw(st.floats(1, 200)),
        draw(st.integers(1, MAX_ATTEMPTS)),
        draw(st.floats(0.001, MAX_AGE_SECONDS)),
        draw(st.booleans()),
    )


policies = st.builds(Policy, rules(), st.dictionaries(st.sampled_from(["Timeout", "RateLimited", "Died"]), rules()))


@st.composite
def histories(draw: st.DrawFn) -> AttemptHistory:
    """Histories of any size, including those of wrong clocks."""
    made = draw(st.integers(1, 40) | st.integers(1, 3000))
    spread = draw(st.floats(0, 1000) | st.floats(-1e7, 1e7))
    attempts = tuple(NOW - spread * (made - number) / made for number in range(1, made + 1))
    return AttemptHistory(draw(st.text(max_size=10)), attempts, draw(st.integers(0, made - 1)))


@given(failures, histories(), policies)
def test_a_retry_is_never_before_now_and_never_later_than_the_age_allows(
    error: Failure, history: AttemptHistory, policy: Policy
) -> None:
    plan = plan_retry(error, history, policy, NOW)
    latest = min(NOW, *history.attempts) + policy.rule_for(error.types).max_age
    assert isinstance(plan, DeadLetter) or NOW <= plan.when <= latest + 1e-6


@given(failures, histories(), policies)
def test_r4_a_request_ends_exactly_when_a_bound_is_reached(
    error: Failure, history: AttemptHistory, policy: Policy
) -> None:
    plan = plan_retry(error, history, policy, NOW)
    rule, made = policy.rule_for(error.types), len(history.attempts)
    used_up = made >= MAX_TOTAL_ATTEMPTS or (rule.counts and made - history.uncounted >= rule.max_attempts)
    expected = {"Poison"} if error.final else {"AttemptsExhausted"} if used_up else {"TooOld", "RetryAt"}
    code = plan.code if isinstance(plan, DeadLetter) else "RetryAt"
    assert (code in expected, isinstance(plan, RetryAt) or error.reason in plan.reason) == (True, True)


def test_f25_jitter_comes_from_the_request_and_the_attempt_and_nothing_else() -> None:
    one, other = (AttemptHistory(key, (NOW - 5,)) for key in ("request-1", "request-2"))
    again = AttemptHistory("request-1", (NOW - 5000,))
    planned = [plan_retry(FAILED, history, BUILT_IN, NOW) for history in (one, again, other)]
    assert (planned[0] == planned[1], planned[0] == planned[2]) == (True, False)


def test_f22_poison_is_dead_lettered_at_its_first_attempt() -> None:
    poison = Failure(("Poison",), "Poison: no such field", 5.0, final=True)
    assert plan_retry(poison, after(1), BUILT_IN, NOW) == DeadLetter("Poison", "Poison: no such field")


def test_r3_the_attempt_that_reaches_the_rules_limit_is_the_last() -> None:
    assert (type(plan_retry(FAILED, after(7), PLAIN, NOW)), plan_retry(FAILED, after(8), PLAIN, NOW)) == (
        RetryAt,
        DeadLetter(
            "AttemptsExhausted",
            "8 attempts have failed, and the policy allows 8; the last error: Timeout: no answer",
        ),
    )


def test_f21_uncounted_attempts_do_not_use_up_the_limit() -> None:
    last, one_more = (plan_retry(FAILED, after(made, uncounted=20), PLAIN, NOW) for made in (28, 27))
    assert (type(last), type(one_more)) == (DeadLetter, RetryAt)


def test_r3_no_request_is_retried_forever_even_if_no_attempt_counts() -> None:
    endless = asked(0, LIMITED)
    before, at = (plan_retry(endless, after(made, made - 1), PLAIN, NOW) for made in (499, 500))
    assert (before, at) == (
        RetryAt(NOW, False),
        DeadLetter(
            "AttemptsExhausted",
            "500 attempts were made, of which 0 count; no policy allows more than 500; the last error: "
            "RateLimited: 429",
        ),
    )


@pytest.mark.parametrize(
    ("failure", "starts"),
    [
        (LIMITED, (NOW - 86_395,)),
        (FAILED, (NOW - 1, NOW - 90_000, NOW)),
        (asked(86_401), (NOW + 86_400,)),
        (asked(86_401), (NOW,)),
        (asked(1e300), (NOW,)),
    ],
    ids=["uncounted", "earliest start not first", "start in the future", "retry-after", "endless retry-after"],
)
def test_a_request_beyond_the_maximum_age_ends(failure: Failure, starts: tuple[float, ...]) -> None:
    plan = plan_retry(failure, AttemptHistory("k", starts), PLAIN, NOW)
    assert isinstance(plan, DeadLetter)
    assert (plan.code, "Retry-After" in plan.reason) == ("TooOld", failure.retry_after is not None)


INVALID = [nan, inf, -inf, 10**400, "Wed, 21 Oct 2015 07:28:00 GMT", "", [], b"x"]


@pytest.mark.parametrize(
    ("failure", "history", "wait", "counted"),
    [
        *((asked(seconds), after(1), float(seconds), True) for seconds in (0, 0.5, 29, 3601, 86_398, "45")),
        *((asked(seconds), after(1), 0, True) for seconds in (-1, -1e300, -0.0)),
        *((asked(seconds), after(1), 30, True) for seconds in INVALID),
        (FAILED, after(5, uncounted=3), 480, True),
        (asked(77, LIMITED), after(3), 77, False),
        (LIMITED, after(30), 10, False),
    ],
)
def test_the_wait_is_retry_after_if_it_is_a_number_else_the_policys(
    failure: Failure, history: AttemptHistory, wait: float, counted: bool
) -> None:
    """It replaces the policy's wait, is not capped, and in the past means now. A failure that does not count never
    exhausts the attempts, and makes the wait grow too."""
    assert plan_retry(failure, history, PLAIN, NOW) == RetryAt(NOW + wait, counted)


def test_no_retry_starts_after_the_maximum_age() -> None:
    policy = Policy(Rule("fixed", "none", base=60, cap=60, max_age=600))
    in_time, too_late = (plan_retry(FAILED, AttemptHistory("k", (NOW - age, NOW)), policy, NOW) for age in (540, 541))
    assert (in_time, isinstance(too_late, DeadLetter)) == (RetryAt(NOW + 60, True), True)


@pytest.mark.parametrize("made", [1, 2, 5, 50])
def test_a_failure_that_does_not_count_because_of_an_outage_waits_as_any_other(made: int) -> None:
    outage = Failure(FAILED.types, FAILED.reason, counts=False)
    for gap in (1.0, 600.0):
        expected = PLAIN.default.delay("request-1", made)
        assert plan_retry(outage, after(made, made - 1, gap), PLAIN, NOW) == RetryAt(NOW + expected, counted=False)
        soon = Failure(FAILED.types, FAILED.reason, 7, counts=False)
        assert plan_retry(soon, after(made, made - 1, gap), PLAIN, NOW) == RetryAt(NOW + 7, counted=False)


def test_r4_the_reason_contains_the_numbers_of_the_decision() -> None:
    young = Policy(Rule("fixed", "none", base=30, cap=30, max_attempts=2, max_age=60))
    plans = [
        plan_retry(FAILED, after(5, uncounted=3), young, NOW),
        plan_retry(FAILED, AttemptHistory("request-1", (NOW - 40,)), young, NOW),
        plan_retry(asked(90), after(1), young, NOW),
    ]
    assert [plan.reason.removesuffix(f"; the last error: {FAILED.reason}") for plan in plans] == [
        "2 attempts have failed, and the policy allows 2 (3 more do not count)",
        "attempt 2 would start 70 s after the first (30 s from now, by the policy), and the policy allows 60 s",
        "attempt 2 would start 90 s after the first (90 s from now, by the downstream's Retry-After), "
        "and the policy allows 60 s",
    ]
