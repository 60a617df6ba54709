"""Who starts next: the rule of a process's queue, and its only home.

Requests of a higher priority start first. Within a priority the keys have turns, in their order: after a start of one
key it is the turn of the next one, and after the last one that of the first one. Within a key, requests start by the
time at which they were sent. Without keys this is one order: that of priority and time.

Requests start strictly in this order. The first one for which the process is too full keeps back all behind it,
although a lighter one of them might fit: otherwise a heavy request could wait forever. Passed over are:

- A request that has a holder: it is starting, or runs.
- A request whose weight is above the limit of the process or of its key. It is *blocked*, and could not start if all
  slots were free.
- A key whose first request does not fit into its limit. That request keeps back all of its key, of each priority.

So if a key always has a request that may start, then between two of its starts each other key of its priority starts
at most one: of n starts in a row, among k keys, it has at least n / k, rounded down. For a new key it is the same: each
other key starts at most one before its first.

A request leaves the queue without a start when its `start_before` has passed, or if it skips and cannot start now.

Nothing here writes. `plan` is given a process's item, what was read of its queue after that, and the time. Its result
is what a dispatch may do, which part of the queue it must know for that, and why each request waits. `plan_queue` reads
those parts. Without keys they are the queue's head. With keys a read begins behind the key whose turn was last, and the
next one behind each key that is passed: their number depends on the keys, and not on how many requests these have. Such
a key has a holder, or its limit is 0.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from slotkeeper.slots.process import MAX_HOLDERS, Process
from slotkeeper.slots.queued import (
    QUEUE_END,
    QUEUE_START,
    WHOLE,
    Passed,
    Queued,
    QueuePart,
    QueueParts,
    before_key,
    before_rank,
    behind_key,
    behind_rank,
    rank_of,
)
from slotkeeper.slots.rate import after_start, milliseconds

# Holders that one write adds. Each has a placeholder in the expression, and a refused write is paid in full.
MAX_STARTS = 25
# SQS delays a message for at most 15 minutes (SQS API Reference, SendMessage, DelaySeconds). The janitor's dispatch of
# each minute finds what comes later.
LOOK_AHEAD_SECONDS = 900
# Reads of one plan: some 300,000 blocked requests in front of one that fits, or 100 keys that are at their limit.
MAX_READS = 100
# Requests of a read behind a key. As a rule they are 4 KB together, the unit by which a read is paid (DynamoDB guide,
# "Read capacity units").
KEY_READ = 16

# Reads the part of a queue behind a place: at most a number of requests, or None for 1 MB.
Read = Callable[[str, int | None], QueuePart]


@dataclass(frozen=True)
class Starting:
    """It has a holder: an invocation has reserved its slot and starts it, or its workflow runs already."""


@dataclass(frozen=True)
class Blocked:
    """Its weight is above the limit. It keeps no other request back, and starts when the limit is raised."""

    weight: int
    slot_limit: int


@dataclass(frozen=True)
class KeyBlocked:
    """Its weight is above the limit of its key. It keeps no other request back."""

    key: str
    weight: int
    key_limit: int


@dataclass(frozen=True)
class KeyFull:
    """It is the first of its key, and does not fit into the key's limit. `room`: the free part of that limit."""

    key: str
    weight: int
    room: int


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
    """An earlier request cannot start now.

    Attributes:
        first: the execution of the first one that cannot: of its key if that one is KeyFull, otherwise of all.
    """

    first: str


@dataclass(frozen=True)
class NextRound:
    """It can start now, with the next write: this one adds as many holders as one may."""


# Of the first request that the process cannot start now, which keeps back all behind it.
HoldsBack = InPause | NoRoom | TooManyHolders | TooEarly
# Of a request that could not start if all slots were free.
NeverStarts = Blocked | KeyBlocked | Stopped
Reason = Starting | NeverStarts | KeyFull | HoldsBack | Behind | NextRound


