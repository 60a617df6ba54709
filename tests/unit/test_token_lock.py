"""Instances that share one token, one after the other; at once they are judged in tests/races."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from moto import mock_aws

from slotkeeper import token_lock, token_search
from slotkeeper.token_item import RefreshLock, TokenItem
from slotkeeper.token_lock import (
    AuthenticationFailed,
    AuthenticationRefused,
    Event,
    HandOver,
    MalformedToken,
    Refreshed,
    StillUnauthorized,
    StoredTooLate,
    Timing,
    TokenRefused,
    TokenTable,
    TokenTimeout,
    TookOver,
    Unauthorized,
    Waited,
)
from slotkeeper.token_policy import Known
from tests.support.boundary import Calls, Killed, kill_after, kill_before, lose_answer, refuse
from tests.unit.tokens import NAME, QUICK, TABLE, Api, Instances

NOW = 1_800_000_000.0
BRIEF = Timing(api=0.2, store=0.1, clock_skew=0.0, min_interval=0.0)


@pytest.fixture
def instances() -> Iterator[Instances]:
    with mock_aws():
        made = Instances(boto3.client("dynamodb"), Api(), lambda: made.time)
        made.time = NOW
        yield made


def lock_of_another(instances: Instances, expires: float, **more: Any) -> None:
    lock = {"M": {"release_code": {"S": "other"}, "expires": {"N": str(expires)}}}
    instances.put(refresh_lock=lock, **more)


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


def test_call_does_not_refresh_for_a_second_401(instances: Instances) -> None:
    token = instances.new()
    asked: list[str] = []

    def always_401(value: str) -> str:
        asked.append(value)
        raise Unauthorized

    with pytest.raises(StillUnauthorized, match="again, with a newer token"):
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

    with pytest.raises(StillUnauthorized, match="again, with a newer token"):
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
    reader = instances.new(authenticate=HandOver(asked.append), still_valid=instances.api.accepts)
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


# ------------------------------------------------------------------------------------------------- when the api refuses


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
    assert instances.raw_item().keys() == {"token_name", "access_token", "generation", "stored_at"}


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


# ---------------------------------------------------------------------------------------- deaths, freezes, lost answers


@pytest.mark.parametrize("moment", ["before the POST", "between POST and store", "after the store"])
def test_f30_a_holder_that_dies_delays_the_others_until_its_lease_ends(instances: Instances, moment: str) -> None:
    doomed = boto3.client("dynamodb")
    instances.table._dynamodb = doomed
    if moment == "before the POST":
        kill_after(doomed, "UpdateItem")
    elif moment == "between POST and store":
        instances.api.before_answer = lambda: kill_before(doomed, "UpdateItem")
    else:
        instances.api.before_answer = lambda: kill_after(doomed, "UpdateItem")
    with pytest.raises(Killed):
        instances.new().get()
    instances.table._dynamodb = instances.dynamodb
    instances.api.before_answer = lambda: None
    if moment != "after the store":
        with pytest.raises(TokenTimeout, match="another instance is refreshing it"):
            instances.new().get(within=0)
        instances.time += QUICK.lease
    assert instances.new(timing=Timing(clock_skew=0)).call(instances.api.ask) == "answer"


def test_f36_a_lock_that_has_expired_is_taken_over_once_and_reported(instances: Instances) -> None:
    lock_of_another(instances, NOW)
    assert (instances.new(timing=Timing()).get(), instances.api.posts) == ("token-1", 1)
    assert TookOver() in instances.events


def test_t3_f29_a_holder_that_thaws_past_its_lease_neither_overwrites_nor_leaves_a_dead_token(
    instances: Instances,
) -> None:
    patient = Timing(clock_skew=0, min_interval=0)
    other = instances.new(timing=patient)

    def frozen() -> None:
        instances.api.before_answer = lambda: None
        instances.time += patient.lease
        other.get()

    instances.api.before_answer = frozen
    thawed = instances.new(timing=patient)

    def late_post(seconds: float) -> str:
        token = instances.api.authenticate(seconds)
        if instances.api.posts == 2:  # this one took effect after the other's
            instances.api.live = token
        return token

    thawed._means = thawed._means.__class__(**{**vars(thawed._means), "authenticate": late_post})
    token = thawed.get()
    stored = instances.raw_item()["access_token"]["S"]
    assert (token, stored, instances.api.accepts(stored)) == ("token-3", "token-3", True)
    assert StoredTooLate() in instances.events


@pytest.mark.parametrize("by_clock", [True, False])
def test_f36_a_container_frozen_between_lock_and_post_does_not_post_on_an_old_lock(
    instances: Instances, by_clock: bool
) -> None:
    """The monotonic clock may stand still in a frozen container, and the other one is set only some time later."""
    take, taken = instances.table.take, []

    def take_and_freeze(*arguments: Any) -> bool:
        taken.append(take(*arguments))
        if len(taken) == 1 and by_clock:
            instances.time += 0.6 * BRIEF.api
        elif len(taken) == 1:
            threading.Event().wait(0.6 * BRIEF.api)
        return taken[-1]

    instances.table.take = take_and_freeze
    instances.new(timing=BRIEF).get()
    assert (len(taken) > 1, instances.api.posts) == (True, 1)


def test_the_probe_and_the_post_together_have_the_time_of_one(instances: Instances) -> None:
    instances.new().get()
    asked: list[float] = []

    def probe(_token: str, seconds: float) -> bool:
        instances.time += 0.5
        asked.append(seconds)
        return False

    def authenticate(seconds: float) -> str:
        asked.append(seconds)
        return instances.api.authenticate(seconds)

    token = instances.new(authenticate=authenticate, still_valid=probe)
    token.invalidate("token-1")
    token.get()
    assert (asked[0] <= QUICK.api / 2, asked[1] <= QUICK.api - 0.5) == (True, True)


def test_the_lock_lasts_for_the_lease(instances: Instances) -> None:
    seen: list[float] = []
    instances.api.before_answer = lambda: seen.append(float(instances.raw_item()["refresh_lock"]["M"]["expires"]["N"]))
    instances.new(timing=Timing()).get()
    assert seen == [NOW + Timing().lease]


def test_another_lock_is_watched_from_its_own_beginning(instances: Instances, monkeypatch: pytest.MonkeyPatch) -> None:
    monotonic = iter([0.0, 1.0, 1.0, 5.0, 5.0, 5.0, 9.0])
    monkeypatch.setattr(token_search, "time", SimpleNamespace(monotonic=lambda: next(monotonic)))
    search = token_search.Search(instances.new()._means, None, 20)
    locks = [TokenItem(lock=RefreshLock(code, NOW)) for code in ("a", "a", "b", "b")]
    assert [search._watch(lock) for lock in locks] == [0.0, 4.0, 0.0, 4.0]


def test_f33_a_lock_taken_by_a_call_whose_answer_was_lost_is_ones_own(instances: Instances) -> None:
    lose_answer(instances.dynamodb, "UpdateItem")
    assert (instances.new(timing=Timing()).get(), instances.api.posts) == ("token-1", 1)


def test_f33_botocores_own_second_attempt_finds_its_lock_and_knows_it(instances: Instances) -> None:
    seen = instances.table.read(NAME)
    assert [instances.table.take(NAME, seen, "mine", NOW + 10) for _ in range(2)] == [True, True]


def test_f33_a_token_stored_by_a_call_whose_answer_was_lost_is_not_refreshed_again(instances: Instances) -> None:
    instances.api.before_answer = lambda: lose_answer(instances.dynamodb, "UpdateItem")
    assert (instances.new(timing=Timing()).get(), instances.api.posts) == ("token-1", 1)
    assert instances.raw_item()["generation"] == {"N": "1"}
    assert any(isinstance(event, Refreshed) for event in instances.events)


def test_f33_a_token_that_was_replaced_before_its_holder_knew_it_was_stored_costs_no_third(
    instances: Instances,
) -> None:
    """The answer to the store is lost, and before the next look another instance has found that token invalid."""
    other = instances.new(timing=Timing(min_interval=0))
    mine = boto3.client("dynamodb")

    def replaced_and_unheard(**_: Any) -> None:
        other.invalidate("token-1")
        other.get()
        raise ReadTimeoutError(endpoint_url="the service")

    def about_to_store() -> None:
        instances.api.before_answer = lambda: None
        mine.meta.events.register_first("after-call.dynamodb.UpdateItem", replaced_and_unheard)

    instances.api.before_answer = about_to_store
    holder = instances.new(timing=Timing())
    holder._means = replace(holder._means, table=TokenTable(mine, TABLE))
    assert (holder.get(), instances.api.posts, StoredTooLate() in instances.events) == ("token-2", 2, False)


def test_f33_a_store_that_is_throttled_is_tried_again_with_the_token_in_hand(instances: Instances) -> None:
    instances.api.before_answer = lambda: refuse(instances.dynamodb, "UpdateItem", "ThrottlingException", times=2)
    assert (instances.new(timing=Timing()).get(), instances.api.posts) == ("token-1", 1)


def test_a_refusal_whose_answer_was_lost_stands(instances: Instances) -> None:
    def down(_seconds: float) -> str:
        lose_answer(instances.dynamodb, "UpdateItem")
        raise AuthenticationRefused("out of order")

    with pytest.raises(TokenRefused, match="out of order"):
        instances.new(authenticate=down, timing=Timing()).get()
    assert instances.raw_item()["refused_reason"] == {"S": "out of order"}


def test_a_look_that_is_throttled_is_no_error(instances: Instances) -> None:
    refuse(instances.dynamodb, "GetItem", "ProvisionedThroughputExceededException")
    assert instances.new(timing=Timing()).get() == "token-1"


def test_a_denied_look_is_one_at_once(instances: Instances) -> None:
    refuse(instances.dynamodb, "GetItem", "AccessDeniedException", times=9)
    with pytest.raises(ClientError, match="AccessDeniedException"):
        instances.new().get()


def test_f30_a_token_killed_by_a_late_post_is_refreshed_even_if_the_time_was_up(instances: Instances) -> None:
    other = instances.new(timing=BRIEF)

    def frozen(_seconds: float) -> str:
        instances.time += BRIEF.lease
        other.get()
        threading.Event().wait(0.4)
        return instances.api.authenticate(0)

    thawed = instances.new(authenticate=frozen, timing=BRIEF)
    with pytest.raises(TokenTimeout, match="no valid token within"):
        thawed.get(within=0.4)
    assert thawed.get() != "token-1"


def test_t4_no_time_that_is_asked_for_exceeds_the_patience(instances: Instances) -> None:
    lock_of_another(instances, NOW + 10)
    with pytest.raises(TokenTimeout, match=r"within 0\.4 s"):
        instances.new(timing=replace(BRIEF, patience=0.4)).get(within=1000)


def test_t4_both_tokens_of_a_call_share_the_time(instances: Instances) -> None:
    def slow(seconds: float) -> str:
        threading.Event().wait(0.15)
        return instances.api.authenticate(seconds)

    def kill(token: str) -> str:
        instances.api.live = ""
        return instances.api.ask(token)

    with pytest.raises(TokenTimeout, match="are too few to begin"):
        instances.new(authenticate=slow, timing=BRIEF).call(kill, within=0.4)


def test_t4_a_thread_does_not_wait_longer_for_another_one(instances: Instances) -> None:
    token = instances.new()
    with token._one_at_a_time, pytest.raises(TokenTimeout, match=r"within 0\.1 s: another thread"):
        token.get(within=0.1)


def test_a_thread_that_waited_for_another_one_uses_its_token(instances: Instances) -> None:
    token = instances.new()

    class AnotherThreadFinds:
        def acquire(self, timeout: float) -> bool:
            token._cached = Known("its token", 1)
            return True

        def release(self) -> None:
            pass

    token._one_at_a_time = AnotherThreadFinds()
    assert token.get() == "its token"


class _AnotherThreadFirst:
    """The lock between threads, which another thread holds for a while; `meanwhile` is what that one does."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile

    def acquire(self, timeout: float) -> bool:
        assert timeout >= 0
        self._meanwhile()
        self._meanwhile = lambda: None
        return True

    def release(self) -> None:
        pass


