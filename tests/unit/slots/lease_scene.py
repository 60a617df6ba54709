"""Leases of the process `p` in the small account, with a clock that only waiting moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots import Leases
from slotkeeper.slots.process import Holder
from tests.unit.conftest import NOW, Account


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


@dataclass
class LeaseScene:
    """Two callers, each with its own clock. `leases` is one, `other` the second one."""

    account: Account

    def __post_init__(self) -> None:
        self.clock, self.others_clock = LeaseClock(), LeaseClock()
        self.leases, self.other = self.caller(self.clock), self.caller(self.others_clock, "other")
        self.account.write("queue_url", {"S": self.account.queue_url})

    def caller(self, clock: LeaseClock, owner: str = "me", **changes: Any) -> Leases:
        account = self.account
        arguments: dict[str, Any] = {
            "owner": owner,
            "clock": lambda: clock.time,
            "monotonic": clock.monotonic,
            "sleep": clock.sleep,
            "jitter": lambda _, high: high,
        }
        return Leases(account.slot_table, account.dynamodb, account.sqs, **arguments | changes)

    def invocation(self, seconds: float) -> Invocation:
        return Invocation(self.clock, self.clock.time + seconds)

    def holders(self) -> dict[str, Holder]:
        return dict(self.account.item().holders)

    def owners(self) -> list[str]:
        """Whose leases there are, in order of their names."""
        return sorted(name.split("-")[1] for name in self.holders() if name.startswith("lease-"))

    def is_visible(self) -> bool:
        """Whether the queue has a message that can be received."""
        return bool(self.account.messages(self.account.queue_url))

    def expired(self, weight: int = 1, age: float = CLOCK_SKEW_SECONDS, name: str = "lease-dead-0") -> str:
        """A lease whose holder died, `age` seconds after its end; return its name."""
        account, until = self.account, int(self.clock.time - age)
        entry = {
            "state": {"S": "LEASED"},
            "since": {"N": str(until - 60)},
            "until": {"N": str(until)},
            "code": {"S": f"code of {name}"},
        } | ({"weight": {"N": str(weight)}} if weight > 1 else {})
        account.dynamodb.update_item(
            TableName=account.slot_table,
            Key={"process_name": {"S": "p"}},
            UpdateExpression="SET slots_in_use = slots_in_use + :weight, holders.#me = :entry",
            ExpressionAttributeNames={"#me": name},
            ExpressionAttributeValues={":weight": {"N": str(weight)}, ":entry": {"M": entry}},
        )
        return name
