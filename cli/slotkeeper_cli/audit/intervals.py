"""Figures from intervals and instants: steps, spreads, overlaps. Pure; seconds.

An interval is half-open, [start, end): it does not overlap one that starts at the instant of its end.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

Interval = tuple[float, float]
Steps = Sequence[tuple[float, int]]  # (instant, value from then on), by time


def weighted_steps(intervals: Iterable[tuple[Interval, int]]) -> list[tuple[float, int]]:
    """(instant, sum of the weights of the open intervals from then on), by time.

    Empty and backward intervals are ignored.
    """
    changes: dict[float, int] = {}
    for (start, end), weight in intervals:
        if end > start:
            changes[start] = changes.get(start, 0) + weight
            changes[end] = changes.get(end, 0) - weight
    instants = sorted(changes)
    return list(zip(instants, accumulate(changes[instant] for instant in instants), strict=True))


def value_at(steps: Steps, instant: float) -> int:
    """The value of steps at an instant; 0 before the first."""
    index = bisect_right(steps, instant, key=lambda step: step[0])
    return steps[index - 1][1] if index else 0


def pieces[Value](steps: Sequence[tuple[float, Value]]) -> list[tuple[float, float, Value]]:
    """(start, end, value) of steps, by time; the last end is infinite."""
    ends = [*(at for at, _ in steps[1:]), math.inf]
    return [(at, end, value) for (at, value), end in zip(steps, ends, strict=False)]


def percentile(values: Sequence[float], share: float) -> float | None:
    """By nearest rank: the smallest value that is not below this share of the values. None without values."""
    if not values:
        return None
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def rounded(value: float | None) -> float | None:
    """To milliseconds. None for an infinite value."""
    return None if value is None or math.isinf(value) else round(value, 3)


def spread(values: Sequence[float], **shares: float) -> dict[str, float | int | None]:
    """Count, the percentile of each share by its name, and the maximum."""
    named = {name: rounded(percentile(values, share)) for name, share in shares.items()}
    return {"count": len(values), **named, "max": rounded(max(values, default=None))}


def overlap_seconds(intervals: Iterable[Interval], window: Interval) -> float:
    """The sum of the intervals' parts inside the window."""
    return math.fsum(max(0.0, min(end, window[1]) - max(start, window[0])) for start, end in intervals)


def utilization(
    used: Iterable[tuple[Interval, int]], limits: Sequence[tuple[float, int | None]], window: Interval
) -> float | None:
    """The share of the offered slot-seconds that was used; None if none was offered, or a limit is not known.

    Args:
        used: in which time how much weight was in use.
        limits: (instant, limit from then on), by time.
    """
    offered = 0.0
    for at, end, limit in pieces(limits):
        length = overlap_seconds([(at, end)], window)
        if length and limit is None:
            return None
        offered += length * (limit or 0)
    return math.fsum(overlap_seconds([span], window) * weight for span, weight in used) / offered if offered else None