def test_t4_the_time_that_another_thread_took_is_not_there_a_second_time(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = [0.0]
    monkeypatch.setattr(token_lock, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    token = instances.new(timing=BRIEF)
    token._one_at_a_time = _AnotherThreadFirst(lambda: moment.__setitem__(0, BRIEF.api))
    with pytest.raises(TokenTimeout, match="too few to begin"):
        token.get(within=BRIEF.holding + 0.1)
    assert instances.api.posts == 0


def test_a_token_that_another_thread_found_stored_is_not_new(instances: Instances) -> None:
    idle = instances.new()
    idle.get()
    busy = instances.new()
    busy.invalidate("token-1")
    busy.get()
    instances.api.live = "somebody else's"
    idle._one_at_a_time = _AnotherThreadFirst(lambda: idle._search(1.0, True, None))
    assert (idle.call(instances.api.ask), instances.api.posts) == ("answer", 3)


def test_t4_nobody_waits_longer_than_it_may_and_hears_what_for(instances: Instances) -> None:
    lock_of_another(instances, NOW + 10)
    began = time.monotonic()
    with pytest.raises(TokenTimeout, match=r"no valid token within 0\.2 s: another instance is refreshing it"):
        instances.new().get(within=0.2)
    assert time.monotonic() - began >= 0.2


def test_t4_nobody_waits_longer_because_the_clock_is_set_back_meanwhile(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_of_another(instances, NOW + 10)
    clock = itertools.chain([datetime(2026, 10, 25, 3)], itertools.repeat(datetime(2026, 10, 25, 2), 20))
    set_back = SimpleNamespace(datetime=SimpleNamespace(now=lambda: next(clock)))
    monkeypatch.setattr("backoff._sync.datetime", set_back)
    with pytest.raises(TokenTimeout):
        instances.new().get(within=0.2)


def test_f36_with_too_little_time_left_it_does_not_begin(instances: Instances) -> None:
    with pytest.raises(TokenTimeout, match="nobody refreshes it, and"):
        instances.new().get(within=0.1)
    assert (instances.api.posts, instances.raw_item()) == (0, {})


# -------------------------------------------------------------------------------------------------------------- refresh


def test_the_scheduled_writer_replaces_a_token_that_nobody_doubts(instances: Instances) -> None:
    instances.new().get()
    writer = instances.new(timing=Timing(min_interval=0), still_valid=instances.api.accepts)
    assert [writer.refresh(), writer.refresh()] == [2, 3]


def test_the_scheduled_writer_makes_a_token_where_somebody_has_deleted_the_item(instances: Instances) -> None:
    writer = instances.new()
    writer.refresh()
    instances.dynamodb.delete_item(TableName=TABLE, Key={"token_name": {"S": NAME}})
    assert (writer.refresh(), instances.raw_item()["access_token"]) == (1, {"S": "token-2"})


def test_f33_the_scheduled_writer_bears_a_read_that_is_not_answered(instances: Instances) -> None:
    lose_answer(instances.dynamodb, "GetItem")
    assert instances.new().refresh() == 1


def test_a_reader_that_hands_over_asks_once_and_uses_what_the_writer_stored(instances: Instances) -> None:
    patient = Timing()
    writer = instances.new(timing=patient)
    asked: list[str] = []

    def ask(code: str) -> None:
        asked.append(code)
        writer.refresh(handed_over=code)

    readers = [instances.new(authenticate=HandOver(ask), timing=patient) for _ in range(3)]
    assert [reader.get() for reader in readers] == ["token-1"] * 3
    assert (len(asked), instances.api.posts, TookOver() in instances.events) == (1, 1, False)


def test_a_reader_asks_once_for_each_lock_it_takes(instances: Instances) -> None:
    asked: list[str] = []
    reader = instances.new(authenticate=HandOver(asked.append), timing=replace(BRIEF, api=0.6))
    with pytest.raises(TokenTimeout):
        reader.get(within=1.2)
    assert 0 < len(asked) == len(set(asked))


def test_a_question_that_arrives_twice_is_answered_once(instances: Instances) -> None:
    asked: list[str] = []

    def ask_and_die(code: str) -> None:
        asked.append(code)
        raise Killed

    with pytest.raises(Killed):
        instances.new(authenticate=HandOver(ask_and_die)).get()
    writer = instances.new(timing=Timing())
    assert [writer.refresh(handed_over=asked[0]) for _ in range(2)] == [1, 1]
    assert instances.api.posts == 1


def test_a_question_about_a_lock_that_is_anothers_by_now_is_settled(instances: Instances) -> None:
    lock_of_another(instances, NOW + 10, generation={"N": "4"})
    assert (instances.new().refresh(handed_over="asker", within=0), instances.api.posts) == (4, 0)


def test_a_function_that_surely_was_not_asked_is_a_refusal(instances: Instances) -> None:
    def denied(_code: str) -> None:
        raise AuthenticationRefused("the refresher could not be asked: AccessDeniedException")

    with pytest.raises(TokenRefused, match="could not be asked"):
        instances.new(authenticate=HandOver(denied), timing=Timing()).get()


# ---------------------------------------------------------------------------------------------------- what others wrote


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("access_token", {"N": "1"}),
        ("generation", {"N": "1.5"}),
        ("stored_at", {"S": "now"}),
        ("refused_until", {"BOOL": True}),
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
    instances.table.take("other", instances.table.read("other"), "code", NOW + QUICK.lease)
    lock = instances.table.read("other").lock
    assert lock is not None
    assert lock.expires == NOW + QUICK.lease


def test_the_token_is_in_no_repr_and_no_log(instances: Instances, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="slotkeeper"):
        token = instances.new()
        token.get()
    shown = repr(instances.table.read(NAME)) + repr(token) + repr(token._cached) + repr(instances.events) + caplog.text
    assert "token-1" not in shown
