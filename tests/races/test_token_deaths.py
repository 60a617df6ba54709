"""Holders of the token lock that die, freeze or thaw, while other instances have skewed clocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from dev.emulator.chat_service import AUTH, Outage, answer_to
from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.token import StoredTooLate, TookOver
from tests.races.frozen_instances import OTHERS, Freeze, Point, ask_with_pause_between_read_and_acquire
from tests.races.instance_process import InstanceProcess
from tests.races.shared_token import SHORT_LEASE, SKEW, TokenSharers, simultaneously, start
from tests.support.boundary import Calls, Killed, kill_after
from tests.support.waiting import wait_until


class Survivors:
    """Instances that need a token after the lock's holder died or froze."""

    def __init__(self, sharing: TokenSharers, skew: float = 0.0) -> None:
        self._sharing = sharing
        self._instances = [sharing.new(skew=skew) for _ in range(OTHERS)]

    def take_over_when_the_lease_ends(self) -> None:
        """All wait for the lease's end, by clocks that the test moves; then all get the live token, one takes over."""
        timing, calls = self._sharing.timing, Calls(self._sharing.dynamodb)
        self._sharing.clock.hold()
        waiting = start([instance.get for instance in self._instances])
        wait_until(lambda: len(calls.made) >= 2 * OTHERS, "two reads of each instance")
        assert self._sharing.count(TookOver) == 0
        self._sharing.clock.move(timing.lease + timing.spread)
        self._have_the_live_token([future.result() for future in waiting])

    def take_over(self) -> None:
        """All get the live token. One takes over when the lease has ended by the true time."""
        self._have_the_live_token(simultaneously([instance.get for instance in self._instances]))

    def _have_the_live_token(self, tokens: list[str]) -> None:
        assert set(map(self._sharing.service.is_live, tokens)) == {True}
        assert self._sharing.count(TookOver) == 1

    def all_work(self) -> None:
        """Each is answered twice, and the stored token is live."""
        for _ in range(2):
            simultaneously([instance.ask for instance in self._instances])
        assert self._sharing.stored_is_live()


def dies(sharing: TokenSharers, point: Literal["before the POST", "between POST and store"]) -> Callable[[float], str]:
    """An `authenticate` whose caller dies in it."""
    api = sharing.api()

    def authenticate(seconds: float) -> str:
        if point == "between POST and store":
            api.authenticate(seconds)
        raise Killed

    return authenticate


@pytest.mark.parametrize(
    ("point", "posts", "skew"),
    [("before the POST", 1, 0.0), ("between POST and store", 2, 0.0), ("between POST and store", 2, SKEW)],
)
def test_t2_f30_a_holder_that_dies_delays_others_by_its_lease_at_most(
    sharing: TokenSharers, point: Literal["before the POST", "between POST and store"], posts: int, skew: float
) -> None:
    """Also if its clock was four seconds ahead of theirs."""
    doomed = sharing.new(authenticate=dies(sharing, point), skew=skew)
    with pytest.raises(Killed):
        doomed.get()
    survivors = Survivors(sharing, -skew)
    survivors.take_over_when_the_lease_ends()
    survivors.all_work()
    assert sharing.service.auths == posts


