"""Instances that share one token, one after the other. tests/deployed/races has a hundred at the same time."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from slotkeeper.token import (
    AuthenticationRefused,
    MalformedToken,
    StillUnauthorized,
    Timing,
    TokenRefused,
    TokenTimeout,
    Unauthorized,
)
from tests.simulation.account.boundary import Calls
from tests.unit.token_instances import NAME, NOW, QUICK, Instances

# --------------------------------------------------------------------------------------------------- get and invalidate


def test_a_warm_get_costs_no_call(instances: Instances) -> None:
    token = instances.new()
    token.get()
    calls = Calls(instances.dynamodb)
    assert (token.get(), calls.made) == ("token-1", [])


def test_the_item_is_as_documented(instances: Instances) -> None:
    instances.new().get()
    item = instances.raw_item()
    assert float(item.pop("stored_at")["N"]) == NOW
    assert 0 <= float(item.pop("refresh_seconds")["N"]) < 60
    assert item == {"token_name": {"S": NAME}, "access_token": {"S": "token-1"}, "generation": {"N": "1"}}


def test_f31_a_401_of_an_older_token_does_not_invalidate_the_new_one(instances: Instances) -> None:
    token = instances.new()
    token.get()
    token.invalidate("token-1")
    token.get()
    token.invalidate("token-1")
    assert (token.get(), instances.api.posts) == ("token-2", 2)


def test_f31_a_late_401_of_an_older_token_does_not_restore_the_one_after_it(instances: Instances) -> None:
    token = instances.new()
    for number in (1, 2):
        token.get()
        token.invalidate(f"token-{number}")
    token.invalidate("token-1")
    assert token.get() == "token-3"


# ----------------------------------------------------------------------------------------------------------------- call


def always_401(_token: str) -> str:
    raise Unauthorized


def test_call_does_not_refresh_for_a_second_401(instances: Instances) -> None:
    token = instances.new()
    asked: list[str] = []

    def always_401(value: str) -> str:
        asked.append(value)
        raise Unauthorized

    with pytest.raises(StillUnauthorized, match="again with a newer token"):
        token.call(always_401)
    assert (asked, instances.api.posts, token.get()) == (["token-1", "token-2"], 2, "token-2")


def test_call_repeats_twice_for_an_instance_whose_token_is_older_than_the_dead_one(instances: Instances) -> None:
    """The instance was idle for the whole life of a token. The next stored token is invalid too, but not marked."""
    idle = instances.new()
    idle.get()
    busy = instances.new()
    busy.invalidate("token-1")
    busy.get()
    instances.api.live = "another's"
    assert (idle.call(instances.api.ask), instances.api.posts) == ("answer", 3)


@pytest.mark.parametrize(
    ("probes", "error", "reason"),
    [
        (False, StillUnauthorized, "again with a newer token"),
        # Each token was invalid, so the request need not be.
        (True, TokenTimeout, "with 3 tokens, each of which was replaced"),
    ],
)
def test_call_tries_at_most_three_tokens(
    instances: Instances, probes: bool, error: type[Exception], reason: str
) -> None:
    idle = instances.new(still_valid=instances.api.accepts if probes else None)
    idle.get()
    asked: list[str] = []

    def always_401(value: str) -> str:
        asked.append(value)
        other = instances.new()  # another instance refreshes each time
        other.invalidate(value)
        other.get()
        raise Unauthorized

    with pytest.raises(error, match=reason):
        idle.call(always_401)
    assert asked == ["token-1", "token-2", "token-3"]


def test_a_request_always_answered_401_invalidates_no_token_if_the_api_has_a_probe(
    instances: Instances,
) -> None:
    token = instances.new(still_valid=instances.api.accepts)
    good = instances.new()
    good.get()

    for _ in range(3):
        with pytest.raises(StillUnauthorized, match="accepts the token"):
            token.call(always_401)
    assert (instances.api.posts, good.call(instances.api.ask), "refresh_lock" in instances.raw_item()) == (
        1,
        "answer",
        False,
    )


@pytest.mark.parametrize(("retry_after", "seconds"), [(60.0, 60.0), (None, QUICK.refusal)])
def test_t1_a_probe_that_states_nothing_costs_no_token_before_the_next_one_after_the_pause(
    instances: Instances, retry_after: float | None, seconds: float
) -> None:
    def overloaded(_token: str, _seconds: float) -> bool:
        raise AuthenticationRefused("GET /me was answered with HTTP 429", retry_after)

    good, token = instances.new(), instances.new(still_valid=overloaded)
    good.get()
    for _ in range(2):
        with pytest.raises(TokenRefused, match="GET /me was answered with HTTP 429") as refused:
            token.call(always_401)
    assert (refused.value.until, good.call(instances.api.ask), instances.api.posts) == (NOW + seconds, "answer", 1)
    instances.api.live = ""
    instances.time += seconds
    assert (token.call(instances.api.ask), instances.api.posts) == ("answer", 2)


def test_a_failed_probe_does_not_block_the_refresh(instances: Instances) -> None:
    def broken(_token: str, _seconds: float) -> bool:
        raise TimeoutError

    token = instances.new(still_valid=broken)
    token.get()
    instances.api.live = ""
    assert token.call(instances.api.ask) == "answer"


def test_a_request_always_answered_401_costs_one_refresh_per_interval_without_a_probe(instances: Instances) -> None:
    token = instances.new(timing=Timing(clock_skew=0, min_interval=60, patience=8, store=1))
    token.get()
    token.invalidate("token-1")
    with pytest.raises(TokenTimeout, match="younger than the 60 s between two refreshes"):
        token.get(within=0)
    instances.time += 60
    assert (token.get(), instances.api.posts) == ("token-2", 2)


# ------------------------------------------------------------------------------------------------------ malformed items


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("access_token", {"N": "1"}),
        ("generation", {"N": "1.5"}),
        ("stored_at", {"S": "now"}),
        ("refused_until", {"BOOL": True}),
        ("refresh_seconds", {"S": "long"}),
        ("refused_reason", {"N": "1"}),
        ("refresh_lock", {"M": {"release_code": {"S": "a"}}}),
        ("refresh_lock", {"S": "a"}),
    ],
)
def test_an_item_of_other_types_is_reported_as_malformed(instances: Instances, attribute: str, value: Any) -> None:
    instances.put(**{attribute: value})
    with pytest.raises(MalformedToken, match=f"item 'bot' of the token table: {attribute} is not of its"):
        instances.new().get()


def test_f34_all_times_are_seconds(instances: Instances) -> None:
    instances.api.down = "out of order"
    with pytest.raises(TokenRefused):
        instances.new().get()
    assert float(instances.raw_item()["refused_until"]["N"]) == NOW + QUICK.refusal
    instances.table.acquire("other", instances.table.read("other"), "code", NOW + QUICK.lease)
    lock = instances.table.read("other").lock
    assert lock is not None
    assert lock.expires == NOW + QUICK.lease


def test_the_token_is_in_no_repr_and_no_log(instances: Instances, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="slotkeeper"):
        token = instances.new()
        token.get()
    shown = repr(instances.table.read(NAME)) + repr(token) + repr(token._cached) + repr(instances.events) + caplog.text
    assert "token-1" not in shown
