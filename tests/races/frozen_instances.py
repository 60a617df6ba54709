"""Instances that stand still at a chosen place, as a frozen container does, and what the others do meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from dev.emulator.chat_service import answer_to
from dev.emulator.local_clients import local_client
from slotkeeper.token import Timing
from tests.races.shared_token import SKEW, UNHURRIED, TokenSharers, at_once, start
from tests.support.waiting import NEVER

Point = Literal["nowhere", "before the POST", "in the POST", "between POST and store"]

OTHERS = 10


class Stop:
    """A place where whoever comes there first, once it is set up, stands still until it is let go on."""

    def __init__(self) -> None:
        self.set_up = False
        self._reached = threading.Event()
        self._go_on = threading.Event()

    def here(self) -> None:
        if self.set_up:
            self.set_up = False
            self._reached.set()
            assert self._go_on.wait(NEVER), "nobody let it go on"

    def wait_until_reached(self) -> None:
        assert self._reached.wait(NEVER), "nobody has come here"

    def go_on(self) -> None:
        self._go_on.set()


def stopping(sharing: TokenSharers, point: Point, stop: Stop) -> Callable[[float], str]:
    """An authenticate that stands still at a point."""
    api = sharing.api()

    def authenticate(seconds: float) -> str:
        if point == "before the POST":
            stop.here()
        token = api.authenticate(seconds)
        if point == "between POST and store":
            stop.here()
        return token

    return authenticate


class Freeze:
    """Instances with skewed clocks have a token. From `begin` on it is dead, and one of them holds the lock and stands
    still at a point.
    """

    def __init__(self, sharing: TokenSharers, point: Point, timing: Timing = UNHURRIED) -> None:
        sharing.timing = timing
        sharing.clock.hold()
        self._sharing = sharing
        self.others = sharing.several(OTHERS, SKEW)
        self.stop, self.successors_stop = Stop(), Stop()
        self.frozen = sharing.new(skew=-SKEW, authenticate=stopping(sharing, point, self.stop))
        successors = stopping(sharing, "between POST and store", self.successors_stop)
        self.successor = sharing.new(skew=SKEW, authenticate=successors)
        at_once([instance.get for instance in sharing.instances])
        self.let_the_token_age()

    def begin(self) -> None:
        self._sharing.service.invalidate()
        self.stop.set_up = True
        (self.message,) = start([self.frozen.ask])
        self.stop.wait_until_reached()

    def outlast_the_lease(self) -> None:
        self._sharing.clock.move(self._sharing.timing.lease + self._sharing.timing.spread)

    def let_the_token_age(self) -> None:
        """Until it may be refreshed, by the slowest clock too."""
        self._sharing.clock.move(self._sharing.timing.spread + self._sharing.timing.min_interval + 0.1)

    def all_are_answered(self) -> None:
        assert {self.message.result(), *at_once([each.ask for each in self._sharing.instances])} == {answer_to("hello")}
        assert self._sharing.stored_is_live()


def ask_after_standing_still_between_look_and_take(sharing: TokenSharers) -> str:
    """An instance finds that there is no token, and stands still until another has stored one; then it goes on."""
    stop = Stop()
    stop.set_up = True
    dynamodb = local_client("dynamodb", sharing.dynamodb.meta.endpoint_url)
    dynamodb.meta.events.register("before-call.dynamodb.UpdateItem", lambda **_: stop.here())
    (answer,) = start([sharing.new(dynamodb).ask])
    stop.wait_until_reached()
    sharing.new().get()
    stop.go_on()
    return answer.result()
