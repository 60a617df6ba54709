"""Figures from intervals and instants: peaks, spreads, hand-offs, utilisation. Pure; seconds throughout.

An interval is half-open, [start, end): what ends at the instant at which something else starts does not overlap it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Interval = tuple[float, float]


@dataclass(frozen=True)
class Handoff:
    """A slot given from one workflow to the next. `seconds` is at least 0."""

    released: float
    started: float
    from_execution: str
    to_execution: str

    @property
    def seconds(self) -> float:
        return max(0.0, self.started - self.released)


@dataclass(frozen=True)
class Release:
    """A passage through ReleaseSlot: the slot is free at some instant between `entered` and `exited`."""

    execution: str
    entered: float
    exited: float


@dataclass(frozen=True)
class Start:
    """The start of a workflow whose request was sent at `sent`."""

    execution: str
    at: float
    sent: float


def steps(intervals: Iterable[Interval]) -> list[tuple[float, int]]:
    """(instant, how many are open from then on), by time, one entry an instant. Empty and backward intervals count for
    nothing."""
    changes: dict[float, int] = {}
    for start, end in intervals:
        if end > start:
            changes[start] = changes.get(start, 0) + 1
            changes[end] = changes.get(end, 0) - 1
    instants = sorted(changes)
    return list(zip(instants, accumulate(changes[instant] for instant in instants), strict=True))


def peak(intervals: Iterable[Interval]) -> int:
    """The most that are open at any instant."""
    return max((count for _, count in steps(intervals)), default=0)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Nearest rank: the smallest value that at least this share of the values does not exceed. None without values."""
    if not values:
        return None
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def rounded(value: float | None) -> float | None:
    """To milliseconds; None for what never came."""
    return None if value is None or math.isinf(value) else round(value, 3)


def since(instant: float | None, origin: float) -> float | None:
    return None if instant is None else rounded(instant - origin)


def spread(values: Sequence[float], **shares: float) -> dict[str, float | int | None]:
    """Count, the percentile of each share by its name, and the largest."""
    named = {name: rounded(percentile(values, share)) for name, share in shares.items()}
    return {"count": len(values), **named, "max": rounded(max(values, default=None))}


def handoffs(releases: Sequence[Release], starts: Sequence[Start], limit: int) -> list[Handoff]:
    """Each release, in time order, with the next start after it that had to wait for a slot.

    The first `limit` starts take slots that were never used, so no release is theirs. Of the others, a release is given
    the earliest one not given yet that does not lie before it; with several slots this is the order in which a queue
    hands them on. "Before" is judged by the entry of ReleaseSlot: the write happens inside that state, so the next
    workflow can start before the state's end is logged. The gap is measured from the exit, and is 0 then.

    A start counts only if its request had been sent when the slot came free: a slot that was free because no request
    waited was not handed off late.
    """
    waiting = sorted(starts, key=lambda start: start.at)[limit:]
    passed: list[Handoff] = []
    position = 0
    for release in sorted(releases, key=lambda release: release.exited):
        while position < len(waiting) and waiting[position].at < release.entered:
            position += 1  # the slot of this start came back without a release, by the janitor
        if position == len(waiting):
            break
        start = waiting[position]
        position += 1
        if start.sent <= release.exited:
            passed.append(Handoff(release.exited, start.at, release.execution, start.execution))
    return passed


def overlap_seconds(intervals: Iterable[Interval], window: Interval) -> float:
    """How long the intervals lie inside the window, added up."""
    return math.fsum(max(0.0, min(end, window[1]) - max(start, window[0])) for start, end in intervals)


def utilisation(intervals: Iterable[Interval], window: Interval, limit: int) -> float | None:
    """The share of the window's slot-seconds that the intervals fill; None for an empty window."""
    length = window[1] - window[0]
    return overlap_seconds(intervals, window) / (length * limit) if length > 0 else None
