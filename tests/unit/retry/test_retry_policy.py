"""The rules of a retry policy and the waits that they produce."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.retry.policy import BUILT_IN, Policy, Rule, decorrelated, share

KEYS = st.text(max_size=20)
NUMBERS = st.integers(1, 5000)
BASES = st.floats(0.001, 10_000)
BACKOFFS = st.sampled_from(["exponential", "linear", "fixed"])
JITTERS = st.sampled_from(["none", "full", "equal", "decorrelated"])
MANY = [f"request-{number}" for number in range(400)]


@st.composite
def rules(draw: st.DrawFn, jitter: st.SearchStrategy[Any] = JITTERS) -> Rule:
    base = draw(BASES)
    return Rule(draw(BACKOFFS), draw(jitter), base, base * draw(st.floats(1, 200)))


def plain(rule: Rule) -> list[float]:
    return [rule.delay("any", attempt) for attempt in range(1, 6)]


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        ("exponential", [30, 60, 120, 240, 300]),
        ("linear", [30, 60, 90, 120, 150]),
        ("fixed", [30, 30, 30, 30, 30]),
    ],
)
def test_a_wait_starts_at_base_grows_by_its_backoff_and_stops_at_cap(backoff: Any, waits: list[float]) -> None:
    assert plain(Rule(backoff, "none", base=30, cap=300)) == waits


@given(rules(st.just("none")), NUMBERS)
def test_without_jitter_no_wait_is_shorter_than_the_one_before(rule: Rule, attempt: int) -> None:
    assert rule.base <= rule.delay("k", attempt) <= rule.delay("k", attempt + 1) <= rule.cap


@given(rules(), KEYS, NUMBERS)
def test_no_wait_is_below_zero_or_above_cap(rule: Rule, key: str, attempt: int) -> None:
    assert 0 <= rule.delay(key, attempt) <= rule.cap


def test_a_share_does_not_change_between_releases() -> None:
    assert share("request-1", 3) == pytest.approx(0.1312, abs=0.0001)


def test_full_jitter_spreads_the_requests_evenly_from_zero_to_the_wait() -> None:
    rule = Rule("fixed", "full", base=100, cap=100)
    tenths = [int(rule.delay(key, 1) // 10) for key in MANY]
    assert all(20 <= tenths.count(tenth) <= 60 for tenth in range(10))


def test_equal_jitter_waits_at_least_half() -> None:
    delays = [Rule("fixed", "equal", base=100, cap=100).delay(key, 1) for key in MANY]
    assert (50 <= min(delays) < 52, 98 < max(delays) <= 100) == (True, True)


@given(rules(st.just("decorrelated")), KEYS)
def test_decorrelated_jitter_stays_between_base_and_three_times_the_wait_before(rule: Rule, key: str) -> None:
    chain = [rule.base, *(rule.delay(key, attempt) for attempt in range(1, 12))]
    assert all(rule.base <= wait <= min(rule.cap, 3 * before) * 1.000001 for before, wait in pairwise(chain))


def test_decorrelated_jitter_uses_the_share_of_each_earlier_attempt() -> None:
    shares = {1: 0.0, 2: 1.0, 3: 0.5}
    assert [decorrelated(attempt, 1, 1000, shares.__getitem__) for attempt in (1, 2, 3)] == [1, 3, 5]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("base", 0, "above 0"),
        ("base", -1.0, "above 0"),
        ("base", nan, "above 0"),
        ("cap", 29.9, "at least base, which is 30"),
        ("cap", inf, "at most 2592000"),
        ("max_attempts", 0, "from 1 to 100"),
        ("max_attempts", 101, "from 1 to 100"),
        ("max_age", 0, "above 0"),
        ("max_age", 2592001, "at most 2592000 (30 days)"),
        ("max_age", nan, "above 0"),
    ],
)
def test_an_invalid_rule_names_field_value_and_the_expected_value(field: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"^Rule\.{field} must be .*{re.escape(expected)}") as refusal:
        Rule(**{field: value})
    assert str(refusal.value).endswith(f"got {value!r}")


def test_the_most_specific_type_that_has_a_rule_decides() -> None:
    narrow, wide = Rule(max_attempts=2), Rule(max_attempts=3)
    policy = Policy(errors={"OSError": wide, "FullDisk": narrow})
    asked = [("FullDisk", "OSError"), ("Unheard", "OSError"), ("Unheard",), ()]
    assert [policy.rule_for(types) for types in asked] == [narrow, wide, policy.default, policy.default]


def test_the_built_in_policy_is_as_documented() -> None:
    assert (BUILT_IN.default, BUILT_IN.errors) == (
        Rule("exponential", "full", 30, 3600, 8, 86400, counts=True),
        {
            "RateLimited": Rule(counts=False),
            "CredentialsRefused": Rule(counts=False),
            "Died": Rule(max_attempts=5),
        },
    )


def test_omitted_fields_are_inherited() -> None:
    document = {
        "default": {"base_seconds": 2, "cap_seconds": 20, "max_age_seconds": 600, "max_attempts": 3.0},
        "errors": {"Slow": {"backoff": "linear", "base_seconds": 5}, "RateLimited": {"jitter": "equal"}},
    }
    default = Rule(base=2, cap=20, max_attempts=3, max_age=600)
    assert Policy.from_document(document) == Policy(
        default,
        {
            "Slow": Rule("linear", base=5, cap=20, max_attempts=3, max_age=600),
            "RateLimited": Rule(jitter="equal", base=2, cap=20, max_attempts=3, max_age=600, counts=False),
            "CredentialsRefused": replace(default, counts=False),
            "Died": default,
        },
    )


def test_no_default_that_is_valid_by_itself_contradicts_a_built_in_rule() -> None:
    least = Policy.from_document({"default": {"base_seconds": 0.1, "cap_seconds": 0.1, "max_attempts": 1}})
    most = Policy.from_document({"default": {"base_seconds": 3e5, "cap_seconds": 3e5, "max_attempts": 100}})
    assert (least.errors["Died"].max_attempts, most.errors["Died"].max_attempts) == (1, 5)