@dataclass(frozen=True)
class Wait:
    """Why a request does not start now.

    Attributes:
        ahead: the number of requests that start before it, if no key's limit changes the turns. The next request to
            start has no other ahead of it. None while it is blocked.
        ahead_of_key: how many of them have its key.
    """

    reason: Reason
    ahead: int | None
    ahead_of_key: int | None = None


@dataclass(frozen=True)
class PlannedStart:
    """A request that may start now, with its weight in the unit of the limit, and its key; "" for none."""

    execution: str
    weight: int
    key: str = ""


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
        waits: execution -> why it does not start, for every other request. Incomplete while a part is unread.
        next_start: of the rate, after the starts, in milliseconds since the epoch.
        after_keys: rank of a priority -> the key of its last start, after the starts.
        look_again: when something changes without a write, in seconds since the epoch. None: nothing
            does within LOOK_AHEAD_SECONDS.
        unread: the part in which nothing can start, behind which must be read before it is known whether more can
            start. None: no more can in this round.
    """

    starts: tuple[PlannedStart, ...]
    leaves: tuple[Leave, ...]
    again: tuple[str, ...]
    waits: Mapping[str, Wait]
    next_start: int
    after_keys: Mapping[str, str]
    look_again: float | None
    unread: Passed | None = None


class _Free:
    """The free part of a process while its queue is planned: of the limit, of each key, of the holders, of the rate."""

    def __init__(self, process: Process, now: float) -> None:
        self.process, self.now = process, now
        self.room = process.room
        self.holders = MAX_HOLDERS - len(process.holders)
        self.next_start = process.next_start
        self.held_by_key = Counter(process.held_by_key)

    def blocks(self, key: str, weight: int) -> NeverStarts | None:
        """Why a request could not start if all slots were free; None if it could."""
        if not self.process.slot_limit:
            return Stopped()
        if weight > self.process.slot_limit:
            return Blocked(weight, self.process.slot_limit)
        limit = self.process.limit_of(key)
        return None if limit is None or weight <= limit else KeyBlocked(key, weight, limit)

    def refuses_key(self, key: str, weight: int) -> KeyFull | None:
        """Whether the first request of a key does not fit into the key's limit."""
        limit = self.process.limit_of(key)
        if limit is None or weight <= (room := limit - self.held_by_key[key]):
            return None
        return KeyFull(key, weight, room)

    def refuses(self, weight: int) -> HoldsBack | None:
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

    def take(self, key: str, weight: int) -> None:
        self.room -= weight
        self.holders -= 1
        self.held_by_key[key] += weight
        if self.process.rate:
            self.next_start = after_start(self.process.rate, self.next_start, self.now)


