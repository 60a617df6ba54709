"""Replays recorded requests at another limit, by the rules that the layer admits and wakes requests with. Pure.

The layer decides: `refusal` whether a request may start, `Process.to_wake` which one is woken, `wake_delay` when. This
module is only the clock and the queue: messages of one group are delivered one after the other, a refused one again
when it is woken.

A replay has no delays of its own. What starts took beyond the rules, such as a cold start of the starter and the usual
hand-off of a slot, is taken from the records: a replay at the recorded limits and ends shows it.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from statistics import median
from typing import Any

from slotkeeper.slots.process import MAX_HOLDERS, Holder, WaitingRequest
from slotkeeper.slots.protocol import Candidate, refusal
from slotkeeper.slots.rate import after_start
from slotkeeper.slots.request import Delivery, Priority, message_group
from slotkeeper_cli.audit.intervals import overlap_seconds, rounded, spread, weighted_steps
from slotkeeper_cli.audit.work_history import LimitSteps
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.what_if.recording import PastRequest, Recording
from slotkeeper_cli.write_units import demand

# Fewer do not show a p90.
MIN_SAMPLES = 20
# Seconds from which a wait counts as one for a slot, as in Delivery.has_waited.
_WAITED = 1.0


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
        """From sending to start, for the requests of which both are known in the period."""
        since = self.recording.since
        return [(each.sent, each.started) for each in self.requests if each.sent is not None and each.started >= since]

    @property
    def waits(self) -> list[float]:
        """The waits of the requests whose arrival is known, infinite for those that never start."""
        return [started - sent for sent, started in self._waited]

    @property
    def queue(self) -> list[tuple[float, int]]:
        """(instant, requests that wait from then on)."""
        return weighted_steps((wait, 1) for wait in self._waited)

    @property
    def used(self) -> list[tuple[float, int]]:
        """(instant, weight in use from then on)."""
        return weighted_steps(((each.started, each.freed), each.weight) for each in self.requests)

    def figures(self) -> dict[str, Any]:
        """The figures as JSON shows them; times in seconds, None for what is not known or does not happen.

        `starter_invocations` and `write_units` are what Slotkeeper itself uses: a request that waits is received at
        least twice, and an item with all holders is the largest.
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
            "starter_invocations": number + waited,
            "write_units": (number - waited) * needs.cycle_units + waited * needs.queued_units,
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
        if each.started == max(recording.since, each.arrival):
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
            f"process {name} has {counts['samples']} requests whose arrival, start and end are known; {least} are "
            f"needed. Of {counts['started']} that started, the arrival of {counts['arrival_unknown']} is not in the "
            f"starter's log, and {counts['running_at_end']} still run. Give an earlier --since"
        )


def _scaled(request: PastRequest, since: float, duration_factor: float, arrival_factor: float) -> PastRequest:
    """The request as it is replayed: its arrival, and for how long it holds its slot."""
    if request.started < since:  # it ran when the period began
        return replace(request, ended=since + (request.freed - since) * duration_factor)

    def moved(at: float) -> float:
        return since + (at - since) / arrival_factor if at > since else at

    started, sent = moved(request.started), None if request.sent is None else moved(request.sent)
    ended = started + (request.freed - request.started) * duration_factor
    return replace(request, sent=sent, started=started, ended=ended)


