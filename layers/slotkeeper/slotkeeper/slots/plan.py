"""Who starts next: the rule of a process's queue, and its only home.

The queued requests of a process have one order, that of their places: first by priority, then by the time at which they
were sent. They start strictly in this order. The first one that cannot start now keeps back all behind it, although a
lighter one of them might fit: otherwise a heavy request could wait forever. Two kinds are passed over:

- A request that has a holder: it is starting, or runs.
- A request whose weight is above the limit. It is *blocked*, and could not start if all slots were free.

A request leaves the queue without a start when its `start_before` has passed, or if it skips and cannot start now.

Nothing here reads or writes. `plan` is given a process's item, then the requests that were queued after that read, and
the time. Its result is what a dispatch may do, and for every other request the reason why it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from slotkeeper.slots.process import MAX_HOLDERS, Process
from slotkeeper.slots.queued import Queued
from slotkeeper.slots.rate import after_start, milliseconds

# Holders that one write adds. Each has a placeholder in the expression, and a refused write is paid in full.
MAX_STARTS = 25
# SQS delays a message for at most 15 minutes (SQS API Reference, SendMessage, DelaySeconds). The janitor's dispatch of
# each minute finds what comes later.
LOOK_AHEAD_SECONDS = 900


@dataclass(frozen=True)
class Starting:
    """It has a holder: an invocation has reserved its slot and starts it, or its workflow runs already."""


@dataclass(frozen=True)
class Blocked:
    """Its weight is above the limit. It keeps no other request back, and starts when the limit is raised."""

    weight: int
    slot_limit: int


@dataclass(frozen=True)
class Stopped:
    """The limit is 0."""


@dataclass(frozen=True)
class InPause:
    """An operator has paused the process."""


@dataclass(frozen=True)
class NoRoom:
    """It is next, and does not fit. `room`: the free part of the limit, below 0 after the limit was lowered."""

    weight: int
    room: int


@dataclass(frozen=True)
class TooManyHolders:
    """It is next, and the process has as many holders as its item may have."""

    most: int = MAX_HOLDERS


@dataclass(frozen=True)
class TooEarly:
    """It is next, and the rate permits its start from `due` on, in milliseconds since the epoch."""

    due: int


@dataclass(frozen=True)
class Behind:
    """An earlier request cannot start now. `first`: the execution of the first one that cannot."""

    first: str


@dataclass(frozen=True)
class NextRound:
    """It can start now, with the next write: this one adds as many holders as one may."""


Reason = Starting | Blocked | Stopped | InPause | NoRoom | TooManyHolders | TooEarly | Behind | NextRound


@dataclass(frozen=True)
class Wait:
    """Why a request does not start now. `ahead`: the number of requests that start before it; None while it is blocked.

    The next request to start has no other ahead of it.
    """

    reason: Reason
    ahead: int | None


@dataclass(frozen=True)
class PlannedStart:
    """A request that may start now, with its weight in the unit of the limit."""

    execution: str
    weight: int


@dataclass(frozen=True)
class Leave:
    """A request that leaves the queue without a start, and how it ends."""

    execution: str
    end: Literal["SKIPPED", "TOO_LATE"]


@dataclass(frozen=True)
class Plan:
    """The changes that a dispatch may make now.

    Attributes:
        starts: the requests to start, in their order. One write may grant them all.
        leaves: the requests that leave the queue. They leave first: what is behind them may fit then.
        again: the holders whose starter has died, to be started again by name.
        waits: execution -> why it does not start, for every other request.
        next_start: of the rate, after the starts, in milliseconds since the epoch.
        look_again: when something changes without a write, in seconds since the epoch. None: nothing
            does within LOOK_AHEAD_SECONDS.
    """

    starts: tuple[PlannedStart, ...]
    leaves: tuple[Leave, ...]
    again: tuple[str, ...]
    waits: Mapping[str, Wait]
    next_start: int
    look_again: float | None

    @property
    def is_decided(self) -> bool:
        """Whether no request behind the planned ones can start in this round."""
        return any(not isinstance(wait.reason, Starting | Blocked | Stopped) for wait in self.waits.values())


class _Free:
    """The free part of a process while its queue is planned: of the limit, of the holders, and of the rate."""

    def __init__(self, process: Process, now: float) -> None:
        self.process, self.now = process, now
        self.room = process.room
        self.holders = MAX_HOLDERS - len(process.holders)
        self.next_start = process.next_start

    def refuses(self, weight: int) -> Reason | None:
        """Why the next request cannot start; None if it can."""
        if self.process.paused:
            return InPause()
        if weight > self.room:
            return NoRoom(weight, self.room)
        if self.holders < 1:
            return TooManyHolders()
        if self.process.rate and (due := self.next_start - self.process.rate.lead) > milliseconds(self.now):
            return TooEarly(due)
        return None

    def take(self, weight: int) -> None:
        self.room -= weight
        self.holders -= 1
        if self.process.rate:
            self.next_start = after_start(self.process.rate, self.next_start, self.now)


def plan(process: Process, queued: Iterable[Queued], now: float, *, age: float, most: int = MAX_STARTS) -> Plan:
    """Decide who starts, who leaves, and why each of the others waits.

    Args:
        queued: the requests in the order of their places. They were read after the process's item: one that was
            released before that read is then no longer queued, and does not start twice.
        now: seconds since the epoch.
        age: seconds after which the starter of a reservation has died: the longest time that an invocation may take.
        most: the number of holders that one write may add.
    """
    free = _Free(process, now)
    starts: list[PlannedStart] = []
    leaves: list[Leave] = []
    waits: dict[str, Wait] = {}
    times: list[float] = []  # at which something changes without a write
    ahead, first, refused = 0, "", None  # the first request that cannot start, and why
    next_start = process.next_start
    for request in queued:
        weight = request.weight or process.default_weight
        if request.execution in process.holders:
            waits[request.execution] = Wait(Starting(), 0)
            continue
        if request.start_before is not None and now >= request.start_before:
            leaves.append(Leave(request.execution, "TOO_LATE"))
            continue
        is_blocked = weight > process.slot_limit
        reason: Reason | None
        if is_blocked:
            reason = Blocked(weight, process.slot_limit) if process.slot_limit else Stopped()
        else:
            reason = Behind(first) if first else free.refuses(weight)
        if reason and request.skips:
            leaves.append(Leave(request.execution, "SKIPPED"))
            continue
        if not reason:
            free.take(weight)
            if len(starts) < most:
                starts.append(PlannedStart(request.execution, weight))
                next_start = free.next_start
                continue
            reason = NextRound()
        elif not is_blocked and not first:
            first, refused = request.execution, reason
        waits[request.execution] = Wait(reason, None if is_blocked else ahead)
        ahead += not is_blocked
        if request.start_before is not None:
            times.append(request.start_before)
    if isinstance(refused, TooEarly):
        times.append(refused.due / 1000)
    if isinstance(refused, NoRoom | TooManyHolders) and process.next_expiry is not None:
        times.append(process.next_expiry)
    look_again = min((time for time in times if time <= now + LOOK_AHEAD_SECONDS), default=None)
    return Plan(tuple(starts), tuple(leaves), orphans(process, now, age), waits, next_start, look_again)


def orphans(process: Process, now: float, age: float) -> tuple[str, ...]:
    """The reservations whose starter has died. One that is younger is another invocation's work.

    A holder's time is in whole seconds, rounded down.
    """
    reserved = ((name, holder) for name, holder in process.holders.items() if holder.state == "RESERVED")
    return tuple(name for name, holder in reserved if now >= holder.since + 1 + age)
