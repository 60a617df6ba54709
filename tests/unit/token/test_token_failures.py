"""Lock holders that die or pause, lost answers, and the limit of every wait."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.token import (
    StoredTooLate,
    Timing,
    TokenTimeout,
    TookOver,
    Waited,
)
from slotkeeper.token import lock as token_lock
from slotkeeper.token.timing import KnownToken
from tests.simulation.account.boundary import lose_answer, refuse
from tests.unit.token_instances import BRIEF, NOW, QUICK, Instances, VirtualTime, lock_of_another


def test_t3_f29_a_holder_that_resumes_after_its_lease_neither_overwrites_nor_leaves_a_dead_token(
    instances: Instances,
) -> None:
    timing = Timing(clock_skew=0, min_interval=0)
    other = instances.new(timing=timing)

    def frozen() -> None:
        instances.api.before_answer = lambda: None
        instances.time += timing.lease
        other.get()

    instances.api.before_answer = frozen
    thawed = instances.new(timing=timing)

    def late_post(seconds: float) -> str:
        token = instances.api.authenticate(seconds)
        if instances.api.posts == 2:  # took effect after the other's POST
            instances.api.live = token
        return token

    thawed._deps = thawed._deps.__class__(**{**vars(thawed._deps), "authenticate": late_post})
    token = thawed.get()
    stored = instances.raw_item()["access_token"]["S"]
    assert (token, stored, instances.api.accepts(stored)) == ("token-3", "token-3", True)
    assert StoredTooLate() in instances.events


@pytest.mark.parametrize("by_clock", [True, False])
def test_f36_a_container_frozen_between_lock_and_post_does_not_post_on_an_old_lock(
    instances: Instances, by_clock: bool
) -> None:
    """The monotonic clock may stop in a frozen container, and the system clock is corrected only later."""
    take, taken = instances.table.acquire, []

    def take_and_freeze(*arguments: Any) -> bool:
        taken.append(take(*arguments))
        if len(taken) == 1 and by_clock:
            instances.time += 0.6 * BRIEF.api
        elif len(taken) == 1:
            threading.Event().wait(0.6 * BRIEF.api)
        return taken[-1]

    instances.table.acquire = take_and_freeze
    instances.new(timing=BRIEF).get()
    assert (len(taken) > 1, instances.api.posts) == (True, 1)


def test_f36_a_lock_that_is_taken_over_is_not_probed(instances: Instances) -> None:
    """The previous holder has probably requested a token, and the other instances have waited for a lease."""
    stored = {"access_token": {"S": "token-1"}, "generation": {"N": "1"}, "stored_at": {"N": str(NOW - 60)}}
    lock_of_another(instances, NOW, **stored)
    token = instances.new(still_valid=lambda *_: pytest.fail("the API received a probe"))
    token.invalidate("token-1")
    assert token.get() == "token-1"
    assert instances.raw_item()["generation"] == {"N": "2"}


@pytest.mark.usefixtures("virtual_time")
def test_f31_a_probe_without_enough_time_costs_no_token(instances: Instances) -> None:
    """The first token used up most of the caller's time."""
    token = instances.new(still_valid=instances.api.accepts)
    token.get()

    def unanswered(_token: str, seconds: float) -> bool:
        instances.api.before_answer = lambda: pytest.fail("the API received a POST")
        raise TimeoutError

    token._deps = replace(token._deps, still_valid=unanswered)
    token.invalidate("token-1")
    with pytest.raises(TokenTimeout, match="too few"):
        token._obtain(QUICK.holding + 0.2, allowed=QUICK.patience)
    assert "refresh_lock" not in instances.raw_item()


@pytest.mark.usefixtures("virtual_time")
def test_f33_a_lock_whose_answer_was_lost_is_recognized_by_its_holder(instances: Instances) -> None:
    lose_answer(instances.dynamodb, "UpdateItem")
    assert (instances.new().get(), instances.api.posts) == ("token-1", 1)
    assert TookOver() not in instances.events
    # It does not wait for its own lock to expire.
    assert all(event.seconds < QUICK.lease for event in instances.events if isinstance(event, Waited))


def test_f33_a_throttled_store_is_retried_with_the_same_token(instances: Instances) -> None:
    instances.api.before_answer = lambda: refuse(instances.dynamodb, "UpdateItem", "ThrottlingException", times=2)
    assert (instances.new(timing=Timing()).get(), instances.api.posts) == ("token-1", 1)


