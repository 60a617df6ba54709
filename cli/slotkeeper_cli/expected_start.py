"""When queued requests are expected to start, from how long recent requests of their process have held their slots.

The queue is replayed from now on, several times, each time with other durations: so the range is narrow for a request
far behind, and wide for the next one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.plan import Behind, Blocked, InPause, Stopped, Wait
from slotkeeper.slots.process import MAX_HOLDERS, Holder, Process
from slotkeeper.slots.rows import QueuedRow, RequestRows
from slotkeeper_cli.formatting import count, duration, iso, local_time
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.replay import START_SECONDS, Course, Delays, Work, replay

# Durations below which no range is stated.
MIN_SAMPLES = 5
_LOW, _HIGH = 0.1, 0.9
_DAY = 86400.0
# Replays, and the most requests in all of them: some half a second.
MAX_REPLAYS = 9
_MOST_WORKS = 10_000


@dataclass(frozen=True)
class ExpectedStart:
    """A range, in seconds since the epoch.

    Args:
        earliest: None if no holder is expected to free its slot, as if each has run for longer than recent requests.
        latest: None without an upper bound.
        samples: the number of durations.
    """

    earliest: float | None
    latest: float | None
    samples: int

    def as_dict(self, now: float) -> dict[str, Any]:
        """The range as JSON shows it."""
        earliest, latest = (None if each is None else iso(each) for each in (self.earliest, self.latest))
        seconds = None if self.earliest is None else max(0, int(self.earliest - now))
        times = {"earliest": earliest, "latest": latest, "earliest_seconds": seconds}
        return {**times, "samples": self.samples, "text": self.text(now)}

    def text(self, now: float) -> str:
        """The range as text: `in 2 min to 5 min, by 2026-11-22 14:05:30 CET (34 recent requests)`."""
        if self.samples < MIN_SAMPLES:
            return f"not known: {count(self.samples, 'recent request')} of the process, {MIN_SAMPLES} are needed"
        of = f"({count(self.samples, 'recent request')})"
        if self.earliest is None:
            return f"not known: the holders have run for longer than each recent request {of}"
        low = duration(self.earliest - now)
        if self.latest is None:
            return f"in {low} or later: a holder has run for longer than each recent request {of}"
        high = duration(self.latest - now)
        between = low if low == high else f"{low} to {high}"
        return f"in {between}, by about {local_time(self.latest)} {of}"


def slot_seconds(rows: RequestRows, processes: Iterable[str], now: float) -> dict[str, list[float]]:
    """For how long the requests of processes that ended last have held their slots, in seconds, by process.

    Some two thousand of each, in one call. Those that failed are included, since their slots became free too; those
    that were redriven are not, since their rows state when that was.
    """

    def of(process: str) -> list[float]:
        ended = rows.history(process, 0.0, now + _DAY, max_pages=1, newest_first=True).rows
        held = (each for each in ended if each.state in ("SUCCEEDED", "FAILED"))
        return [each.ended - each.started for each in held if each.ended and each.started]

    names = list(processes)
    return dict(zip(names, in_parallel(of, names), strict=True))


def expected_start(
    process: Process, ahead: Iterable[int], weight: int, durations: Sequence[float], now: float
) -> ExpectedStart:
    """When a request of a process is expected to start, if nothing but the holders keeps it from starting.

    Args:
        ahead: the weights of the requests that start before it, in their order.
        durations: of recent requests of the process, in seconds.
        now: seconds since the epoch.
    """
    if len(durations) < MIN_SAMPLES:
        return ExpectedStart(None, None, len(durations))
    queue = [*ahead, weight]
    ordered = sorted(durations)
    low, high = (_start(process, queue, ordered, share, now) for share in (_LOW, _HIGH))
    return ExpectedStart(_finite(low), _finite(high), len(durations))


def _finite(moment: float) -> float | None:
    return None if math.isinf(moment) else moment


def _start(process: Process, queue: Sequence[int], durations: Sequence[float], share: float, now: float) -> float:
    """When the last request of a queue starts, if each execution lasts as long as this share of the durations."""
    ends = [(_end(holder, durations, share, now), holder.weight) for holder in process.holders.values()]
    heapq.heapify(ends)
    in_use, moment = max(process.slots_in_use, process.held_weight), now
    for weight in queue:
        while in_use + weight > process.slot_limit or len(ends) >= MAX_HOLDERS:
            if not ends:
                return math.inf
            end, freed = heapq.heappop(ends)
            moment, in_use = max(moment, end), in_use - freed
        heapq.heappush(ends, (moment + _quantile(durations, share), weight))
        in_use += weight
    return moment


def _end(holder: Holder, durations: Sequence[float], share: float, now: float) -> float:
    """When a holder is expected to free its slot: infinite if it has run for longer than each duration."""
    if holder.until is not None:
        # A lease ends at any time until its end.
        return now if share == _LOW else float(holder.removable_from or holder.until)
    age = now - holder.since
    longer = [each for each in durations if each > age]
    if not longer:
        return math.inf
    return holder.since + _quantile(longer, share)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def expected_starts(
    process: Process, queue: Sequence[QueuedRow], durations: Sequence[float], now: float
) -> dict[str, dict[str, Any]]:
    """When each request of a queue is expected to start, by execution, as JSON shows it.

    `at` is the median of the replays, in ISO 8601, and `seconds` the time until then. Both are None if no time can be
    given: `text` says why.

    Args:
        queue: in its order, all of it.
        durations: for how long recent requests of the process have held their slots, in seconds.
        now: seconds since the epoch.
    """
    known = sorted(durations) if len(durations) >= MIN_SAMPLES else []
    works = [row for row in queue if row.queued.execution not in process.holders]
    number = max(1, min(MAX_REPLAYS, _MOST_WORKS // max(1, len(works))))
    courses = [_course(process, works, known, now, (each, number)) for each in range(number)]
    samples = count(len(durations), "recent request")
    return {row.queued.execution: _expected(process, row, courses, samples, bool(known), now) for row in queue}


def _course(
    process: Process, queue: Sequence[QueuedRow], durations: Sequence[float], now: float, replay_of: tuple[int, int]
) -> Course:
    """One of the replays, by its number and how many there are. Together they have each part of the durations."""
    at, replays = replay_of
    ends = {
        name: _end_of(holder, durations, now, (Random(name).sample(range(replays), replays)[at] + 0.5) / replays)  # noqa: S311
        for name, holder in process.holders.items()
    }
    random = Random(at)  # noqa: S311
    if (drift := process.slots_in_use - process.held_weight) > 0:  # which frees nothing
        holder = Holder("RUNNING", int(now), "", None, {}, drift)
        process = replace(process, holders={**process.holders, "": holder})
    works = [
        Work(
            each.execution,
            each.place,
            now,
            random.choice(durations) if durations else math.inf,
            each.weight or process.default_weight,
            each.skips,
            math.inf if each.start_before is None else each.start_before,
        )
        for each in (row.queued for row in queue)
    ]
    return replay(process, works, now, ends=ends, delays=Delays(pace=START_SECONDS))


def _end_of(holder: Holder, durations: Sequence[float], now: float, share: float) -> float:
    """When a holder is expected to free its slot: infinite if it has run for longer than each recent request."""
    if holder.until is not None:
        # A lease may be released at any time until its end.
        return now + share * max(0.0, (holder.removable_from or holder.until) - now)
    longer = [each for each in durations if each > now - holder.since]
    return holder.since + _quantile(longer, share) if longer else math.inf


def _expected(
    process: Process, row: QueuedRow, courses: Sequence[Course], samples: str, is_known: bool, now: float
) -> dict[str, Any]:
    execution = row.queued.execution
    if execution in process.holders:
        return _answer(now, now, "now: it has a slot, and is starting")
    if process.target == NO_TARGET:
        return _answer(None, now, "never: the process has no target, so its requests are rejected")
    starts = sorted(course.starts.get(execution, math.inf) for course in courses)
    at = starts[len(starts) // 2]
    if math.isinf(at):
        return _answer(None, now, _why(execution, courses[0], samples, is_known))
    of = f" ({samples})" if is_known else ""
    low, high = (duration(each - now) if each < math.inf else "later" for each in (starts[0], starts[-1]))
    between = low if low == high else f"{low} to {high}"
    return _answer(at, now, f"in {between}, by about {local_time(at)}{of}" if at > now else f"now{of}")


def _answer(at: float | None, now: float, text: str) -> dict[str, Any]:
    if at is None:
        return {"at": None, "seconds": None, "text": text}
    return {"at": iso(at), "seconds": max(0, int(at - now)), "text": text}


def _why(execution: str, course: Course, samples: str, is_known: bool) -> str:
    """Why no time can be given."""
    if execution in course.left and is_known:
        return "never: its start_before comes first, or it leaves the queue because it cannot start now"
    wait: Wait | None = course.waits.get(execution)
    while wait and isinstance(wait.reason, Behind):
        wait = course.waits.get(wait.reason.first)
    match wait and wait.reason:
        case Blocked(weight, slot_limit):
            return f"not known: its weight {weight} is above the limit {slot_limit}"
        case Stopped():
            return "not known: the limit is 0"
        case InPause():
            return "not known: the process is paused"
    if not is_known:
        return f"not known: {samples} of the process, {MIN_SAMPLES} are needed"
    return f"not known: a holder has run for longer than each recent request ({samples})"
