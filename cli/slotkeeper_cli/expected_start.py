"""When a queued request is expected to start, from how long recent requests of its process have held their slots."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from slotkeeper.slots.process import MAX_HOLDERS, Holder, Process
from slotkeeper.slots.rows import RequestRows
from slotkeeper_cli.formatting import count, duration, iso, local_time
from slotkeeper_cli.stack_connection import in_parallel

# Durations below which no range is stated.
MIN_SAMPLES = 5
_LOW, _HIGH = 0.1, 0.9
_DAY = 86400.0


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
