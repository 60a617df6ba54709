"""The wait before the next attempt, in seconds: a wait that grows with the attempt's number, then jitter.

The names are those of the package `backoff`: a wait function has no random input, a jitter function does not know the
attempt. Jitter is not random here: it is a share computed from the request's key and the attempt's number. So the same
question after a crash has the same answer, and two requests that failed at the same time still retry at different
times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

# 2.0 ** 1024 is an OverflowError; long before it, any cap is reached.
_MOST_DOUBLINGS = 1000


def exponential(attempt: int, base: float, cap: float) -> float:
    """Return base, 2 base, 4 base, ... after attempt 1, 2, 3, ..."""
    return min(cap, base * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS))


def linear(attempt: int, base: float, cap: float) -> float:
    """Return base, 2 base, 3 base, ... after attempt 1, 2, 3, ..."""
    return min(cap, base * attempt)


def fixed(_attempt: int, base: float, cap: float) -> float:
    """Return base after each attempt."""
    return min(cap, base)


def no_jitter(wait: float, _share: float) -> float:
    """Return the wait unchanged."""
    return wait


def full_jitter(wait: float, share: float) -> float:
    """Return a value from 0 to the wait."""
    return wait * share


def equal_jitter(wait: float, share: float) -> float:
    """Return a value from half the wait to the wait."""
    return wait / 2 + wait / 2 * share


def decorrelated(attempt: int, base: float, cap: float, share_of: Callable[[int], float]) -> float:
    """Return a value from base to three times the previous wait. The waits are computed again from the first one, base.

    Args:
        share_of: returns the share for an attempt's number.
    """
    wait = base
    for number in range(1, attempt + 1):
        wait = min(cap, base + (3 * wait - base) * share_of(number))
    return wait


def share(key: str, attempt: int) -> float:
    """Return a value in [0, 1), uniform over keys and attempts, and always the same for the same key and attempt."""
    digest = hashlib.sha256(f"{attempt} {key}".encode()).digest()
    return (int.from_bytes(digest[:8]) >> 11) / 2**53  # 53 bits, as a float has: rounding cannot give 1


WAITS: Mapping[str, Callable[[int, float, float], float]] = {
    "exponential": exponential,
    "linear": linear,
    "fixed": fixed,
}
JITTERS: Mapping[str, Callable[[float, float], float]] = {
    "none": no_jitter,
    "full": full_jitter,
    "equal": equal_jitter,
}
