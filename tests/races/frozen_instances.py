"""Instances that pause at a breakpoint, like a frozen container, while other instances continue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from dev.emulator.chat_service import answer_to
from dev.emulator.local_clients import local_client
from slotkeeper.token import Timing
from tests.races.shared_token import LONG_LEASE, SKEW, TokenSharers, simultaneously, start
from tests.support.waiting import NEVER

Point = Literal["nowhere", "before the POST", "in the POST", "between POST and store"]

OTHERS = 10


class Breakpoint:
    """Pauses the first thread that reaches it after it is armed, until `resume`."""

    def __init__(self) -> None:
        self.armed = False
        self._reached = threading.Event()
        self._resumed = threading.Event()

    def reach(self) -> None:
        if self.armed:
            self.armed = False
            self._reached.set()
            assert self._resumed.wait(NEVER), "the breakpoint was not resumed"

    def wait_until_reached(self) -> None:
        assert self._reached.wait(NEVER), "the breakpoint was not reached"

    def resume(self) -> None:
        self._resumed.set()


def with_breakpoint(sharing: TokenSharers, point: Point, stop: Breakpoint) -> Callable[[float], str]:
    """An `authenticate` with a breakpoint."""
    api = sharing.api()

    def authenticate(seconds: float) -> str:
        if point == "before the POST":
            stop.reach()
        token = api.authenticate(seconds)
        if point == "between POST and store":
            stop.reach()
        return token

    return authenticate


class Freeze:
    """Instances with skewed clocks share a token. `begin` invalidates it, and pauses one instance with the lock."""

    def __init__(self, sharing: TokenSharers, point: Point, timing: Timing = LONG_LEASE) -> None:
        sharing.timing = timing
        sharing.clock.hold()
        self._sharing = sharing
        self.others = sharing.several(OTHERS, SKEW)
        self.stop, self.successors_breakpoint = Breakpoint(), Breakpoint()
        self.frozen = sharing.new(skew=-SKEW, authenticate=with_breakpoint(sharing, point, self.stop))
        successors = with_breakpoint(sharing, "between POST and store", self.successors_breakpoint)
        self.successor = sharing.new(skew=SKEW, authenticate=successors)
        simultaneously([instance.get for instance in sharing.instances])
        self.let_the_token_age()

    def begin(self) -> None:
        self._sharing.service.invalidate()
        self.stop.armed = True
        (self.message,) = start([self.frozen.ask])
        self.stop.wait_until_reached()

    def outlast_the_lease(self) -> None:
        self._sharing.clock.move(self._sharing.timing.lease + self._sharing.timing.spread)

    def let_the_token_age(self) -> None:
        """Move the clock until every instance may refresh the token, even with the slowest clock."""
        self._sharing.clock.move(self._sharing.timing.spread + self._sharing.timing.min_interval + 0.1)

    def all_are_answered(self) -> None:
        assert {self.message.result(), *simultaneously([each.ask for each in self._sharing.instances])} == {
            answer_to("hello")
        }
        assert self._sharing.stored_is_live()


def ask_with_pause_between_read_and_acquire(sharing: TokenSharers) -> str:
    """An instance reads that there is no token, and pauses until another one has stored a token. Returns its answer."""
    stop = Breakpoint()
    stop.armed = True
    dynamodb = local_client("dynamodb", sharing.dynamodb.meta.endpoint_url)
    dynamodb.meta.events.register("before-call.dynamodb.UpdateItem", lambda **_: stop.reach())
    (answer,) = start([sharing.new(dynamodb).ask])
    stop.wait_until_reached()
    sharing.new().get()
    stop.resume()
    return answer.result()
