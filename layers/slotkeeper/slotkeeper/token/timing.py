"""Decides whether an instance uses the stored token, waits for a refresh, or refreshes. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import floor, inf
from typing import Self

from slotkeeper.token.item import TokenItem

# Seconds between two reads. POLL_GROWTH is a share of the time waited. A thousand waiting instances then stay below the
# 3,000 consistent reads per second that DynamoDB serves of one item (DynamoDB guide, "Service, account, and table
# quotas").
FIRST_POLL_SECONDS, POLL_GROWTH, LONGEST_POLL_SECONDS = 0.05, 0.2, 0.6
# An instance that expects the token later reads less often, but at least at this interval. So each instance finds the
# token within 1.5 times the API's time plus a quarter of a second, also if the API is much faster than last time.
FIRST_EXPECTED_SECONDS, EXPECTED_GROWTH = 0.2, 0.5
# Seconds for which an instance does not take the lock after its own failure: several reads of the other instances.
OWN_FAILURE_PAUSE = 2.0
# Lambda's default timeout. With less, `POST /auth` would have less than 0.6 s, and storing the token less than 0.15 s.
SHORTEST_TIMEOUT = 3.0
# Shares of a function's timeout. A refresh (api and store) has a quarter. `patience` covers a probe of another instance
# that then fails itself, one's own probe, and a refresh. The last third of the timeout is for the function's own
# requests.
SHARES = {"api": 1 / 5, "store": 1 / 20, "min_interval": 1 / 6, "patience": 2 / 3}


@dataclass(frozen=True)
class Timing:
    """The times of the token lock, all in seconds.

    All instances that share a token must have the same times. An instance with a shorter lease would take over a lock
    whose holder still works, which costs another `POST /auth`.

    Args:
        api: maximum for each call of the API under the lock, `still_valid` and `authenticate`. If `authenticate` always
            takes longer, no token is ever stored.
        store: maximum for storing the token after that.
        clock_skew: maximum difference of a clock from the true time, in both directions.
        refusal: time without calls of the API after it gave no token.
        longest_retry_after: maximum of that time if the API sends a Retry-After.
        min_interval: a token younger than this is not refreshed, even if it was found invalid.
        patience: maximum wait of `get`. The default is long enough for the death of one holder and the next refresh.
    """

    api: float = 5.0
    store: float = 2.0
    clock_skew: float = 2.0
    refusal: float = 30.0
    longest_retry_after: float = 3600.0
    min_interval: float = 5.0
    patience: float = 20.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            may_be_0 = name in ("clock_skew", "longest_retry_after", "min_interval")
            if not 0 <= value < inf or (value == 0 and not may_be_0):
                expected = ", 0 or more" if may_be_0 else " above 0"
                raise ValueError(f"Timing.{name} must be a finite number of seconds{expected}, got {value!r}")
        if not self.patience > self.holding:
            raise ValueError(f"Timing.patience must be above api + store, {self.holding:g} s, got {self.patience!r}")

    @classmethod
    def for_timeout(cls, seconds: float) -> Self:
        """Return the times for functions with this timeout: a quarter of it for a refresh, and none above its default.

        If functions with different timeouts share a token, pass the shortest timeout in all of them. After the death of
        a lock's holder the others wait for the lease, which may be longer than their timeout.

        Raises:
            ValueError: the timeout is shorter than SHORTEST_TIMEOUT.
        """
        if not SHORTEST_TIMEOUT <= seconds < inf:
            raise ValueError(
                f"Timing.for_timeout expects a function's timeout of {SHORTEST_TIMEOUT:g} s or more, got {seconds!r}. "
                "In less time a refresh may never end: raise the function's timeout"
            )
        return cls(**{name: min(getattr(cls, name), seconds * share) for name, share in SHARES.items()})

    def advice_for(self, allowed: float) -> str:
        """Return what to change if callers allow only these seconds, which are too few for a refresh."""
        advice = "Raise the function's timeout and `within`"
        timeout = floor(allowed / SHARES["patience"])
        if timeout >= SHORTEST_TIMEOUT:
            needed = type(self).for_timeout(timeout).holding
            advice += f", or give all instances Timing.for_timeout({timeout}), with which a refresh needs {needed:g} s"
        return advice

    @property
    def spread(self) -> float:
        """The maximum difference between two clocks."""
        return 2 * self.clock_skew

    @property
    def holding(self) -> float:
        """The maximum time for which a healthy holder keeps the lock."""
        return self.api + self.store

    @property
    def lease(self) -> float:
        """The time after which a lock counts as expired. By then a healthy holder has finished, by any valid clock."""
        return self.holding + self.spread

    def refused_for(self, retry_after: float | None) -> float:
        """The duration of a refusal: `refusal` or the API's Retry-After, plus the maximum clock difference."""
        pause = self.refusal if retry_after is None else min(max(0.0, retry_after), self.longest_retry_after)
        return pause + self.spread

    @property
    def longest_refusal(self) -> float:
        """The maximum of a valid refusal. A longer one comes from an instance with a wrong clock, and is ignored."""
        return max(self.refusal, self.longest_retry_after) + 3 * self.spread


@dataclass(frozen=True)
class KnownToken:
    """A token of this instance. `generation` is None if the caller of `invalidate` passed an unknown token."""

    value: str = field(repr=False)
    generation: int | None

    def is_stored_in(self, item: TokenItem) -> bool:
        """Whether the item has this token. The generation is compared too: `POST /auth` may return the same token."""
        return item.access_token == self.value and self.generation in (None, item.generation)


@dataclass(frozen=True)
class WaitForRefresh:
    reason: str


def longest_poll_interval(waited: float, expected: float) -> float:
    """Return the maximum seconds until the next read, after `waited` seconds, with the token expected in `expected`."""
    rest = min(expected, FIRST_EXPECTED_SECONDS + EXPECTED_GROWTH * waited)
    return min(LONGEST_POLL_SECONDS, max(FIRST_POLL_SECONDS + POLL_GROWTH * waited, rest))


def is_young(stored_at: float, now: float, timing: Timing) -> bool:
    """Whether a token is too young to be refreshed. A time beyond `spread` in the future is from a wrong clock."""
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
    """Decide the next step of an instance that needs a token.

    Args:
        bad: the token that this instance has found invalid.
        watched: seconds for which it has seen this lock. With it, a wrong clock does not make it wait longer.
        now: its clock, seconds since the epoch.
        left: seconds until it must have a token.
        delegated_code: a release code whose lock it may take over immediately.
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
