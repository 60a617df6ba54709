"""How long to wait for the next attempt, in seconds: a wait that grows with the attempt's number, then jitter.

The names are those of the package `backoff`: a wait function knows nothing of chance, a jitter function nothing of
attempts. But chance here is a share that is reckoned from the request's key and the attempt's number, not drawn: who
asks again after a crash gets the same answer, and two requests that failed together still part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

# 2.0 ** 1024 is an OverflowError; long before it, any cap is reached.
_MOST_DOUBLINGS = 1000


def exponential(attempt: int, base: float, cap: float) -> float:
    """base, 2 base, 4 base, ... after attempt 1, 2, 3, ..."""
    return min(cap, base * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS))


def linear(attempt: int, base: float, cap: float) -> float:
    """base, 2 base, 3 base, ..."""
    return min(cap, base * attempt)


def fixed(_attempt: int, base: float, cap: float) -> float:
    """base, always."""
    return min(cap, base)


def no_jitter(wait: float, _share: float) -> float:
    """The wait itself."""
    return wait


def full_jitter(wait: float, share: float) -> float:
    """Anything from 0 to the wait."""
    return wait * share


def equal_jitter(wait: float, share: float) -> float:
    """Anything from half the wait to the wait."""
    return wait / 2 + wait / 2 * share


def decorrelated(attempt: int, base: float, cap: float, share_of: Callable[[int], float]) -> float:
    """Anything from base to three times the wait before, which starts as base and is reckoned again from there.

    Args:
        share_of: the share of an attempt by its number.
    """
    wait = base
    for number in range(1, attempt + 1):
        wait = min(cap, base + (3 * wait - base) * share_of(number))
    return wait


def share(key: str, attempt: int) -> float:
    """From 0 up to but not including 1, evenly spread over keys and over attempts; always the same for the same two."""
    digest = hashlib.sha256(f"{attempt} {key}".encode()).digest()
    return (int.from_bytes(digest[:8]) >> 11) / 2**53  # as many bits as a float holds: rounding never makes it 1


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
