"""Replays the queue of a process over time, by the rule that starts requests. Pure.

The layer's `plan` decides who starts. This module is only the clock and the queue: at each arrival, release, change of
a setting, and each time at which the plan asks to look again, it plans, and starts what the plan starts. What-if
replays recorded requests with it, and expected starts the requests that are queued now.

Times are seconds since the epoch, weights in the unit of the limit.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from typing import Any

from slotkeeper.slots.plan import MAX_STARTS, Plan, TooEarly, Wait, plan
from slotkeeper.slots.process import MAX_HOLDERS, Holder, Process
from slotkeeper.slots.queued import Queued
from slotkeeper.slots.rate import after_start

# Seconds from one start to the next one of a process that could start too: 30 a second (docs/performance.md).
START_SECONDS = 1 / 30
# Requests at the head of the queue with which a plan begins. It reads more, until one of them cannot start.
_HEAD = 8
# The order of what happens at one instant: dispatches come between.
_FIRST, _START = 0, 1


@dataclass(frozen=True)
class Work:
    """A request in a replay.

    Attributes:
        place: text that sorts before the place of each request behind it.
        arrives: when it is in the queue.
        seconds: for how long it holds its slot; infinite if that is not known.
        skips: whether it leaves the queue if it cannot start when it arrives.
        leaves: when it leaves the queue if it has not started.
    """

    execution: str
    place: str
    arrives: float
    seconds: float
    weight: int = 1
    skips: bool = False
    leaves: float = math.inf


@dataclass(frozen=True)
class Change:
    """The settings of a process that change at a time, as fields of `Process`."""

    at: float
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Delays:
    """What starts take beyond the rule, in seconds: after a release, and from one start to the next one."""

    hand_off: float = 0.0
    pace: float = 0.0


@dataclass(frozen=True)
class Course:
    """What happened in a replay, by execution.

    Attributes:
        starts: when each request started.
        left: when each of the others left the queue without a start.
        waits: why each of the rest does not start, ever.
    """

    starts: Mapping[str, float]
    left: Mapping[str, float]
    waits: Mapping[str, Wait]


def replay(
    process: Process,
    works: Sequence[Work],
    now: float,
    *,
    ends: Mapping[str, float],
    changes: Sequence[Change] = (),
    delays: Delays = Delays(),
) -> Course:
    """Replay requests until no more can start.

    Args:
        process: as it is at the begin.
        works: in any order.
        now: the begin.
        ends: when each holder of the process frees its slot; infinite if that is not known.
        changes: of its settings, by time.
    """
    run = _Run(process, works, now, ends, changes, delays)
    run.to_the_end()
    return Course(run.starts, run.left, run.waits())


def startable(
    process: Process,
    works: Sequence[Work],
    now: float,
    *,
    ends: Mapping[str, float],
    changes: Sequence[Change],
    starts: Mapping[str, float],
) -> dict[str, float]:
    """From when on each request could start by the rule, while all start as recorded.

    A request that never could is not in the result. Arguments are those of `replay`.

    Args:
        starts: when each request started; those that are missing did not.
    """
    run = _Observation(process, works, now, ends, changes, starts)
    run.to_the_end()
    return run.startable


class _Run:
    def __init__(
        self,
        process: Process,
        works: Sequence[Work],
        now: float,
        ends: Mapping[str, float],
        changes: Sequence[Change],
        delays: Delays,
    ) -> None:
        self.starts, self.left = dict[str, float](), dict[str, float]()
        self._delays = delays
        self._holders = dict(process.holders)  # changed in place
        # The counter stays 0: the rule takes the holders' weights, which are more.
        self._process = replace(process, holders=self._holders, slots_in_use=0)
        self._events: list[tuple[float, int, int, Callable[[], object]]] = []
        self._numbers = count()
        self._queue: list[Work] = []  # by place
        self._skipping: list[Work] = []
        self._now = self._busy_until = now
        self._looks_at = math.inf
        self._at(now, self._nothing)
        for name, end in ends.items():
            self._at(max(now, end), partial(self._free, name))
        for change in changes:
            self._at(max(now, change.at), partial(self._change, change.fields))
        for work in works:
            self._at(max(now, work.arrives), partial(self._arrive, work))

    def to_the_end(self) -> None:
        """Let all happen, in the order of time."""
        while self._events:
            instant = self._events[0][:2]
            self._now = instant[0]
            while self._events and self._events[0][:2] == instant:
                heapq.heappop(self._events)[-1]()
            self._dispatch()

    def waits(self) -> Mapping[str, Wait]:
        """Why the requests that are left in the queue do not start."""
        return plan(self._process, map(_queued, self._queue), self._now, age=math.inf).waits if self._queue else {}

    def _at(self, at: float, happens: Callable[[], object], order: int = _FIRST) -> None:
        if at < math.inf:
            heapq.heappush(self._events, (at, order, next(self._numbers), happens))

    def _nothing(self) -> None:
        """A dispatch follows."""

    def _arrive(self, work: Work) -> None:
        insort(self._queue, work, key=_place)
        self._at(max(self._now, work.leaves), partial(self._leave, work))
        if work.skips:
            self._skipping.append(work)

    def _leave(self, work: Work) -> None:
        if self._remove(work):
            self.left[work.execution] = self._now

    def _free(self, name: str) -> None:
        self._holders.pop(name, None)

    def _change(self, fields: Mapping[str, Any]) -> None:
        self._process = replace(self._process, **fields)

    def _dispatch(self) -> None:
        if self._now < self._busy_until:
            return  # a dispatch comes then
        planned, works = self._plan(MAX_STARTS)
        for number, start in enumerate(planned.starts):
            self._remove(works[start.execution])
            self._hold(works[start.execution], self._now + number * self._delays.pace)
        if planned.starts:
            self._process = replace(self._process, next_start=planned.next_start)
            self._busy_until = self._now + len(planned.starts) * self._delays.pace
            self._at(self._busy_until, self._nothing)
        for work in self._skipping:
            self._leave(work)
        self._skipping.clear()
        self._look_again(planned)

    def _look_again(self, planned: Plan) -> None:
        """Dispatch again when the rate permits the next start."""
        if self._looks_at <= self._now:
            self._looks_at = math.inf
        reasons = (wait.reason for wait in planned.waits.values())
        due = next((reason.due / 1000 for reason in reasons if isinstance(reason, TooEarly)), math.inf)
        if due < self._looks_at:
            self._looks_at = due
            self._at(due, self._nothing)

    def _plan(self, most: int) -> tuple[Plan, dict[str, Work]]:
        """The plan of the queue, of which as much is read as it needs, and the requests that were read."""
        number = _HEAD
        while True:
            fitting = (each for each in self._queue if each.weight <= self._process.slot_limit)
            read = list(islice(fitting, number))
            planned = plan(self._process, map(_queued, read), self._now, age=math.inf, most=most)
            if planned.is_decided or len(read) < number:
                return planned, {each.execution: each for each in read}
            number *= 4

    def _hold(self, work: Work, started: float) -> None:
        self.starts[work.execution] = started
        self._holders[work.execution] = Holder("RUNNING", int(started), "", None, {}, work.weight)
        self._at(started + work.seconds + self._delays.hand_off, partial(self._free, work.execution))

    def _remove(self, work: Work) -> bool:
        """Remove a request from the queue; False if it is not in it."""
        at = bisect_left(self._queue, work.place, key=_place)
        is_in = at < len(self._queue) and self._queue[at] is work
        if is_in:
            self._queue.pop(at)
        return is_in


class _Observation(_Run):
    """All start as recorded: it only notes from when on each could."""

    def __init__(
        self,
        process: Process,
        works: Sequence[Work],
        now: float,
        ends: Mapping[str, float],
        changes: Sequence[Change],
        starts: Mapping[str, float],
    ) -> None:
        super().__init__(process, works, now, ends, changes, Delays())
        self.startable = dict[str, float]()
        for work in works:
            self._at(starts.get(work.execution, math.inf), partial(self._start, work), _START)

    def _start(self, work: Work) -> None:
        self._remove(work)
        self._hold(work, self._now)
        if self._process.rate:
            following = after_start(self._process.rate, self._process.next_start, self._now)
            self._process = replace(self._process, next_start=following)

    def _dispatch(self) -> None:
        planned, _ = self._plan(MAX_HOLDERS)
        for start in planned.starts:
            self.startable.setdefault(start.execution, self._now)
        self._look_again(planned)


def _queued(work: Work) -> Queued:
    return Queued(work.execution, work.place, work.weight)


def _place(work: Work) -> str:
    return work.place