class _Planning:
    """A plan in the making: first the starts, then why each of the others waits."""

    def __init__(self, process: Process, now: float, most: int, parts: QueueParts) -> None:
        self.process, self.now, self.most, self.parts = process, now, most, parts
        self.free = _Free(process, now)
        # rank -> key -> the requests that start when it is their turn and they fit; a key may have none
        self.lines: dict[str, dict[str, deque[Queued]]] = {rank: {} for rank in process.after_keys}
        self.starts: list[PlannedStart] = []
        self.leaves: list[Leave] = []
        self.waits: dict[str, Wait] = {}
        self.times: list[float] = []  # at which something changes without a write
        self.next_start = process.next_start
        self.after_keys = process.after_keys
        self.last = dict(process.after_keys)  # the same, also after the starts of the next round
        self.full = set(parts.full_keys)  # keys whose first request does not fit into their limit
        self.refused: HoldsBack | None = None  # why the process cannot start the next request
        self.unread: Passed | None = None
        self._ahead: Counter[str | None] = Counter()  # the number of requests that wait, of each key, and None of all

    def sort(self, queued: Iterable[Queued]) -> None:
        """Divide the requests into lines, and others, which are decided immediately."""
        for request in queued:
            line = self.lines.setdefault(rank_of(request.place), {}).setdefault(request.key, deque())
            if request.execution in self.process.holders:
                self.waits[request.execution] = Wait(Starting(), 0, 0)
            elif request.start_before is not None and self.now >= request.start_before:
                self.leaves.append(Leave(request.execution, "TOO_LATE"))
            elif reason := self.free.blocks(request.key, self._weight(request)):
                self._wait(request, reason)
            elif not self.parts.is_passed(request.place):
                line.append(request)
            elif request.start_before is not None:  # decided when it was passed; one that came later has a dispatch
                self.times.append(request.start_before)

    def start(self) -> None:
        """Start what can start, until something must be read, or the process can start no more."""
        at = QUEUE_START
        for rank in sorted(self.lines):
            if self._knows(QUEUE_START, at, before_rank(rank)):
                self._take_turns(rank)
            if self.refused or self.unread:
                return
            at = behind_rank(rank)
        self._knows(QUEUE_START, at, QUEUE_END)

    def _take_turns(self, rank: str) -> None:
        last = self._last_turn(rank)
        turns: deque[str | tuple[str, str]] = deque()  # each key, and each part between two keys: it may contain others
        for begin, end in [(last, behind_rank(rank)), (before_rank(rank), last)]:
            at = begin
            for key in self.lines[rank]:
                if begin < (behind := behind_key(rank, key)) <= end:
                    turns += [(at, before_key(rank, key)), key]
                    at = behind
            turns.append((at, end))
        while turns and not self.refused and not self.unread:
            turn = turns.popleft()
            if isinstance(turn, tuple):
                self._knows(self._last_turn(rank), *turn)
            elif self._starts_one(rank, turn):
                turns.append(turn)

    def _starts_one(self, rank: str, key: str) -> bool:
        """Start the next request of a key, if it can start."""
        line = self.lines[rank][key]
        while key not in self.full and not self.free.refuses_key(key, 1):
            until = line[0].place if line else behind_key(rank, key)
            if not self._knows(self._last_turn(rank), before_key(rank, key), until) or not line:
                return False
            request, weight = line[0], self._weight(line[0])
            reason = self.free.refuses_key(key, weight) or self.free.refuses(weight)
            if not reason:
                self._take(rank, line.popleft(), weight)
                return True
            if request.skips:
                self._wait(line.popleft(), reason)
            elif isinstance(reason, KeyFull):
                self.full.add(key)
            else:
                self.refused = reason
                return False
        return False

    def _take(self, rank: str, request: Queued, weight: int) -> None:
        self.free.take(request.key, weight)
        self.last[rank] = request.key
        if len(self.starts) == self.most:
            self._wait(request, NextRound())
            return
        self.starts.append(PlannedStart(request.execution, weight, request.key))
        self.next_start = self.free.next_start
        self.after_keys = {rank: key for rank, key in self.last.items() if key}

    def _knows(self, since: str, after: str, until: str) -> bool:
        """Whether a part is known, or need not be, since no more can start in this round."""
        begin = self.parts.unread(after, until)
        if begin is None:
            return True
        self.refused = self.free.refuses(1)
        if not self.refused and len(self.starts) < self.most:
            self.unread = (since, begin, *sorted(self.full))
        return not self.refused and not self.unread

    def _weight(self, request: Queued) -> int:
        return request.weight or self.process.default_weight

    def _last_turn(self, rank: str) -> str:
        """Behind the key whose turn was last. Without one that is behind all keys, so that the first one is next."""
        return behind_key(rank, self.last.get(rank, ""))

    def wait(self) -> None:
        """Let all that is left wait, in the order in which it would start; while a part is unread, what was passed."""
        passed = QueueParts(passed=self.unread)
        first_of_key: dict[str, str] = {}
        first = ""
        for request in self._left():
            reason: Reason | None
            if self.unread and not passed.is_passed(request.place):
                continue
            if request.key in first_of_key:
                reason = Behind(first_of_key[request.key])
            elif reason := self.free.refuses_key(request.key, self._weight(request)):
                if not request.skips:
                    first_of_key[request.key] = request.execution
            elif first:
                reason = Behind(first)
            elif (reason := self.free.refuses(self._weight(request))) and not request.skips:
                first = request.execution
            self._wait(request, reason or NextRound())

    def _left(self) -> Iterator[Queued]:
        """Remove the requests that are left, in turns."""
        for rank, lines in sorted(self.lines.items()):
            last = self._last_turn(rank)
            turns = deque(sorted(lines, key=lambda key: behind_key(rank, key) <= last))
            while turns:
                if line := lines[key := turns.popleft()]:
                    yield line.popleft()
                    turns.append(key)

    def _wait(self, request: Queued, reason: Reason) -> None:
        """Let a request wait, or leave if it skips."""
        if request.skips and not isinstance(reason, NextRound):
            self.leaves.append(Leave(request.execution, "SKIPPED"))
            return
        if isinstance(reason, NeverStarts):
            self.waits[request.execution] = Wait(reason, None)
        else:
            self.waits[request.execution] = Wait(reason, self._ahead[None], self._ahead[request.key])
            self._ahead.update([None, request.key])
        if request.start_before is not None:
            self.times.append(request.start_before)

    def look_again(self) -> float | None:
        """When something changes without a write, if that is soon."""
        if isinstance(self.refused, TooEarly):
            self.times.append(self.refused.due / 1000)
        if isinstance(self.refused, NoRoom | TooManyHolders) and self.process.next_expiry is not None:
            self.times.append(self.process.next_expiry)
        return min((time for time in self.times if time <= self.now + LOOK_AHEAD_SECONDS), default=None)


