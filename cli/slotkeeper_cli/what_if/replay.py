"""Replays recorded requests at another limit, by the rule that starts them. Pure.

The layer's `plan` decides who starts. This module is only the clock and the queue: at each arrival, release, change of
the limit, and each time at which the plan asks to look again, it plans, and starts what the plan starts.

A replay has no delays of its own. What starts took beyond the rule, such as a cold start of the starter and the usual
hand-off of a slot, is taken from the records: a replay at the recorded limits and ends shows it.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, islice
from statistics import median
from typing import Any

from slotkeeper.slots.plan import LOOK_AHEAD_SECONDS, Plan, plan
from slotkeeper.slots.process import MAX_HOLDERS, Holder
from slotkeeper.slots.queued import Queued
from slotkeeper.slots.request import PRIORITIES
from slotkeeper_cli.audit.intervals import overlap_seconds, rounded, spread, weighted_steps
from slotkeeper_cli.audit.work_history import LimitSteps
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.what_if.recording import PastRequest, Recording
from slotkeeper_cli.write_units import demand

# Fewer do not show a p90.
MIN_SAMPLES = 20
# Seconds from which a wait counts as one for a slot.
_WAITED = 1.0
# Requests at the head of the queue with which a plan begins. It reads more, until one of them cannot start.
_HEAD = 30


class CannotReplay(ValueError):
    """The records are too few, or a request would never start. The text states which, and what to do."""


@dataclass(frozen=True)
class Course:
    """How a period went, or would have gone. `requests`: also those that ran when it began."""

    recording: Recording
    until: float
    requests: Sequence[PastRequest]
    limits: LimitSteps

    @cached_property
    def _waited(self) -> list[tuple[float, float]]:
        """From sending to start, for the requests that started in the period."""
        return [(each.sent, each.started) for each in self.requests if each.started >= self.recording.since]

    @property
    def waits(self) -> list[float]:
        """The waits of the requests, infinite for those that never start."""
        return [started - sent for sent, started in self._waited]

    @property
    def queue(self) -> list[tuple[float, int]]:
        """(instant, requests that wait from then on)."""
        return weighted_steps((wait, 1) for wait in self._waited)

    def figures(self) -> dict[str, Any]:
        """The figures as JSON shows them; times in seconds, None for what is not known or does not happen.

        `starter_invocations` and `write_units` are what Slotkeeper itself uses: an invocation for each message and
        each ring, if none is in a batch, and the writes of an item with all holders, the largest one.
        """
        window = (self.recording.since, self.until)
        held = ((each.weight, overlap_seconds([(each.started, each.freed)], window)) for each in self.requests)
        used = math.fsum(weight * length for weight, length in held)
        parts = [(overlap_seconds([(at, end)], window), limit) for at, end, limit in self.limits.intervals]
        is_known = all(limit is not None for length, limit in parts if length)
        offered = math.fsum(length * (limit or 0) for length, limit in parts) if is_known else None
        waited, number = sum(each >= _WAITED for each in self.waits), len(self.waits)
        process = self.recording.process
        holders = max(1, min(MAX_HOLDERS, (self.limits.most(*window) or process.slot_limit) // process.default_weight))
        needs = demand(process.name, process.target, holders, process.default_weight)
        return {
            "wait": spread(self.waits, p50=0.5, p90=0.9, p99=0.99),
            "waited": waited,
            "never_started": sum(math.isinf(each) for each in self.waits),
            "longest_queue": max((number for _, number in self.queue), default=0),
            "utilization": rounded(used / offered) if offered else None,
            "slot_hours_offered": None if offered is None else round(offered / 3600, 3),
            "slot_hours_used": round(used / 3600, 3),
            "starter_invocations": 2 * number,
            "write_units": number * needs.cycle_units,
        }


@dataclass(frozen=True)
class ReplayResult:
    """The records and their replays.

    Attributes:
        check: the replay at the recorded limits, which shows how well a replay agrees; None if these are not known.
    """

    recording: Recording
    limit: int
    duration_factor: float
    arrival_factor: float
    recorded: Course
    check: Course | None
    replayed: Course

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON shows it."""
        recording = self.recording
        return {
            "process": recording.process.name,
            "since": iso(recording.since),
            "until": iso(recording.until),
            "limit": self.limit,
            "duration_factor": self.duration_factor,
            "arrival_factor": self.arrival_factor,
            "requests": recording.counts,
            "recorded": self.recorded.figures(),
            "check": self.check.figures() if self.check else None,
            "replayed": self.replayed.figures(),
            "notes": list(recording.notes),
        }