def test_t2_f30_a_holder_that_dies_after_the_store_delays_no_other_instance(
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
    simultaneously([instance.get for instance in sharing.several(OTHERS)])
    assert calls.made == ["GetItem"] * OTHERS
    assert (sharing.service.auths, sharing.stored_is_live()) == (1, True)


def test_t2_f30_a_holder_whose_process_is_killed_delays_the_others_by_its_lease_at_most(sharing: TokenSharers) -> None:
    with InstanceProcess(sharing, stop="between POST and store") as doomed:
        assert doomed.receive() == "ready"
        doomed.resume()
        assert doomed.receive() == "between POST and store"
        doomed.kill()
    survivors = Survivors(sharing)
    survivors.take_over_when_the_lease_ends()
    survivors.all_work()
    assert sharing.service.auths == 2


@pytest.mark.parametrize("point", ["before the POST", "in the POST", "between POST and store"])
def test_t3_f36_a_process_that_thaws_after_its_lease_does_not_overwrite_the_newer_token(
    sharing: TokenSharers, point: Point
) -> None:
    sharing.timing = SHORT_LEASE
    if point == "in the POST":
        sharing.service.strike(AUTH, Outage("hold", times=1))
    with InstanceProcess(sharing, stop=point) as frozen:
        assert frozen.receive() == "ready"
        frozen.resume()
        if point == "in the POST":
            wait_until(lambda: sharing.service.auths == 1, "the POST that is held")
        else:
            assert frozen.receive() == point
        frozen.freeze()
        survivors = Survivors(sharing)
        survivors.take_over()
        kept = sharing.item()
        if point == "in the POST":
            sharing.service.end_outage()
        else:
            frozen.resume()
        frozen.thaw()
        answer = frozen.receive()
        if point != "in the POST":  # there the POST may have timed out, without a token to store
            assert "StoredTooLate" in answer["events"]
        assert sharing.item().generation > kept.generation or sharing.item() == kept
        frozen.resume()
        assert frozen.receive() == [answer_to("hello")]
    survivors.all_work()


@pytest.mark.parametrize("point", ["before the POST", "between POST and store"])
def test_t3_f36_a_holder_that_thaws_has_its_message_answered_and_leaves_a_live_token(
    sharing: TokenSharers, point: Point
) -> None:
    freeze = Freeze(sharing, point)
    freeze.begin()
    freeze.outlast_the_lease()
    simultaneously([other.ask for other in freeze.others])
    freeze.let_the_token_age()
    freeze.stop.resume()
    freeze.all_are_answered()
    assert sharing.count(StoredTooLate) == 1


def test_t3_f36_a_holder_that_thaws_before_its_successor_stores_has_its_message_answered(sharing: TokenSharers) -> None:
    freeze = Freeze(sharing, "before the POST")
    freeze.begin()
    freeze.outlast_the_lease()
    freeze.successors_breakpoint.armed = True
    (successors,) = start([freeze.successor.ask])
    freeze.successors_breakpoint.wait_until_reached()
    freeze.stop.resume()  # its late POST invalidates the token that the successor is about to store
    wait_until(lambda: sharing.count(StoredTooLate) == 1, "the late token, refused")
    stored = sharing.item().generation
    freeze.successors_breakpoint.resume()
    wait_until(lambda: sharing.item().generation > stored, "the successor's invalidated token")
    freeze.let_the_token_age()
    freeze.all_are_answered()
    assert successors.result() == answer_to("hello")


def test_t3_f36_a_holder_whose_late_post_is_not_answered_has_its_message_answered(sharing: TokenSharers) -> None:
    freeze = Freeze(sharing, "before the POST")
    freeze.begin()
    freeze.outlast_the_lease()
    simultaneously([other.ask for other in freeze.others])
    freeze.let_the_token_age()
    sharing.service.strike(AUTH, Outage("drop", takes_effect=True, times=1))
    freeze.stop.resume()
    freeze.all_are_answered()


def test_t1_f36_an_instance_whose_clock_is_four_seconds_ahead_does_not_take_over_a_live_lock(
    sharing: TokenSharers,
) -> None:
    freeze = Freeze(sharing, "before the POST")
    freeze.begin()
    calls = Calls(sharing.dynamodb)
    waiting = start([other.ask for other in freeze.others])
    # As late as a healthy holder may be.
    sharing.clock.move(sharing.timing.holding - 0.05)
    reads = len(calls.made) + OTHERS
    wait_until(lambda: len(calls.made) >= reads + 2 * OTHERS, "two reads of each instance")
    freeze.stop.resume()
    assert {future.result() for future in [*waiting, freeze.message]} == {answer_to("hello")}
    assert (sharing.count(TookOver), sharing.service.auths) == (0, 2)


def test_t1_f36_an_instance_that_paused_between_its_read_and_its_lock_does_not_post(sharing: TokenSharers) -> None:
    answer = ask_with_pause_between_read_and_acquire(sharing)
    assert (answer, sharing.service.auths) == (answer_to("hello"), 1)
