"""The adaptive concurrency limit: how it changes after a throttled answer and after a window. Pure functions.

A throttled answer halves the limit, or, if the limit was being raised, takes it back to the last one that a window has
proven. After a window in full use without throttling the limit grows: half of the way to the one below the last
throttled limit, there it stays for HOLD_WINDOWS before that limit is tried again, and above it, it grows by half.

With "add one, halve" alone, the mean limit would be three quarters of what the downstream takes: between two throttled
answers the limit grows from half to all of it. With the last throttled limit remembered (as TCP's BIC and CUBIC do), it
stays just below it nearly all the time, and it follows a larger capacity in a logarithmic number of windows.
"""

from __future__ import annotations

from typing import NamedTuple

# Windows at one below the last throttled limit. Fewer, and more calls are throttled; more, and a larger capacity is
# found later.
HOLD_WINDOWS = 3


class Limit(NamedTuple):
    """A concurrency limit and what is known about others.

    Args:
        callers: the permitted callers.
        proven: the last limit with a window in full use without throttling; 0 if unknown.
        throttled: the last limit that was too high; 0 if unknown.
        calm: such windows since `callers` or `throttled` changed.
    """

    callers: int
    proven: int = 0
    throttled: int = 0
    calm: int = 0


def reduced(limit: Limit) -> Limit:
    """Return the limit after a throttled answer."""
    callers = limit.proven if 0 < limit.proven < limit.callers else max(1, limit.callers // 2)
    return Limit(callers, callers, limit.callers)


def grown(limit: Limit, most: int) -> Limit:
    """Return the limit after a window in full use without throttling. `most`: the maximum."""
    callers, _, throttled, calm = limit
    if callers >= throttled:  # also if none is known
        raised, throttled = callers + max(1, callers // 2), 0
    elif callers < throttled - 1:
        raised = (callers + throttled) // 2
    else:
        raised = throttled if calm + 1 >= HOLD_WINDOWS else callers
    raised = min(raised, most)
    return Limit(raised, callers, throttled, 0 if raised != callers else calm + 1)
