"""Refusals: the API gives no token, or an instance cannot ask for one."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.token import (
    AuthenticationFailed,
    AuthenticationNotAttempted,
    AuthenticationRefused,
    RefreshAbandoned,
    TokenEvent,
    TokenRefused,
    TokenTimeout,
)
from slotkeeper.token.timing import OWN_FAILURE_PAUSE
from tests.simulation.account.boundary import refuse
from tests.unit.token_instances import BRIEF, NAME, NOW, QUICK, Instances, VirtualTime, lock_of_another


def test_f35_wrong_credentials_cost_one_post_and_all_fail_fast_with_the_reason(instances: Instances) -> None:
    instances.api.down = "the credentials are wrong"
    for _ in range(5):
        with pytest.raises(TokenRefused, match="the API gave no token: the credentials are wrong") as error:
            instances.new().get()
        assert error.value.until == NOW + QUICK.refusal
    assert (instances.api.posts, instances.events[0]) == (1, AuthenticationFailed("the credentials are wrong"))


def test_f35_a_refusal_that_cannot_be_written_is_raised_and_keeps_the_lock(instances: Instances) -> None:
    def down(_seconds: float) -> str:
        refuse(instances.dynamodb, "UpdateItem", "ThrottlingException", times=99)
        raise AuthenticationRefused("out of order")

    with pytest.raises(TokenRefused, match="out of order"):
        instances.new(authenticate=down, timing=BRIEF).get()
    assert "refresh_lock" in instances.raw_item()


def test_f35_a_refusal_is_written_even_if_the_report_fails(instances: Instances) -> None:
    instances.api.down = "out of order"

    def broken(_event: TokenEvent) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        instances.new(report=broken).get()
    assert instances.raw_item()["refused_reason"] == {"S": "out of order"}


def test_f35_a_lock_is_refused_if_the_api_refused_since_the_read(instances: Instances) -> None:
    seen = instances.table.read(NAME)
    instances.api.down = "out of order"
    with pytest.raises(TokenRefused):
        instances.new().get()
    assert not instances.table.acquire(NAME, seen, "late", NOW + 10)


@pytest.mark.parametrize("answer", ["", None, 7])
def test_an_answer_without_a_token_is_a_refusal(instances: Instances, answer: Any) -> None:
    with pytest.raises(TokenRefused, match="its answer contained no token"):
        instances.new(authenticate=lambda _seconds: answer).get()


def test_an_unexpected_error_of_the_callable_is_named_without_its_text(instances: Instances) -> None:
    def leaky(_seconds: float) -> str:
        raise RuntimeError("client_secret=hunter2")

    with pytest.raises(TokenRefused, match="requesting it failed with RuntimeError") as error:
        instances.new(authenticate=leaky).get()
    assert "hunter2" not in str(error.value) + str(instances.raw_item())


# ---------------------------------------------------------------------------------------------------------- Retry-After


@pytest.mark.parametrize(("retry_after", "seconds"), [(1.0, 1.0), (600.0, 600.0), (10.0**6, 3600.0)])
def test_f35_retry_after_stops_every_instance(instances: Instances, retry_after: float, seconds: float) -> None:
    def busy(_seconds: float) -> str:
        raise AuthenticationRefused("HTTP 429", retry_after)

    with pytest.raises(TokenRefused, match="429") as refused:
        instances.new(authenticate=busy).get()
    assert refused.value.until == NOW + seconds
    instances.time += seconds - 0.5
    with pytest.raises(TokenRefused, match="429"):
        instances.new().get()
    instances.time += 0.5
    assert (instances.new().get(), instances.api.posts) == ("token-1", 1)


# ------------------------------------------------------------------------------------------------------- local failures


def unreadable(_seconds: float) -> str:
    raise AuthenticationNotAttempted("the credentials cannot be read: ThrottlingException")


@pytest.mark.usefixtures("virtual_time")
def test_t2_a_local_failure_does_not_stop_other_instances(instances: Instances) -> None:
    with pytest.raises(TokenTimeout, match="this instance could not call the API: the credentials cannot be read"):
        instances.new(authenticate=unreadable, timing=BRIEF).get(within=2.5)
    assert instances.raw_item() == {"token_name": {"S": NAME}}
    assert (instances.new().get(), instances.api.posts) == ("token-1", 1)
    assert any(isinstance(event, RefreshAbandoned) for event in instances.events)
    assert not any(isinstance(event, AuthenticationFailed) for event in instances.events)


def test_t2_an_instance_takes_no_lock_for_a_while_after_a_local_failure(
    instances: Instances, monkeypatch: pytest.MonkeyPatch, virtual_time: VirtualTime
) -> None:
    monkeypatch.setattr("slotkeeper.token.refresh.OWN_FAILURE_PAUSE", 1000.0)
    tries: list[float] = []

    def failing(seconds: float) -> str:
        tries.append(seconds)
        return unreadable(seconds)

    token = instances.new(authenticate=failing, timing=BRIEF)
    for _ in range(2):
        with pytest.raises(TokenTimeout, match="could not call the API"):
            token.get(within=2.0)
    assert len(tries) == 1
    token._lock_pause = None
    with pytest.raises(TokenTimeout):
        token.get(within=2.0)
    assert len(tries) == 2


def test_a_local_failure_of_the_refresher_is_stored_for_its_callers(instances: Instances) -> None:
    lock_of_another(instances, NOW + 10)
    with pytest.raises(TokenRefused, match="cannot be read") as refused:
        instances.new(authenticate=unreadable).refresh(delegated_code="other")
    assert refused.value.until == NOW + OWN_FAILURE_PAUSE
