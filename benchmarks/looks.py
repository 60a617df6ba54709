"""Those who wait, reckoned instead of run: no engine on one machine answers as fast as DynamoDB, or serves a thousand.

An event for each look: all find the token invalid at the same instant, one of them refreshes it, the others look again
and again. A look that exceeds what DynamoDB serves of one item is throttled, and is one look in vain.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import backoff

from slotkeeper.token_lock import FIRST_PAUSE, GROWTH, LONGEST_PAUSE

# Read units a second of one partition, and so of one item (DynamoDB guide, "Service, account, and table quotas").
MOST_READS = 3000
LOOK_SECONDS = 0.005  # a GetItem inside a region
BIN = 0.1  # seconds


def pause_of_the_lock(turn: int) -> float:
    """Seconds before look number `turn` + 1: full jitter of a growing, capped pause, as in token_lock.py."""
    return backoff.full_jitter(min(FIRST_PAUSE * GROWTH**turn, LONGEST_PAUSE))


def pause_of_the_textbook(turn: int) -> float:
    """Seconds; from 1 on it doubles up to 10."""
    return float(min(2**turn, 10))


PAUSES: dict[str, Callable[[int], float]] = {
    "token lock": pause_of_the_lock,
    "textbook loop": pause_of_the_textbook,
}


@dataclass
class Looks:
    waits: list[float] = field(default_factory=list)  # seconds, sorted
    served: list[int] = field(default_factory=list)  # a bin each
    throttled: list[int] = field(default_factory=list)


def at_the_cap(waiters: int) -> float:
    """Looks a second once the lock's pauses have grown to their longest."""
    return waiters / (LONGEST_PAUSE / 2 + LOOK_SECONDS)


def reckon(way: str, waiters: int, auth_seconds: float) -> Looks:
    """What `waiters` do while `POST /auth` takes `auth_seconds`."""
    looks = Looks()
    stored_at = auth_seconds + 3 * LOOK_SECONDS  # after a look, the lock and the store
    events = [(0.0, number, 0) for number in range(waiters)]
    allowed, last = MOST_READS * BIN, 0.0  # a bucket that holds the reads of one bin, and refills all the time
    while events:
        now, number, turn = heapq.heappop(events)
        allowed, last = min(MOST_READS * BIN, allowed + (now - last) * MOST_READS), now
        if allowed >= 1:
            allowed -= 1
            _count(looks.served, now)
            if now >= stored_at:
                looks.waits.append(now + LOOK_SECONDS)
                continue
        else:
            _count(looks.throttled, now)
        heapq.heappush(events, (now + LOOK_SECONDS + PAUSES[way](turn), number, turn + 1))
    return looks


def _count(bins: list[int], now: float) -> None:
    number = int(now / BIN)
    bins.extend([0] * (number + 1 - len(bins)))
    bins[number] += 1
