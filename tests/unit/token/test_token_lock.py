"""Instances that share one token, one after the other; at once they are judged in tests/races."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from slotkeeper.token import (
    DelegateRefresh,
    MalformedToken,
    Refreshed,
    StillUnauthorized,
    Timing,
    TokenRefused,
    TokenTimeout,
    Unauthorized,
    Waited,
)
from tests.support.boundary import Calls
from tests.unit.token_instances import NAME, NOW, QUICK, Instances

# -------------------------------------------------------------------------------------------------- one after the other


def test_the_first_instance_asks_the_api_and_the_others_use_its_token(instances: Instances) -> None:
    tokens = [instances.new().get() for _ in range(3)]
    assert (tokens, instances.api.posts) == (["token-1"] * 3, 1)


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


def test_t1_one_invalidation_seen_by_all_leads_to_one_post(instances: Instances) -> None:
    tokens = [instances.new() for _ in range(3)]
    for token in tokens:
        token.get()
    for token in tokens:
        token.invalidate("token-1")
    assert ([token.get() for token in tokens], instances.api.posts) == (["token-2"] * 3, 2)


def test_f31_a_401_that_belongs_to_an_older_token_leaves_the_new_one_alone(instances: Instances) -> None:
    token = instances.new()
    token.get()
    token.invalidate("token-1")
    token.get()
    token.invalidate("token-1")
    assert (token.get(), instances.api.posts) == ("token-2", 2)


def test_f31_a_late_401_of_an_older_token_does_not_bring_back_the_one_after_it(instances: Instances) -> None:
    token = instances.new()
    for number in (1, 2):
        token.get()
        token.invalidate(f"token-{number}")
    token.invalidate("token-1")
    assert token.get() == "token-3"


def test_a_token_told_of_from_outside_can_be_invalid_too(instances: Instances) -> None:
    instances.new().get()
    token = instances.new()
    token.invalidate("token-1")
    assert token.get() == "token-2"


def test_an_api_that_gives_the_same_token_again_is_asked_once(instances: Instances) -> None:
    tokens = [instances.new(authenticate=lambda _seconds: "same") for _ in range(2)]
    for token in tokens:
        token.get()
        token.invalidate("same")
    assert [token.get() for token in tokens] == ["same"] * 2
    assert instances.raw_item()["generation"] == {"N": "2"}


def test_a_refresh_is_reported_with_the_wait_and_nothing_else_is(instances: Instances) -> None:
    instances.new().get()
    instances.new().get()
    refreshed, waited = instances.events
    assert isinstance(refreshed, Refreshed)
    assert isinstance(waited, Waited)
    assert refreshed.generation == 1


# ----------------------------------------------------------------------------------------------------------------- call


def test_call_repeats_once_after_a_401_with_another_token(instances: Instances) -> None:
    token = instances.new()
    token.get()
    instances.api.live = "somebody else's"
    assert (token.call(instances.api.ask), instances.api.posts) == ("answer", 2)


def test_call_repeats_with_a_token_that_the_api_has_renewed_under_the_same_text(instances: Instances) -> None:
    live: list[str] = []

    def renew(_seconds: float) -> str:
        live.append("renewed")
        return "the same text"

    def ask(_token: str) -> str:
        if not live:
            raise Unauthorized
        return live.pop()

    token = instances.new(authenticate=renew)
    assert [token.call(ask) for _ in range(3)] == ["renewed"] * 3
    assert instances.raw_item()["generation"] == {"N": "3"}


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
    """It was idle for the whole life of a token: the one that it finds stored has died, and nobody has noticed yet."""
    idle = instances.new()
    idle.get()
    busy = instances.new()
    busy.invalidate("token-1")
    busy.get()
    instances.api.live = "somebody else's"
    assert (idle.call(instances.api.ask), instances.api.posts) == ("answer", 3)


def test_a_new_token_that_is_dead_already_is_replaced_if_the_api_can_be_asked(instances: Instances) -> None:
    def stillborn(seconds: float) -> str:
        token = instances.api.authenticate(seconds)
        if instances.api.posts == 2:
            instances.api.live = "a late POST's"
        return token

    token = instances.new(authenticate=stillborn, still_valid=instances.api.accepts)
    token.get()
    instances.api.live = "somebody else's"
    assert (token.call(instances.api.ask), instances.api.posts) == ("answer", 3)


def test_the_seconds_that_the_first_token_left_are_there_for_the_next_one(instances: Instances) -> None:
    reader = instances.new()
    reader.get()
    instances.api.live = "nobody's"
    assert reader.call(instances.api.ask, within=15) == "answer"


def test_call_asks_with_three_tokens_at_most(instances: Instances) -> None:
    idle = instances.new()
    idle.get()
    asked: list[str] = []

    def always_401(value: str) -> str:
        asked.append(value)
        other = instances.new()  # somebody else refreshes each time
        other.invalidate(value)
        other.get()
        raise Unauthorized

    with pytest.raises(StillUnauthorized, match="again with a newer token"):
        idle.call(always_401)
    assert asked == ["token-1", "token-2", "token-3"]


def test_a_request_that_is_always_answered_401_costs_nobodys_token_if_the_api_can_be_asked(
    instances: Instances,
) -> None:
    token = instances.new(still_valid=instances.api.accepts)
    good = instances.new()
    good.get()

    def always_401(_value: str) -> str:
        raise Unauthorized

    for _ in range(3):
        with pytest.raises(StillUnauthorized, match="accepts the token"):
            token.call(always_401)
    assert (instances.api.posts, good.call(instances.api.ask), "refresh_lock" in instances.raw_item()) == (
        1,
        "answer",
        False,
    )


def test_f31_nor_does_it_where_another_function_refreshes(instances: Instances) -> None:
    asked: list[str] = []
    reader = instances.new(authenticate=DelegateRefresh(asked.append), still_valid=instances.api.accepts)
    instances.new().get()

    def always_401(_value: str) -> str:
        raise Unauthorized

    with pytest.raises(StillUnauthorized, match="accepts the token"):
        reader.call(always_401)
    assert (asked, "refresh_lock" in instances.raw_item()) == ([], False)


def test_a_probe_that_fails_does_not_stand_in_the_way(instances: Instances) -> None:
    def broken(_token: str, _seconds: float) -> bool:
        raise TimeoutError

    token = instances.new(still_valid=broken)
    token.get()
    instances.api.live = ""
    assert token.call(instances.api.ask) == "answer"


def test_a_request_that_is_always_answered_401_costs_one_refresh_an_interval_if_not(instances: Instances) -> None:
    token = instances.new(timing=Timing(clock_skew=0, min_interval=60, patience=8, store=1))
    token.get()
    token.invalidate("token-1")
    with pytest.raises(TokenTimeout, match="younger than the 60 s between two refreshes"):
        token.get(within=0)
    instances.time += 60
    assert (token.get(), instances.api.posts) == ("token-2", 2)


# ---------------------------------------------------------------------------------------------------- what others wrote


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
def test_an_item_of_other_types_is_named_not_guessed_at(instances: Instances, attribute: str, value: Any) -> None:
    instances.put(**{attribute: value})
    with pytest.raises(MalformedToken, match=f"item 'bot' of the token table: {attribute} is not of its"):
        instances.new().get()


@pytest.mark.parametrize("generation", [0, -1])
def test_an_item_whose_generation_somebody_has_reset_is_refreshed_like_any_other(
    instances: Instances, generation: int
) -> None:
    instances.put(access_token={"S": "dead"}, generation={"N": str(generation)})
    assert instances.new().call(instances.api.ask) == "answer"


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
