"""Holders of the token lock that die, stand still or thaw, and instances whose clocks are wrong meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from dev.emulator.chat_service import AUTH, Outage, answer_to
from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.token import StoredTooLate, TookOver
from tests.races.frozen_instances import OTHERS, Freeze, Point, ask_after_standing_still_between_look_and_take
from tests.races.instance_process import InstanceProcess
from tests.races.shared_token import QUICK, SKEW, TokenSharers, at_once, start
from tests.support.boundary import Calls, Killed, kill_after
from tests.support.waiting import wait_until


class Survivors:
    """Instances that need a token from the moment on that its holder died or froze."""

    def __init__(self, sharing: TokenSharers, skew: float = 0.0) -> None:
        self._sharing = sharing
        self._instances = [sharing.new(skew=skew) for _ in range(OTHERS)]

    def go_on_when_the_lease_ends(self) -> None:
        """All wait until then, by clocks that the test moves; then all get the live token, one by taking over."""
        timing, calls = self._sharing.timing, Calls(self._sharing.dynamodb)
        self._sharing.clock.hold()
        waiting = start([instance.get for instance in self._instances])
        wait_until(lambda: len(calls.made) >= 2 * OTHERS, "some looks of everybody")
        assert self._sharing.count(TookOver) == 0
        self._sharing.clock.move(timing.lease + timing.spread)
        self._have_the_live_token([future.result() for future in waiting])

    def go_on(self) -> None:
        """All get the live token, one of them by taking over when the lease has ended by the true time."""
        self._have_the_live_token(at_once([instance.get for instance in self._instances]))

    def _have_the_live_token(self, tokens: list[str]) -> None:
        assert set(map(self._sharing.service.is_live, tokens)) == {True}
        assert self._sharing.count(TookOver) == 1

    def all_work(self) -> None:
        """Each is answered twice, and the token that is stored is the one that lives."""
        for _ in range(2):
            at_once([instance.ask for instance in self._instances])
        assert self._sharing.stored_is_live()


def dies(sharing: TokenSharers, point: Literal["before the POST", "between POST and store"]) -> Callable[[float], str]:
    """An authenticate whose caller dies in it."""
    api = sharing.api()

    def authenticate(seconds: float) -> str:
        if point == "between POST and store":
            api.authenticate(seconds)
        raise Killed

    return authenticate


@pytest.mark.parametrize(("point", "posts"), [("before the POST", 1), ("between POST and store", 2)])
def test_t2_f30_a_holder_that_dies_delays_the_others_by_its_lease_at_most(
    sharing: TokenSharers, point: Literal["before the POST", "between POST and store"], posts: int
) -> None:
    doomed = sharing.new(authenticate=dies(sharing, point))
    with pytest.raises(Killed):
        doomed.get()
    survivors = Survivors(sharing)
    survivors.go_on_when_the_lease_ends()
    survivors.all_work()
    assert sharing.service.auths == posts


def test_t2_f30_a_holder_that_dies_after_the_store_delays_nobody(
    sharing: TokenSharers, dynamodb_local: DynamoDbLocal
) -> None:
    dynamodb = dynamodb_local.client()
    api = sharing.api()

    def authenticate(seconds: float) -> str:
        kill_after(dynamodb, "UpdateItem")
        return api.authenticate(seconds)

    with pytest.raises(Killed):
        sharing.new(dynamodb, authenticate=authenticate).get()
    calls = Calls(sharing.dynamodb)
    at_once([instance.get for instance in sharing.several(OTHERS)])
    assert calls.made == ["GetItem"] * OTHERS
    assert (sharing.service.auths, sharing.stored_is_live()) == (1, True)


def test_t2_f30_a_holder_whose_process_is_killed_delays_the_others_by_its_lease_at_most(sharing: TokenSharers) -> None:
    with InstanceProcess(sharing, stop="between POST and store") as doomed:
        assert doomed.says() == "ready"
        doomed.go_on()
        assert doomed.says() == "between POST and store"
        doomed.kill()
    survivors = Survivors(sharing)
    survivors.go_on_when_the_lease_ends()
    survivors.all_work()
    assert sharing.service.auths == 2


def test_t2_f30_even_if_its_clock_was_four_seconds_ahead_of_all_who_wait(sharing: TokenSharers) -> None:
    doomed = sharing.new(authenticate=dies(sharing, "between POST and store"), skew=SKEW)
    with pytest.raises(Killed):
        doomed.get()
    Survivors(sharing, -SKEW).go_on_when_the_lease_ends()
    assert sharing.service.auths == 2


# ------------------------------------------------------------------------------------------------- frozen and thawed


@pytest.mark.parametrize("point", ["before the POST", "in the POST", "between POST and store"])
def test_t3_f36_a_process_that_is_frozen_past_its_lease_and_thaws_spoils_nothing(
    sharing: TokenSharers, point: Point
) -> None:
    sharing.timing = QUICK
    if point == "in the POST":
        sharing.service.strike(AUTH, Outage("hold", times=1))
    with InstanceProcess(sharing, stop=point) as frozen:
        assert frozen.says() == "ready"
        frozen.go_on()
        if point == "in the POST":
            wait_until(lambda: sharing.service.auths == 1, "the POST that is held")
        else:
            assert frozen.says() == point
        frozen.freeze()
        survivors = Survivors(sharing)
        survivors.go_on()
        kept = sharing.item()
        if point == "in the POST":
            sharing.service.end_outage()
        else:
            frozen.go_on()
        frozen.thaw()
        answer = frozen.says()
        if point != "in the POST":  # there it may have given up waiting for the answer, and has nothing to store
            assert "StoredTooLate" in answer["events"]
        assert sharing.item().generation > kept.generation or sharing.item() == kept
        frozen.go_on()
        assert frozen.says() == [answer_to("hello")]
    survivors.all_work()


@pytest.mark.parametrize("point", ["before the POST", "between POST and store"])
def test_t3_f36_a_holder_that_thaws_has_its_message_answered_and_leaves_a_live_token(
    sharing: TokenSharers, point: Point
) -> None:
    freeze = Freeze(sharing, point)
    freeze.begin()
    freeze.outlast_the_lease()
    at_once([other.ask for other in freeze.others])
    freeze.let_the_token_age()
    freeze.stop.go_on()
    freeze.all_are_answered()
    assert sharing.count(StoredTooLate) == 1


def test_t3_f36_a_holder_that_thaws_while_its_successor_has_yet_to_store_has_its_message_answered(
    sharing: TokenSharers,
) -> None:
    freeze = Freeze(sharing, "before the POST")
    freeze.begin()
    freeze.outlast_the_lease()
    freeze.successors_stop.set_up = True
    (successors,) = start([freeze.successor.ask])
    freeze.successors_stop.wait_until_reached()
    freeze.stop.go_on()  # its late POST kills the token that the successor is about to store
    wait_until(lambda: sharing.count(StoredTooLate) == 1, "the late token, refused")
    stored = sharing.item().generation
    freeze.successors_stop.go_on()
    wait_until(lambda: sharing.item().generation > stored, "the successor's token, dead by now")
    freeze.let_the_token_age()
    freeze.all_are_answered()
    assert successors.result() == answer_to("hello")


def test_t3_f36_a_holder_whose_late_post_is_not_answered_has_its_message_answered(sharing: TokenSharers) -> None:
    freeze = Freeze(sharing, "before the POST")
    freeze.begin()
    freeze.outlast_the_lease()
    at_once([other.ask for other in freeze.others])
    freeze.let_the_token_age()
    sharing.service.strike(AUTH, Outage("drop", takes_effect=True, times=1))
    freeze.stop.go_on()
    freeze.all_are_answered()


def test_t1_f36_a_live_lock_is_not_taken_over_by_whose_clock_is_four_seconds_ahead_of_its_holders(
    sharing: TokenSharers,
) -> None:
    freeze = Freeze(sharing, "before the POST")
    freeze.begin()
    calls = Calls(sharing.dynamodb)
    waiting = start([other.ask for other in freeze.others])
    # As late as a healthy holder may be.
    sharing.clock.move(sharing.timing.holding - 0.05)
    looked = len(calls.made) + OTHERS
    wait_until(lambda: len(calls.made) >= looked + 2 * OTHERS, "some looks of everybody")
    freeze.stop.go_on()
    assert {future.result() for future in [*waiting, freeze.message]} == {answer_to("hello")}
    assert (sharing.count(TookOver), sharing.service.auths) == (0, 2)


def test_t1_f36_an_instance_that_stood_still_between_its_look_and_its_lock_does_not_post(sharing: TokenSharers) -> None:
    answer = ask_after_standing_still_between_look_and_take(sharing)
    assert (answer, sharing.service.auths) == (answer_to("hello"), 1)
