"""The state of a downstream, and the values that rules.py decides with. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from slotkeeper.retry.downstream.settings import DownstreamSettings

# Two containers' clocks differ by less than this many seconds.
CLOCK_SKEW_SECONDS = 5.0
SUCCESS, FAILURE = "s", "f"  # in Health.outcomes

Reason = Literal["breaker", "concurrency", "budget"]


class State(StrEnum):
    """The states of the circuit breaker."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


class Answer(StrEnum):
    """What an attempt shows about the downstream. UNKNOWN: nothing, such as an error in the work's own code."""

    SUCCEEDED = "SUCCEEDED"
    THROTTLED = "THROTTLED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Change:
    """A change of the state between CLOSED and OPEN.

    Args:
        at: epoch seconds.
        why: for people.
        by: the operator who made it; empty for the worker.
    """

    at: float
    to: str
    why: str
    by: str = ""


@dataclass(frozen=True)
class Health:
    """The state of one downstream. Times are seconds since the epoch.

    Args:
        since: when `state` changed.
        forced: an operator opened the breaker.
        healthy: the last answer of the downstream was a success. False before the first answer. The success of a call
            that began before `failed_at` is none of these: an outage may have begun during the call.
        failed_at: the first failure after a success.
        outcomes: of the last calls while CLOSED, SUCCESS or FAILURE each, the newest last, from the first failure on.
        failed_probes: since the breaker opened.
        probe_at: while OPEN, when the next probe is due; while HALF_OPEN, when the probe's lease ends.
        limit: permitted callers by the adaptive limit; 0 means as many as possible.
        proven, throttled, calm: what is known about other limits (concurrency_limit.Limit).
        limit_set: an operator's limit, which replaces `limit`.
        window: when the present window of the concurrency limit began.
        cut: the window in which the limit was last reduced.
        clean: an attempt has succeeded in the window while the limit was in full use.
        seconds: the mean duration of calls, recent ones weighted more; 0 if unknown.
        spent: how many retries of the budget's capacity are used up.
        refilled: when time was last credited to the budget.
        permits: the attempts under way: code -> until when the permit is valid, and the epoch in which it began.
        changes: the last changes between CLOSED and OPEN.
    """

    state: State = State.CLOSED
    epoch: int = 0
    since: float = 0.0
    forced: bool = False
    healthy: bool = False
    failed_at: float = 0.0
    outcomes: str = ""
    failed_probes: int = 0
    probe_at: float = 0.0
    limit: int = 0
    proven: int = 0
    throttled: int = 0
    calm: int = 0
    limit_set: int | None = None
    window: float = 0.0
    cut: float = -1.0
    clean: bool = False
    seconds: float = 0.0
    spent: float = 0.0
    refilled: float = 0.0
    permits: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()

    @property
    def failures(self) -> int:
        """How many of the last calls failed."""
        return self.outcomes.count(FAILURE)

    def callers(self, settings: DownstreamSettings, most: int) -> int | None:
        """The permitted number of concurrent callers; None without a limit. `most`: the event source's concurrency."""
        if self.limit_set is not None:
            return self.limit_set
        return min(self.limit or most, most) if settings.concurrency.enabled else None

    def allowed_retries(self, settings: DownstreamSettings) -> float | None:
        """How many more retries the budget lets fail; None without a budget."""
        return max(0.0, settings.budget.capacity - self.spent) if settings.budget.enabled else None

    def probe_due(self, settings: DownstreamSettings, now: float) -> float:
        """When the next probe of an open breaker may begin.

        It is never later than a recovery time after the opening: by the present policy, although an earlier one had a
        longer time, and although the clock of the container that opened it was ahead.
        """
        is_ahead = self.since > now + CLOCK_SKEW_SECONDS
        return now if is_ahead else min(self.probe_at, self.since + settings.breaker.recovery)


@dataclass(frozen=True)
class Permit:
    """An attempt may begin.

    Args:
        code: unique.
        until: when it ends if its container dies, epoch seconds.
        epoch, window: those of the state in which it began.
        is_retry: whether it counts as a retry for the budget.
    """

    code: str
    until: float
    epoch: int = 0
    window: float = 0.0
    is_retry: bool = False


@dataclass(frozen=True)
class Refusal:
    """An attempt may not begin now.

    Args:
        reason: the rule that refuses.
        not_before: when an attempt may begin at the earliest, epoch seconds.
        per_second: how many messages should return per second after that.
    """

    reason: Reason
    not_before: float
    per_second: float
