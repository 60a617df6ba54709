"""When an instance uses the stored token, waits for another's refresh, or refreshes itself. Values in, values out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import inf

from slotkeeper.token.item import TokenItem

# Between two looks, in seconds; the second is a share of the time waited. A thousand that wait stay below the 3,000
# consistent reads a second that DynamoDB serves of one item (DynamoDB guide, "Service, account, and table quotas").
FIRST_POLL_SECONDS, POLL_GROWTH, LONGEST_POLL_SECONDS = 0.05, 0.2, 0.6
# Whoever expects the token later does not look until then, but no less often than so: so everybody learns of it within
# 1.5 times the time the API took, and a quarter of a second, also if it is much faster than the last time.
FIRST_EXPECTED_SECONDS, EXPECTED_GROWTH = 0.2, 0.5
# For how many seconds an instance leaves the lock to the others after a failure of its own: several of their looks.
OWN_FAILURE_PAUSE = 2.0


@dataclass(frozen=True)
class Timing:
    """All in seconds.

    Args:
        api: for each call of the API under the lock, `still_valid` and `authenticate`. An API that takes longer than
            this to answer `authenticate` never gives a token.
        store: for storing the token after that.
        clock_skew: how far a clock may be from the true time, either way.
        refusal: for how long the API is left in peace after it gave no token.
        longest_retry_after: for how long instead, at most, if the API named a time itself.
        min_interval: a token younger than this is not refreshed yet, whoever says it is invalid.
        patience: how long `get` waits at most. The default outlives the death of one holder and the next one's refresh.
    """

    api: float = 5.0
    store: float = 2.0
    clock_skew: float = 2.0
    refusal: float = 30.0
    longest_retry_after: float = 3600.0
    min_interval: float = 5.0
    patience: float = 20.0

    def __post_init__(self) -> None:
        for name in ("api", "store", "refusal", "patience"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(
                    f"Timing.{name} must be a finite number of seconds above 0, got {getattr(self, name)!r}"
                )
        for name in ("clock_skew", "longest_retry_after", "min_interval"):
            if not 0 <= getattr(self, name) < inf:
                raise ValueError(
                    f"Timing.{name} must be a finite number of seconds, 0 or more, got {getattr(self, name)!r}"
                )
        if not self.patience > self.holding:
            raise ValueError(f"Timing.patience must be above api + store, {self.holding:g} s, got {self.patience!r}")

    @property
    def spread(self) -> float:
        """How far two clocks may be apart."""
        return 2 * self.clock_skew

    @property
    def holding(self) -> float:
        """How long a healthy holder keeps the lock at most."""
        return self.api + self.store

    @property
    def lease(self) -> float:
        """After how long a lock counts as expired: even by the fastest clock allowed, a healthy holder is done."""
        return self.holding + self.spread

    def refused_for(self, retry_after: float | None) -> float:
        """For how long the API is left in peace by the clock of the instance that it refused: by the fastest clock
        allowed, for `refusal` or for what the API asked for."""
        asked = self.refusal if retry_after is None else min(max(0.0, retry_after), self.longest_retry_after)
        return asked + self.spread

    @property
    def longest_refusal(self) -> float:
        """A refusal that seems to last longer was not written by an instance whose clock is right, and binds nobody."""
        return max(self.refusal, self.longest_retry_after) + 3 * self.spread


@dataclass(frozen=True)
class KnownToken:
    """A token as this instance knows it; without a generation if it was told of it from outside."""

    value: str = field(repr=False)
    generation: int | None

    def is_stored_in(self, item: TokenItem) -> bool:
        """The generation counts too, for an API that answers `POST /auth` with the same token again."""
        return item.access_token == self.value and self.generation in (None, item.generation)


@dataclass(frozen=True)
class WaitForRefresh:
    reason: str


def longest_poll_interval(waited: float, expected: float) -> float:
    """How long one who has waited for `waited` and expects the token in `expected` does not look, at most. Pure."""
    rest = min(expected, FIRST_EXPECTED_SECONDS + EXPECTED_GROWTH * waited)
    return min(LONGEST_POLL_SECONDS, max(FIRST_POLL_SECONDS + POLL_GROWTH * waited, rest))


def is_young(stored_at: float, now: float, timing: Timing) -> bool:
    """Whether a token is not refreshed yet, whoever says it is invalid. Stored in the future: by a wrong clock."""
    return -timing.spread <= now - stored_at < timing.min_interval


class Step(Enum):
    USE = "use the stored token"
    RESPECT_REFUSAL = "do not ask the API until its refusal has ended"
    ACQUIRE = "acquire the lock and refresh"
    TOO_LATE = "leave the refresh to an instance with more time"


def decide(
    item: TokenItem,
    bad: KnownToken | None,
    *,
    watched: float,
    now: float,
    left: float,
    timing: Timing,
    delegated_code: str | None = None,
) -> Step | WaitForRefresh:
    """What an instance does that needs a token. Pure.

    Args:
        bad: the token that this instance has found invalid.
        watched: for how long it has seen this very lock, by its own count: so a slow clock makes nobody wait longer.
        now: its clock, seconds since the epoch.
        left: seconds until it must have a token.
        delegated_code: a release code whose lock it may take over at once.
    """
    if item.access_token is not None and (bad is None or not bad.is_stored_in(item)):
        return Step.USE
    if item.lock is not None:
        expired = now >= item.lock.expires or watched >= timing.lease
        if not expired and item.lock.release_code != delegated_code:
            return WaitForRefresh("another instance is refreshing it")
    elif item.refused_until is not None and 0 < item.refused_until - now <= timing.longest_refusal:
        return Step.RESPECT_REFUSAL
    elif item.access_token is not None and is_young(item.stored_at, now, timing):
        return WaitForRefresh(f"the stored one is younger than the {timing.min_interval:g} s between two refreshes")
    if left < timing.holding:
        return Step.TOO_LATE
    return Step.ACQUIRE