def plan(
    process: Process,
    queued: Iterable[Queued],
    now: float,
    *,
    age: float,
    most: int = MAX_STARTS,
    parts: QueueParts = WHOLE,
) -> Plan:
    """Decide who starts, who leaves, and why each of the others waits.

    Args:
        queued: the requests in the order of their places. They were read after the process's item: one that was
            released before that read is then no longer queued, and does not start twice.
        now: seconds since the epoch.
        age: seconds after which the starter of a reservation has died: the longest time that an invocation may take.
        most: the number of holders that one write may add.
        parts: the parts of the queue that were read. By default all of it.
    """
    planning = _Planning(process, now, most, parts)
    planning.sort(queued)
    planning.start()
    planning.wait()
    return Plan(
        tuple(planning.starts),
        tuple(planning.leaves),
        orphans(process, now, age),
        planning.waits,
        planning.next_start,
        planning.after_keys,
        None if planning.unread else planning.look_again(),
        planning.unread,
    )


def orphans(process: Process, now: float, age: float) -> tuple[str, ...]:
    """The reservations whose starter has died. One that is younger is another invocation's work.

    A holder's time is in whole seconds, rounded down.
    """
    reserved = ((name, holder) for name, holder in process.holders.items() if holder.state == "RESERVED")
    return tuple(name for name, holder in reserved if now >= holder.since + 1 + age)


def plan_queue(
    read: Read,
    process: Process,
    now: float,
    *,
    age: float,
    most: int = MAX_STARTS,
    passed: Passed | None = None,
) -> tuple[Plan, QueueParts]:
    """Plan with a queue of which as much is read as must be, and at most MAX_READS parts.

    Args:
        now, age, most: as of `plan`.
        passed: of a plan that had to read more: what it found that it need not know (`Plan.unread`).
    """
    parts = QueueParts(passed=passed)
    reserved = sum(holder.state == "RESERVED" for holder in process.holders.values())
    number, after, ends = reserved + most + 1, passed[1] if passed else QUEUE_START, set[str]()
    for _ in range(MAX_READS):
        # A read that continues another one: many that cannot start are in front of one that perhaps can.
        part = read(after, None if after in ends else number)
        parts.add(part)
        ends.add(part.until)
        planned = plan(process, parts.requests, now, age=age, most=most, parts=parts)
        if planned.unread is None:
            break
        after, number = planned.unread[1], reserved + max(KEY_READ, 1 + min(most, process.room))
    return planned, parts
