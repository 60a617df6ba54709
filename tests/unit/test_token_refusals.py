"""What happens when the API gives no token."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.token_lock import (
    AuthenticationFailed,
    AuthenticationRefused,
    Event,
    Timing,
    TokenRefused,
)
from tests.support.boundary import refuse
from tests.unit.tokens import BRIEF, NAME, NOW, QUICK, Instances


def test_f35_wrong_credentials_cost_one_post_and_all_fail_fast_with_the_reason(instances: Instances) -> None:
    instances.api.down = "the credentials are wrong"
    for _ in range(5):
        with pytest.raises(TokenRefused, match="the API gave no token: the credentials are wrong") as error:
            instances.new().get()
        assert error.value.until == NOW + QUICK.refusal
    assert (instances.api.posts, instances.events[0]) == (1, AuthenticationFailed("the credentials are wrong"))


def test_f35_a_refusal_lasts_for_as_long_by_the_fastest_clock_too(instances: Instances) -> None:
    instances.api.down = "out of order"
    with pytest.raises(TokenRefused):
        instances.new(timing=Timing(clock_skew=2, refusal=30)).get()
    assert float(instances.raw_item()["refused_until"]["N"]) == NOW + 30 + 4


def test_f35_a_refusal_that_is_throttled_is_written_all_the_same(instances: Instances) -> None:
    def down(_seconds: float) -> str:
        refuse(instances.dynamodb, "UpdateItem", "ThrottlingException")
        raise AuthenticationRefused("out of order")

    with pytest.raises(TokenRefused, match="out of order"):
        instances.new(authenticate=down).get()
    assert instances.raw_item()["refused_reason"] == {"S": "out of order"}


def test_f35_a_refusal_that_cannot_be_written_is_told_and_the_lock_stays(instances: Instances) -> None:
    def down(_seconds: float) -> str:
        refuse(instances.dynamodb, "UpdateItem", "ThrottlingException", times=99)
        raise AuthenticationRefused("out of order")

    with pytest.raises(TokenRefused, match="out of order"):
        instances.new(authenticate=down, timing=BRIEF).get()
    assert "refresh_lock" in instances.raw_item()


def test_f35_a_refusal_is_written_though_the_callers_own_report_fails(instances: Instances) -> None:
    instances.api.down = "out of order"

    def broken(_event: Event) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        instances.new(report=broken).get()
    assert instances.raw_item()["refused_reason"] == {"S": "out of order"}


def test_a_refusal_of_a_holder_that_was_overtaken_binds_nobody_not_even_itself(instances: Instances) -> None:
    other = instances.new()

    def slow_and_refused(_seconds: float) -> str:
        instances.time += QUICK.lease
        other.get()
        raise AuthenticationRefused("too slow")

    assert instances.new(authenticate=slow_and_refused).get() == "token-1"
    assert "refused_until" not in instances.raw_item()


def test_after_a_refusal_the_api_is_asked_again_and_the_reason_is_gone(instances: Instances) -> None:
    instances.api.down = "out of order"
    with pytest.raises(TokenRefused):
        instances.new().get()
    instances.api.down = ""
    instances.time += QUICK.refusal
    assert instances.new().get() == "token-2"
    assert instances.raw_item().keys() == {"token_name", "access_token", "generation", "stored_at", "refresh_seconds"}


def test_f35_whoever_looked_before_another_was_refused_does_not_ask_the_api_after_it(instances: Instances) -> None:
    seen = instances.table.read(NAME)
    instances.api.down = "out of order"
    with pytest.raises(TokenRefused):
        instances.new().get()
    assert not instances.table.take(NAME, seen, "late", NOW + 10)


@pytest.mark.parametrize("answer", ["", None, 7])
def test_an_answer_without_a_token_is_a_refusal(instances: Instances, answer: Any) -> None:
    with pytest.raises(TokenRefused, match="its answer held no token"):
        instances.new(authenticate=lambda _seconds: answer).get()


def test_an_unexpected_error_of_the_callable_is_named_without_its_text(instances: Instances) -> None:
    def leaky(_seconds: float) -> str:
        raise RuntimeError("client_secret=hunter2")

    with pytest.raises(TokenRefused, match="asking for it failed with RuntimeError") as error:
        instances.new(authenticate=leaky).get()
    assert "hunter2" not in str(error.value) + str(instances.raw_item())
