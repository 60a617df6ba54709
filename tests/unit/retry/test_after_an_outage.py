"""After an outage or a repair, nothing of what protected the downstream delays the work: budget and spread."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotkeeper.retry.deferral import MAX_SPREAD_SECONDS, spread_seconds
from slotkeeper.retry.downstream.health import (
    Answer,
    BreakerSettings,
    DownstreamSettings,
    Health,
    Permit,
    Refusal,
    State,
)
from slotkeeper.retry.downstream.rules import ask, report

MOST = 100
SETTINGS = DownstreamSettings(breaker=BreakerSettings(enabled=False))
NOW = 1_800_000_000.0


def begin(health: Health, number: int, *, is_retry: bool = True) -> tuple[Health, Permit | Refusal]:
    return ask(health, SETTINGS, Permit(str(number), NOW + 60, is_retry=is_retry), MOST, NOW)


def retries_that_end(answer: Answer, count: int) -> Health:
    health = Health(window=NOW)
    for number in range(count):
        health, permit = begin(health, number)
        assert isinstance(permit, Permit)
        health, _ = report(health, SETTINGS, permit, answer, 1.0, MOST, NOW)
    return health


def test_retries_under_way_are_limited_by_the_callers_and_not_by_the_budget() -> None:
    health = Health(window=NOW)
    for number in range(MOST):
        health, permit = begin(health, number)
        assert isinstance(permit, Permit)
    _, refusal = begin(health, MOST)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "concurrency"


@pytest.mark.parametrize("answer", [Answer.SUCCEEDED, Answer.UNKNOWN])
def test_retries_that_do_not_fail_use_up_no_budget(answer: Answer) -> None:
    assert isinstance(begin(retries_that_end(answer, 50), 50)[1], Permit)


def test_retries_that_fail_use_up_the_budget_and_first_attempts_never_need_it() -> None:
    health = retries_that_end(Answer.FAILED, SETTINGS.budget.capacity)
    _, refusal = begin(health, 50)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "budget"
    assert isinstance(begin(health, 51, is_retry=False)[1], Permit)


@pytest.mark.parametrize(
    ("waiting", "per_second", "seconds"),
    [
        (0, 2.0, 0.0),
        (10, 2.0, 5.0),
        (600, 2.0, MAX_SPREAD_SECONDS),
        (100_000, 2.0, 100_000 / 15),
        (100_000, 400.0, 100_000 / 15),
    ],
)
def test_held_back_messages_return_in_a_minute_or_at_the_rate_that_the_containers_may_handle(
    waiting: int, per_second: float, seconds: float
) -> None:
    assert spread_seconds(waiting, per_second, 15.0) == pytest.approx(seconds)


def test_while_the_breaker_is_open_messages_return_as_fast_as_the_downstream_took_them_before() -> None:
    settings = DownstreamSettings()
    health = Health(state=State.OPEN, since=NOW, probe_at=NOW + 30, window=NOW, limit=10, seconds=0.5)
    _, refusal = ask(health, settings, Permit("a", NOW + 60), MOST, NOW)
    _, forced = ask(replace(health, forced=True), settings, Permit("a", NOW + 60), MOST, NOW)
    assert isinstance(refusal, Refusal)
    assert isinstance(forced, Refusal)
    assert refusal.per_second == forced.per_second == 80.0
