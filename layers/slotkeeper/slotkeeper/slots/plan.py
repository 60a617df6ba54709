"""Who starts next: the rule of a process's queue, and its only home.

Requests of a higher priority start first. Within a priority the keys have turns, in their order: after a start of one
key it is the turn of the next one, and after the last one that of the first one. Within a key, requests start by the
time at which they were sent. Without keys this is one order: that of priority and time.

Requests start strictly in this order. The first one for which the process has no room keeps back all behind it,
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
next one behind each key that is passed: their number depends on the keys, and not on how many requests these have.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from slotkeeper.slots.process import MAX_HOLDERS, Process
from slotkeeper.slots.queued import (
    QUEUE_END,
    WHOLE,
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
# Requests of a read. As a rule they are 4 KB together, the unit by which a read is paid (DynamoDB guide, "Read
# capacity units").
FIRST_READ = 16

# Reads the part of a queue between two places: at most a number of requests, or None for 1 MB.
Read = Callable[[str, str, int | None], QueuePart]


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


# Of the first request for which the process has no room, which keeps back all behind it.
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
class Unread:
    """A part of the queue that must be known before more can be decided: behind `after`, up to `until`."""

    after: str
    until: str


@dataclass(frozen=True)
class Plan:
    """The changes that a dispatch may make now.

    Attributes:
        starts: the requests to start, in their order. One write may grant them all.
        leaves: the requests that leave the queue. They leave first: what is behind them may fit then.
        again: the holders whose starter has died, to be started again by name.
        waits: execution -> why it does not start, for every other request; while a part is unread, only of those that
            are decided.
        next_start: of the rate, after the starts, in milliseconds since the epoch.
        after_keys: rank of a priority -> the key of its last start, after the starts.
        look_again: when something changes without a write, in seconds since the epoch. None: nothing
            does within LOOK_AHEAD_SECONDS.
        unread: what must be read before it is known whether more can start. None: no more can in this round.
    """

    starts: tuple[PlannedStart, ...]
    leaves: tuple[Leave, ...]
    again: tuple[str, ...]
    waits: Mapping[str, Wait]
    next_start: int
    after_keys: Mapping[str, str]
    look_again: float | None
    unread: Unread | None = None


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


@dataclass(frozen=True)
class _Candidate:
    """A request that starts when it is its turn and it fits."""

    request: Queued
    weight: int


class _Turns:
    """The candidates of one priority, by key, and whose turn it is.

    Args:
        last: the key of the last start; "" sorts behind all keys, so that the first one is next.
    """

    def __init__(self, rank: str, last: str) -> None:
        self.rank, self.last = rank, last
        self.lines: dict[str, deque[_Candidate]] = {}  # also of keys without a candidate
        self.ends: dict[str, str] = {}  # key -> the place of its last candidate that was removed

    def remove(self, key: str) -> None:
        """Remove the first candidate of a key."""
        self.ends[key] = self.lines[key].popleft().request.place

    def next(self, parts: QueueParts, passed: Callable[[str], bool]) -> str | Unread | None:
        """The key whose turn is next, or what must be read to know it; None if no key has a candidate.

        Args:
            passed: whether a key is passed, so that it need not be known what it has.
        """
        at = behind_key(self.rank, self.last)
        for key in self._keys():
            begin, end = before_key(self.rank, key), behind_key(self.rank, key)
            if unread := self._unread(parts, at, begin):
                return unread
            at = end
            if passed(key):
                continue
            line = self.lines[key]
            after = parts.unread(self.ends.get(key, begin), line[0].request.place if line else end)
            if after is not None:
                return Unread(after, end)
            if line:
                return key
        return self._unread(parts, at, behind_key(self.rank, self.last))

    def rest(self) -> Iterator[_Candidate]:
        """Remove the candidates that are left, in turns."""
        left = deque(key for key in self._keys() if self.lines[key])
        while left:
            key = left.popleft()
            yield self.lines[key].popleft()
            if self.lines[key]:
                left.append(key)

    def _keys(self) -> list[str]:
        """The keys that are known, from the one behind the last turn up to that one."""
        keys = sorted(self.lines, key=_in_order)
        first = bisect_right(keys, _in_order(self.last), key=_in_order)
        return keys[first:] + keys[:first]

    def _unread(self, parts: QueueParts, at: str, until: str) -> Unread | None:
        """What is not known from one place round to another."""
        end = behind_rank(self.rank)
        for begin, ends in [(at, until)] if at <= until else [(at, end), (before_rank(self.rank), until)]:
            if (after := parts.unread(begin, ends)) is not None:
                return Unread(after, end)
        return None


def _in_order(key: str) -> tuple[bool, str]:
    return not key, key


class _Planning:
    """A plan in the making: first the starts, then why each of the others waits."""

    def __init__(self, process: Process, now: float, most: int) -> None:
        self.process, self.now, self.most = process, now, most
        self.free = _Free(process, now)
        self.ranks: dict[str, _Turns] = {}
        self.starts: list[PlannedStart] = []
        self.leaves: list[Leave] = []
        self.waits: dict[str, Wait] = {}
        self.times: list[float] = []  # at which something changes without a write
        self.full: set[str] = set()  # keys whose first request does not fit into their limit
        self.next_start = process.next_start
        self.after_keys = dict(process.after_keys)
        self.refused: Reason | None = None  # why the first request that cannot start cannot
        self._ahead: Counter[str | None] = Counter()  # the number of requests that wait, of each key, and None of all

    def sort(self, queued: Iterable[Queued]) -> None:
        """Divide the requests into candidates, by priority and key, and others, which are decided immediately."""
        for request in queued:
            rank, weight = rank_of(request.place), request.weight or self.process.default_weight
            turns = self.ranks.setdefault(rank, _Turns(rank, self.process.after_keys.get(rank, "")))
            line = turns.lines.setdefault(request.key, deque())
            if request.execution in self.process.holders:
                self.waits[request.execution] = Wait(Starting(), 0, 0)
            elif request.start_before is not None and self.now >= request.start_before:
                self.leaves.append(Leave(request.execution, "TOO_LATE"))
            elif reason := self.free.blocks(request.key, weight):
                self._wait(request, reason)
            else:
                line.append(_Candidate(request, weight))
        self.ranks = dict(sorted(self.ranks.items()))

    def start(self, parts: QueueParts) -> Unread | None:
        """Start what can start, in turns; return what must be read first, if anything must."""
        at = ""
        for rank, turns in self.ranks.items():
            if unread := self._unread(parts, at, before_rank(rank)):
                return unread
            while (key := turns.next(WHOLE if self._is_over() else parts, self._passes)) is not None:
                if isinstance(key, Unread):
                    return key
                candidate = turns.lines[key][0]
                request, weight = candidate.request, candidate.weight
                key_is_full = self.free.refuses_key(key, weight)
                reason = key_is_full or self.free.refuses(weight)
                if reason and request.skips:
                    turns.remove(key)
                    self._wait(request, reason)
                elif key_is_full:
                    self.full.add(key)
                elif reason:
                    return None
                else:
                    self._take(turns, candidate)
            at = behind_rank(rank)
        return self._unread(parts, at, QUEUE_END)

    def _take(self, turns: _Turns, candidate: _Candidate) -> None:
        request, weight, key = candidate.request, candidate.weight, candidate.request.key
        self.free.take(key, weight)
        turns.remove(key)
        turns.last = key
        if len(self.starts) == self.most:
            self._wait(request, NextRound())
            return
        self.starts.append(PlannedStart(request.execution, weight, key))
        self.next_start = self.free.next_start
        if key:
            self.after_keys[turns.rank] = key
        else:
            self.after_keys.pop(turns.rank, None)

    def _is_over(self) -> bool:
        """Whether no more can start in this round, whatever is queued."""
        return len(self.starts) == self.most or self.free.refuses(1) is not None

    def _passes(self, key: str) -> bool:
        return key in self.full or self.free.refuses_key(key, 1) is not None

    def _unread(self, parts: QueueParts, at: str, until: str) -> Unread | None:
        after = None if self._is_over() else parts.unread(at, until)
        return None if after is None else Unread(after, QUEUE_END)

    def wait(self) -> None:
        """Let all that is left wait, in turns."""
        first_of_key: dict[str, str] = {}
        first = ""
        for turns in self.ranks.values():
            for candidate in turns.rest():
                request, weight = candidate.request, candidate.weight
                reason: Reason | None
                if request.key in first_of_key:
                    reason = Behind(first_of_key[request.key])
                elif reason := self.free.refuses_key(request.key, weight):
                    if not request.skips:
                        first_of_key[request.key] = request.execution
                elif first:
                    reason = Behind(first)
                elif (reason := self.free.refuses(weight)) and not request.skips:
                    first, self.refused = request.execution, reason
                self._wait(request, reason or NextRound())

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

    def look_again(self, parts: QueueParts) -> float | None:
        """When something changes without a write, if that is soon."""
        if self.refused is None and parts.unread("", QUEUE_END) is not None:
            self.refused = self.free.refuses(1)
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
    planning = _Planning(process, now, most)
    planning.sort(queued)
    unread = planning.start(parts)
    look_again = None
    if unread is None:
        planning.wait()
        look_again = planning.look_again(parts)
    return Plan(
        tuple(planning.starts),
        tuple(planning.leaves),
        orphans(process, now, age),
        planning.waits,
        planning.next_start,
        planning.after_keys,
        look_again,
        unread,
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
    passed: tuple[str, str] | None = None,
) -> tuple[Plan, QueueParts]:
    """Plan with a queue of which as much is read as must be, and at most MAX_READS parts.

    Args:
        now, age, most: as of `plan`.
        passed: two places between which nothing can start (`passed_by`).
    """
    parts = QueueParts(_parts(passed) if passed else [])
    reserved = sum(holder.state == "RESERVED" for holder in process.holders.values())
    number = reserved + max(FIRST_READ, 1 + min(most, process.room))
    unread, ends = Unread(parts.unread("", QUEUE_END) or "", QUEUE_END), set[str]()
    for _ in range(MAX_READS):
        # A read that continues another one: many that cannot start are in front of one that perhaps can.
        part = read(unread.after, unread.until, None if unread.after in ends else number)
        ends.add(part.until)
        parts.add(part)
        planned = plan(process, parts.requests, now, age=age, most=most, parts=parts)
        if planned.unread is None:
            break
        unread = planned.unread
    return planned, parts


def passed_by(planned: Plan) -> tuple[str, str] | None:
    """The two places between which a plan has found nothing that can start, if it needs more reads."""
    if planned.unread is None:
        return None
    after, until = planned.unread.after, planned.unread.until
    if until == QUEUE_END:  # all of the higher priorities
        return "", after
    rank = rank_of(after)
    return behind_key(rank, planned.after_keys.get(rank, "")), after


def _parts(passed: tuple[str, str]) -> list[QueuePart]:
    after, until = passed
    if not after:
        return [QueuePart((), "", until)]
    rank = rank_of(until)
    begin, end = before_rank(rank), behind_rank(rank)
    around = [(after, until)] if after <= until else [(after, end), (begin, until)]
    return [QueuePart((), "", begin), *(QueuePart((), *each) for each in around)]
