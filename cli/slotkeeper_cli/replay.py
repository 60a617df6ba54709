"""Replays the queue of a process over time, by the rule that starts requests. Pure.

The layer's `plan` decides who starts. This module is only the clock and the queue: at each arrival, release, change of
a setting, and each time at which the plan asks to look again, it plans, and starts what the plan starts. What-if
replays recorded requests with it, and expected starts the requests that are queued now.

Times are seconds since the epoch, weights in the unit of the limit.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from slotkeeper.slots.plan import MAX_STARTS, Plan, Wait, plan, plan_queue
from slotkeeper.slots.process import MAX_HOLDERS, Holder, Process
from slotkeeper.slots.queued import QUEUE_END, Queued, QueuePart, rank_of
from slotkeeper.slots.rate import after_start

# Seconds from one start to the next one of a process that could start too: twice as long as its rows permit, some 60 a
# second (docs/limits.md).
START_SECONDS = 1 / 30
# The order of what happens at one instant: dispatches come between.
_FIRST, _START = 0, 1


@dataclass(frozen=True, kw_only=True)
class QueuedWork(Queued):
    """A request in a replay.

    Attributes:
        arrives: when it is in the queue.
        seconds: for how long it holds its slot; infinite if that is not known.
    """

    arrives: float
    seconds: float


@dataclass(frozen=True)
class SettingsChange:
    """The settings of a process that change at a time, as fields of `Process`."""

    at: float
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class ReplayCourse:
    """What happened in a replay, by execution.

    Attributes:
        starts: when each request started.
        left: when each of the others left the queue without a start.
        waits: why each of the rest does not start, ever.
        startable: from when on each could start by the rule.
    """

    starts: Mapping[str, float]
    left: Mapping[str, float]
    waits: Mapping[str, Wait]
    startable: Mapping[str, float]


class Replay:
    """One replay.

    Args:
        process: as it is at the begin.
        works: in any order.
        now: the begin.
        ends: when each holder of the process frees its slot; infinite if that is not known.
        changes: of its settings, by time.
        hand_off, pace: what starts take beyond the rule, in seconds: after a release, and after another start.
        recorded: when each request started, which is then not decided here; those that are missing did not start.
    """

    def __init__(
        self,
        process: Process,
        works: Sequence[QueuedWork],
        now: float,
        ends: Mapping[str, float],
        changes: Sequence[SettingsChange] = (),
        hand_off: float = 0.0,
        pace: float = 0.0,
        recorded: Mapping[str, float] | None = None,
    ) -> None:
        self._starts, self._left, self._startable = dict[str, float](), dict[str, float](), dict[str, float]()
        self._hand_off, self._pace, self._recorded = hand_off, pace, recorded
        self._holders = dict(process.holders)  # changed in place
        # The counter stays 0: the rule takes the holders' weights, which are more.
        self._process = replace(process, holders=self._holders, slots_in_use=0)
        self._events: list[tuple[float, int, int, Callable[[], object]]] = []
        self._numbers = count()
        self._queue: list[QueuedWork] = []  # by place
        self._skipping: list[QueuedWork] = []
        self._now = self._busy_until = now
        self._looks_at = math.inf
        self._at(now, self._nothing)
        for name, end in ends.items():
            self._at(max(now, end), partial(self._free, name))
        for change in changes:
            self._at(max(now, change.at), partial(self._change, change.fields))
        for work in works:
            self._at(max(now, work.arrives), partial(self._arrive, work))
            if recorded and work.execution in recorded:
                self._at(recorded[work.execution], partial(self._start, work), _START)

    def run(self) -> ReplayCourse:
        """Let all happen, in the order of time, until no more can start."""
        while self._events:
            instant = self._events[0][:2]
            self._now = instant[0]
            while self._events and self._events[0][:2] == instant:
                heapq.heappop(self._events)[-1]()
            self._dispatch()
        left = plan(self._process, self._queue, self._now, age=math.inf)
        return ReplayCourse(self._starts, self._left, left.waits, self._startable)

    def _at(self, at: float, happens: Callable[[], object], order: int = _FIRST) -> None:
        if at < math.inf:
            heapq.heappush(self._events, (at, order, next(self._numbers), happens))

    def _nothing(self) -> None:
        """A dispatch follows."""

    def _arrive(self, work: QueuedWork) -> None:
        insort(self._queue, work, key=_place)
        if work.start_before is not None:
            self._at(max(self._now, work.start_before), partial(self._leave, work))
        if work.skips:
            self._skipping.append(work)

    def _leave(self, work: QueuedWork) -> None:
        if self._remove(work):
            self._left[work.execution] = self._now

    def _free(self, name: str) -> None:
        self._holders.pop(name, None)

    def _change(self, fields: Mapping[str, Any]) -> None:
        self._process = replace(self._process, **fields)

    def _dispatch(self) -> None:
        if self._now < self._busy_until:
            return  # a dispatch comes then
        planned, works = self._plan(MAX_STARTS if self._recorded is None else MAX_HOLDERS)
        for number, start in enumerate(planned.starts):
            self._startable.setdefault(start.execution, self._now)
            if self._recorded is None:
                self._start(works[start.execution], number * self._pace)
        if planned.starts and self._recorded is None:
            self._busy_until = self._now + len(planned.starts) * self._pace
            self._at(self._busy_until, self._nothing)
        for work in self._skipping:
            if not self._recorded or work.execution not in self._recorded:
                self._leave(work)
        self._skipping.clear()
        self._look_again(planned)

    def _look_again(self, planned: Plan) -> None:
        """Dispatch again when the rate permits the next start. After a start, there is a dispatch in any case."""
        if self._looks_at <= self._now:
            self._looks_at = math.inf
        rate = self._process.rate
        if planned.starts or not rate or not self._queue:
            return
        due = (self._process.next_start - rate.lead) / 1000
        if self._now < due < self._looks_at:
            self._looks_at = due
            self._at(due, self._nothing)

    def _plan(self, most: int) -> tuple[Plan, dict[str, QueuedWork]]:
        """The plan of the queue, of which as much is read as it needs, and the requests that were read."""
        planned, parts = plan_queue(self._read, self._process, self._now, age=math.inf, most=most)
        while planned.unread and not planned.starts:
            planned, parts = plan_queue(
                self._read, self._process, self._now, age=math.inf, most=most, passed=planned.unread
            )
        return planned, {name: work for name, work in parts.found.items() if isinstance(work, QueuedWork)}

    def _read(self, after: str, most: int | None) -> QueuePart:
        """A part of the queue, as RequestTable.queue reads it, and also what is above the limit."""
        begin = bisect_right(self._queue, after, key=_place)
        read = self._queue[begin : None if most is None else begin + most]
        return QueuePart(read, after, read[-1].place if begin + len(read) < len(self._queue) else QUEUE_END)

    def _start(self, work: QueuedWork, delay: float = 0.0) -> None:
        """Start a request; it holds its slot from now on."""
        self._remove(work)
        started = self._starts[work.execution] = self._now + delay
        self._holders[work.execution] = Holder("RUNNING", int(started), "", None, {}, self._weight(work), work.key)
        self._process = replace(self._process, after_keys={**self._process.after_keys, rank_of(work.place): work.key})
        self._at(started + work.seconds + self._hand_off, partial(self._free, work.execution))
        if self._process.rate:
            following = after_start(self._process.rate, self._process.next_start, self._now)
            self._process = replace(self._process, next_start=following)

    def _weight(self, work: QueuedWork) -> int:
        return work.weight or self._process.default_weight

    def _remove(self, work: QueuedWork) -> bool:
        """Remove a request from the queue; False if it is not in it."""
        at = bisect_left(self._queue, work.place, key=_place)
        is_in = at < len(self._queue) and self._queue[at] is work
        if is_in:
            self._queue.pop(at)
        return is_in


def _place(work: QueuedWork) -> str:
    return work.place