class _Simulation:
    """One replay.

    Args:
        limits: the first one is in force from the begin.
        requests: of each its arrival, and for how long it holds its slot (`freed` - `started`).
        delays, hand_off: seconds after an arrival, by execution, and after a wake.
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
        of, self._since, self._keeps_ends = recording.process, recording.since, keeps_ends
        self._delays, self._hand_off = delays, hand_off
        # Changed in place. The counter stays 0: if it is less than the holders' weights, the rules take these.
        self._holders, self._turns = dict[str, Holder](), dict[Priority, int]()
        self._waiting: dict[Priority, WaitingRequest] = {}
        own: dict[str, Any] = {"holders": self._holders, "waiting": self._waiting, "turns": self._turns}
        without: dict[str, Any] = {
            "slots_in_use": 0,
            "paused": False,
            "cancelled": {},
            "target": "replay",
            "next_start": 0,
        }
        self._process = replace(of, slot_limit=limits[0][1], **own, **without)
        self._events: list[tuple[float, int, str, Any]] = []  # instant, number, what happens, to what
        self._numbers = count()
        self._wakes: dict[Priority, tuple[int, float]] = {}  # the number of the event, and when the message is visible
        self._done: list[PastRequest] = []
        self._groups: dict[Priority, deque[PastRequest]] = defaultdict(deque)
        for at, limit in limits[1:]:
            self._at(at, "limit", limit)
        in_order = sorted(requests, key=lambda each: (each.arrival, each.started))
        self._sequence = {each.execution: str(number) for number, each in enumerate(in_order)}
        for each in in_order:
            if each.started < self._since:
                self._hold(each, each.started)
            else:
                self._groups[each.priority].append(each)
        for priority in self._groups:
            self._deliver_next(priority, self._since)

    def run(self) -> list[PastRequest]:
        """The requests, in the order of their starts."""
        while self._events:
            now, number, event, subject = heapq.heappop(self._events)
            match event:
                case "limit":
                    self._process = replace(self._process, slot_limit=subject)
                    self._wake(now)
                case "freed":
                    self._holders.pop(subject)
                    self._wake(now)
                case "delivered":
                    self._deliver(subject, 1, now)
                case "woken":
                    if self._wakes.get(subject, (-1,))[0] == number:  # no later wake has set another time
                        self._deliver(subject, self._waiting[subject].receives + 1, now)
        never = (each for group in self._groups.values() for each in group)
        return [*self._done, *(replace(each, started=math.inf, ended=None) for each in never)]

    def _at(self, at: float, event: str, subject: Any) -> int:
        number = next(self._numbers)
        heapq.heappush(self._events, (at, number, event, subject))
        return number

    def _deliver_next(self, priority: Priority, now: float) -> None:
        """SQS delivers the next message of a group after the one before it was deleted."""
        if group := self._groups[priority]:
            ready = group[0].arrival + self._delays.get(group[0].execution, 0.0)
            self._at(max(now, ready), "delivered", priority)

    def _deliver(self, priority: Priority, receives: int, now: float) -> None:
        request = self._groups[priority][0]
        sequence, group = self._sequence[request.execution], message_group(self._process.name, priority)
        delivery = Delivery(request.execution, "", group, "", sequence, receives, request.arrival)
        candidate = Candidate(self._process.name, request.execution, request.weight, priority, delivery)
        self._wakes.pop(priority, None)
        if refusal(candidate, self._process, now) is not None:
            self._waiting[priority] = WaitingRequest(
                priority, "", delivery.sortable_sequence, receives, request.weight, 0, request.execution, "", 0
            )
            if left := self._process.seconds_until_due(now):  # its message is hidden until then
                self._wakes[priority] = (self._at(now + left, "woken", priority), now + left)
            return
        self._waiting.pop(priority, None)
        if delivery.has_waited(now):
            self._turns[priority] = int(now * 1000)
        if rate := self._process.rate:
            self._process = replace(self._process, next_start=after_start(rate, self._process.next_start, now))
        self._hold(self._groups[priority].popleft(), now)
        if receives > 1:
            self._wake(now)
        self._deliver_next(priority, now)

    def _hold(self, request: PastRequest, started: float) -> None:
        self._holders[request.execution] = Holder("RUNNING", int(started), "replay", None, {}, request.weight)
        freed = request.freed if self._keeps_ends else started + (request.freed - request.started)
        freed = max(started, freed)
        self._done.append(replace(request, started=started, ended=freed))
        if freed < math.inf:
            self._at(freed, "freed", request.execution)

    def _wake(self, now: float) -> None:
        due = self._process.to_wake
        if due is None or (due.priority in self._wakes and now >= self._wakes[due.priority][1]):
            return  # the message is already visible
        visible = now + self._process.wake_delay(due.priority, now)
        number = self._at(visible + self._hand_off, "woken", due.priority)
        self._wakes[due.priority] = (number, visible)
