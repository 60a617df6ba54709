"""Leases of the process `p` on the simulated tables, with a clock that only waiting moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slotkeeper.settings import CLOCK_SKEW_SECONDS, NO_TARGET
from slotkeeper.slots import Leases
from slotkeeper.slots.process import Holder
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene, leased


@dataclass
class LeaseClock:
    """`time`: seconds since the epoch. A wait moves it, and calls the next of `during_waits` first."""

    time: float = NOW
    waits: list[float] = field(default_factory=list)
    during_waits: list[Callable[[], Any]] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        if self.during_waits:
            self.during_waits.pop(0)()
        self.time += seconds

    def monotonic(self) -> float:
        return self.time - NOW


@dataclass
class Invocation:
    """Lambda's context object, of an invocation that Lambda stops at `deadline` by the clock."""

    clock: LeaseClock
    deadline: float

    def get_remaining_time_in_millis(self) -> int:
        return int((self.deadline - self.clock.time) * 1000)


class LeaseScene(QueueScene):
    """The process `p` for leases alone, or with a target, and two callers, each with its own clock.

    `leases` is one caller, `other` the second one.
    """

    def __init__(self, limit: int = 1, target: str = NO_TARGET) -> None:
        super().__init__(limit)
        self.change(target={"S": target})
        self.clock, self.others_clock = LeaseClock(), LeaseClock()
        self.leases, self.other = self.caller(self.clock), self.caller(self.others_clock, owner="other")

    def caller(self, clock: LeaseClock | None = None, **changes: Any) -> Leases:
        clock = clock or self.clock
        arguments: dict[str, Any] = {
            "request_table_name": "requests",
            "dispatch_queue_url": "https://sqs/bells",
            "owner": "me",
            "clock": lambda: clock.time,
            "monotonic": clock.monotonic,
            "sleep": clock.sleep,
            "jitter": lambda _, high: high,
        }
        return Leases("slots", self.dynamodb, self.sqs, **arguments | changes)

    def invocation(self, seconds: float) -> Invocation:
        return Invocation(self.clock, self.clock.time + seconds)

    @property
    def held(self) -> dict[str, Holder]:
        return dict(self.process.holders)

    @property
    def owners(self) -> list[str]:
        """Whose leases there are, in order of their names."""
        return sorted(name.split("-")[1] for name in self.held if name.startswith("lease-"))

    def expired(self, weight: int = 1, age: float = CLOCK_SKEW_SECONDS, name: str = "lease-dead-0") -> str:
        """Add a lease whose holder died, `age` seconds after its end; return its name."""
        code = {"code": {"S": f"code of {name}"}}
        self.hold({name: leased(self.clock.time - age, weight) | code})
        return name