def test_a_denied_read_raises_immediately(instances: Instances) -> None:
    refuse(instances.dynamodb, "GetItem", "AccessDeniedException", times=9)
    with pytest.raises(ClientError, match="AccessDeniedException"):
        instances.new().get()


def test_t4_no_requested_wait_exceeds_the_patience(instances: Instances, virtual_time: VirtualTime) -> None:
    lock_of_another(instances, NOW + 10)
    with pytest.raises(TokenTimeout, match=r"within 2\.0 s"):
        instances.new(timing=replace(BRIEF, patience=2.0)).get(within=1000)


def test_t4_both_tokens_of_a_call_share_the_time(instances: Instances, virtual_time: VirtualTime) -> None:
    def slow(seconds: float) -> str:
        virtual_time.sleep(0.75)
        return instances.api.authenticate(seconds)

    def kill(token: str) -> str:
        instances.api.live = ""
        return instances.api.ask(token)

    with pytest.raises(TokenTimeout, match="are too few for this one to start"):
        instances.new(authenticate=slow, timing=BRIEF).call(kill, within=2.0)


def test_t4_a_thread_waits_for_another_thread_within_its_limit(instances: Instances) -> None:
    token = instances.new()
    with token._thread_lock, pytest.raises(TokenTimeout, match=r"within 0\.1 s: another thread"):
        token.get(within=0.1)


def test_a_thread_that_waited_for_another_one_uses_its_token(instances: Instances) -> None:
    token = instances.new()

    token._thread_lock = _AnotherThreadFirst(lambda: setattr(token, "_cached", KnownToken("its token", 1)))
    assert token.get() == "its token"


class _AnotherThreadFirst:
    """The lock between threads, held by another thread that runs `meanwhile`."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile

    def acquire(self, timeout: float) -> bool:
        assert timeout >= 0
        self._meanwhile()
        self._meanwhile = lambda: None
        return True

    def release(self) -> None:
        pass


def test_t4_the_time_that_another_thread_took_is_deducted(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = [0.0]
    monkeypatch.setattr(token_lock, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    token = instances.new(timing=BRIEF)
    token._thread_lock = _AnotherThreadFirst(lambda: moment.__setitem__(0, BRIEF.api))
    with pytest.raises(TokenTimeout, match="too few for this one to start"):
        token.get(within=BRIEF.holding + 0.1)
    assert instances.api.posts == 0


def test_t4_a_clock_set_back_does_not_extend_a_wait(instances: Instances, monkeypatch: pytest.MonkeyPatch) -> None:
    lock_of_another(instances, NOW + 10)
    clock = itertools.chain([datetime(2026, 10, 25, 3)], itertools.repeat(datetime(2026, 10, 25, 2), 20))
    set_back = SimpleNamespace(datetime=SimpleNamespace(now=lambda: next(clock)))
    monkeypatch.setattr("backoff._sync.datetime", set_back)
    with pytest.raises(TokenTimeout):
        instances.new().get(within=0.2)


@pytest.mark.parametrize("within", [0.1, QUICK.holding - 0.1])
def test_f36_too_little_time_from_the_start_is_refused_with_the_time_needed(
    instances: Instances, within: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backoff._sync.time.sleep", lambda _: pytest.fail("it waited"))
    needs = (
        r"no instance is refreshing it, and .* too few .*: a refresh needs 3 s \(Timing.api \+ Timing.store\). Raise"
    )
    with pytest.raises(TokenTimeout, match=needs):
        instances.new().call(instances.api.ask, within=within)
    assert (instances.api.posts, instances.raw_item()) == (0, {})


def test_f36_the_times_that_a_timeout_advises_let_the_same_call_refresh(instances: Instances) -> None:
    with pytest.raises(TokenTimeout, match=r"needs 7 s .* Timing.for_timeout\(4\), with which a refresh needs 1 s$"):
        instances.new(timing=Timing()).get(within=3.0)
    with pytest.raises(TokenTimeout, match=r"Raise the function's timeout and `within`$"):
        instances.new(timing=Timing()).get(within=1.9)  # too short for any times
    assert instances.new(timing=Timing.for_timeout(4)).get(within=3.0) == "token-1"