def replay(
    recording: Recording,
    limit: int,
    duration_factor: float = 1.0,
    arrival_factor: float = 1.0,
    least: int = MIN_SAMPLES,
) -> ReplayResult:
    """Replay the requests at a limit.

    Args:
        duration_factor: 0.5: each takes half of its time.
        arrival_factor: 2: they arrive in half of the time.
        least: the samples that are needed.

    Raises:
        CannotReplay: there are fewer samples, or a request is heavier than the limit.
    """
    _check(recording, limit, least)
    past, since, until = recording.requests, recording.since, recording.until
    in_force = [(max(at, since), value) for at, end, value in recording.limits.intervals if end > since]
    steps = [(at, value) for at, value in in_force if value is not None]
    check, delays = None, (dict[str, float](), 0.0)
    if steps == in_force:
        delays = _delays(recording, steps)
        check = Course(recording, until, _Simulation(recording, steps, past, *delays).run(), LimitSteps(steps))
    scaled = [_scaled(each, since, duration_factor, arrival_factor) for each in past]
    replayed = _Simulation(recording, [(since, limit)], scaled, *delays).run()
    original = Course(recording, until, past, recording.limits)
    other = Course(recording, since + (until - since) / arrival_factor, replayed, LimitSteps([(since, limit)]))
    return ReplayResult(recording, limit, duration_factor, arrival_factor, original, check, other)


def _delays(recording: Recording, limits: Sequence[tuple[float, int]]) -> tuple[dict[str, float], float]:
    """What delayed starts beyond the rules, in seconds: from each arrival, by execution, and a usual hand-off."""
    started = {each.execution: each.started for each in recording.requests}
    delays, hand_offs = dict[str, float](), list[float]()
    for each in _Simulation(recording, limits, recording.requests, {}, 0.0, keeps_ends=True).run():
        late = started[each.execution] - each.started
        if each.started == max(recording.since, each.sent):
            delays[each.execution] = max(0.0, late)
        elif each.started < math.inf:
            hand_offs.append(late)
    return delays, max(0.0, median(hand_offs or [0.0]))


def _check(recording: Recording, limit: int, least: int) -> None:
    name, counts = recording.process.name, recording.counts
    if heavy := [each for each in recording.requests if each.weight > limit]:
        heaviest = max(heavy, key=lambda each: each.weight)
        raise CannotReplay(
            f"{len(heavy):,} of the recorded requests of process {name} would never start at limit {limit}, such as "
            f"{heaviest.execution} of weight {heaviest.weight}: give --limit {heaviest.weight} or more"
        )
    if counts["samples"] < least:
        raise CannotReplay(
            f"process {name} has {counts['samples']} requests that started and ended; {least} are needed. Of "
            f"{counts['started']} that started, {counts['running_at_end']} still run. Give an earlier --since"
        )


def _scaled(request: PastRequest, since: float, duration_factor: float, arrival_factor: float) -> PastRequest:
    """The request as it is replayed: its arrival, and for how long it holds its slot."""
    if request.started < since:  # it ran when the period began
        return replace(request, ended=since + (request.freed - since) * duration_factor)

    def moved(at: float) -> float:
        return since + (at - since) / arrival_factor if at > since else at

    started = moved(request.started)
    ended = started + (request.freed - request.started) * duration_factor
    return replace(request, sent=moved(request.sent), started=started, ended=ended)


class _Simulation:
    """One replay.

    Args:
        limits: the first one is in force from the begin.
        requests: of each its arrival, and for how long it holds its slot (`freed` - `started`).
        delays, hand_off: seconds after an arrival, by execution, and after a release.
        keeps_ends: each slot is free at its recorded end, whenever the request starts.
    """

    def __init__(
        self,
        recording: Recording,
        limits: Sequence[tuple[float, int]],
        requests: Sequence[PastRequest],
        delays: Mapping[str, float],
        hand_off: float,
        keeps_ends: bool = False,
    ) -> None:
        self._since, self._keeps_ends, self._hand_off = recording.since, keeps_ends, hand_off
        self._holders = dict[str, Holder]()  # changed in place
        # The counter stays 0: the rule takes the holders' weights, which are more.
        self._process = replace(
            recording.process,
            slot_limit=limits[0][1],
            slots_in_use=0,
            holders=self._holders,
            paused=False,
            target="replay",
            next_start=0,
        )
        self._events: list[tuple[float, int, str, Any]] = []  # instant, number, what happens, to what
        self._numbers = count()
        self._queue: list[tuple[str, PastRequest]] = []  # by place
        self._looks_at = math.inf
        self._done: list[PastRequest] = []
        for at, limit in limits[1:]:
            self._at(at, "limit", limit)
        accepted = self._since
        for number, each in enumerate(sorted(requests, key=lambda each: (each.sent, each.started))):
            if each.started < self._since:
                self._hold(each, each.started)
                continue
            # Of one that waited for a slot, no delay is known: it was not accepted before the one that was sent before.
            known = delays.get(each.execution)
            accepted = max(accepted, each.sent) if known is None else max(self._since, each.sent + known)
            self._at(accepted, "sent", (f"{PRIORITIES.index(each.priority)}#{number:09}", each))

    def run(self) -> list[PastRequest]:
        """The requests, in the order of their starts."""
        while self._events:
            now, rings = self._events[0][0], False
            while self._events and self._events[0][0] == now:
                rings |= self._change(now)
            if rings:
                self._dispatch(now)
        return [*self._done, *(replace(each, started=math.inf, ended=None) for _, each in self._queue)]

    def _change(self, now: float) -> bool:
        """Let the next event happen; whether a dispatch follows it immediately."""
        _, _, event, subject = heapq.heappop(self._events)
        match event:
            case "limit":
                self._process = replace(self._process, slot_limit=subject)
            case "freed":
                self._holders.pop(subject)
                if self._hand_off:
                    self._at(now + self._hand_off, "ring")
                return not self._hand_off
            case "sent":
                insort(self._queue, subject, key=_place)
            case "look":
                self._looks_at = math.inf
        return True

    def _at(self, at: float, event: str, subject: Any = None) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), event, subject))

    def _dispatch(self, now: float) -> None:
        planned, read = self._plan(now)
        for start in planned.starts:
            place = read[start.execution]
            _, request = self._queue.pop(bisect_left(self._queue, place, key=_place))
            self._hold(request, now)
        self._process = replace(self._process, next_start=planned.next_start)
        if self._queue and self._process.rate:
            look = planned.look_again or now + LOOK_AHEAD_SECONDS
            if look < self._looks_at:
                self._looks_at = look
                self._at(look, "look")

    def _plan(self, now: float) -> tuple[Plan, dict[str, str]]:
        """The plan of the queue, of which as much is read as it needs, and the places of what was read."""
        number = _HEAD
        while True:
            fitting = (entry for entry in self._queue if entry[1].weight <= self._process.slot_limit)
            read = list(islice(fitting, number))
            head = [Queued(each.execution, place, each.weight) for place, each in read]
            planned = plan(self._process, head, now, age=math.inf, most=MAX_HOLDERS)
            if planned.is_decided or len(head) < number:
                return planned, {each.execution: place for place, each in read}
            number *= 4

    def _hold(self, request: PastRequest, started: float) -> None:
        self._holders[request.execution] = Holder("RUNNING", int(started), "replay", None, {}, request.weight)
        freed = request.freed if self._keeps_ends else started + (request.freed - request.started)
        freed = max(started, freed)
        self._done.append(replace(request, started=started, ended=freed))
        if freed < math.inf:
            self._at(freed, "freed", request.execution)


def _place(entry: tuple[str, PastRequest]) -> str:
    return entry[0]
