"""The state of a downstream, the settings of its breaker, limit and budget, and the values that rules.py decides with.

Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from slotkeeper.settings import CLOCK_SKEW_SECONDS

SUCCESS, FAILURE = "s", "f"  # in Health.outcomes

# By class name, so with all their subclasses: failures that concern the downstream. ConnectionError,
# TimeoutError and the exceptions of requests are OSErrors; HTTPError is the base class of urllib3's exceptions.
BREAKER_ERRORS = ("Retryable", "OSError", "HTTPError", "ClientError", "BotoCoreError")
THROTTLE_ERRORS = ("RateLimited", "ThrottlingException", "Throttling", "TooManyRequestsException", "SlowDown")

# Of an event source (Lambda guide, "Configuring scaling behavior for SQS event source mappings").
MAX_CONCURRENCY = 1000

Reason = Literal["breaker", "concurrency", "budget"]


class State(StrEnum):
    """The states of the circuit breaker."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


class Answer(StrEnum):
    """The evidence of an attempt about the downstream. UNKNOWN: nothing, such as an error in the work's own code."""

    SUCCEEDED = "SUCCEEDED"
    THROTTLED = "THROTTLED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class BreakerSettings:
    """The circuit breaker.

    With the built-in numbers it opens if the last 18 calls failed. Fewer, or with one success among them, and it would
    open by chance at a downstream that fails two of three calls and completes all work with retries. More, and an
    outage would cost more calls.

    Args:
        failure_threshold: failures among the last `window_calls` calls of all containers that open it.
        window_calls: the number of calls that are considered; at least `failure_threshold` are.
        recovery: seconds; the longest time from the opening, or from a failed probe, to the next probe. The first probe
            comes much earlier (rules.py).
        errors: the names of the error types that count. Throttling counts only while the limit is one caller.
    """

    enabled: bool = True
    failure_threshold: int = 18
    window_calls: int = 18
    recovery: float = 10.0
    errors: tuple[str, ...] = BREAKER_ERRORS

    @property
    def considered(self) -> int:
        """How many of the last calls are considered."""
        return max(self.window_calls, self.failure_threshold)


@dataclass(frozen=True)
class ConcurrencySettings:
    """The adaptive concurrency limit; its rule is in rules.py.

    Args:
        window: seconds, or the mean duration of a call if that is longer. At most once per window throttling reduces
            the limit; it grows after a window in which it was in full use without throttling.
        slow: seconds; a success that took longer reduces it like throttling. None: no success does.
        errors: the names of the error types that mean throttling.
    """

    enabled: bool = True
    window: float = 2.0
    slow: float | None = None
    errors: tuple[str, ...] = THROTTLE_ERRORS


@dataclass(frozen=True)
class BudgetSettings:
    """The retry budget: how many retries may fail, besides those that are under way. A token bucket.

    A retry that fails takes one; each success returns a part, as in the standard retry mode of the AWS SDKs (SDKs and
    Tools Reference Guide, "Retry behavior"). So a downstream that completes most calls does not delay their retries.
    Throttled retries reduce the concurrency limit instead.

    Args:
        capacity: the retries that may fail without a success between them.
        percent: of one retry, which a success returns. With 100, a downstream that fails every second call delays no
            retry: a request then needs two calls on average, and one of four calls is a retry that fails.
        window: seconds in which time alone returns the whole capacity.
    """

    enabled: bool = True
    capacity: int = 20
    percent: float = 100.0
    window: float = 60.0


@dataclass(frozen=True)
class DownstreamSettings:
    """The settings of one downstream, by the retry policy; policy.schema.json has the bounds.

    `most` is the maximum concurrency of the worker's event source, the upper bound of the limit.
    """

    breaker: BreakerSettings = BreakerSettings()
    concurrency: ConcurrencySettings = ConcurrencySettings()
    budget: BudgetSettings = BudgetSettings()
    most: int = MAX_CONCURRENCY

    def with_document(self, document: Mapping[str, Any]) -> DownstreamSettings:
        """Replace the fields that the document has, which must be valid by policy.schema.json."""
        return replace(
            self, **{part: replace(getattr(self, part), **_fields(given)) for part, given in document.items()}
        )


@dataclass(frozen=True)
class Call:
    """A call of the downstream that has ended.

    Args:
        seconds: its duration.
        late: for how many seconds its answer could not be reported.
    """

    answer: Answer
    seconds: float = 0.0
    late: float = 0.0


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
class Breaker:
    """The state of the circuit breaker.

    Args:
        since: when `state` changed.
        forced: an operator opened it.
        healthy: the last answer of the downstream was a success. False before the first answer. The success of a call
            that began before `failed_at` is none of these: an outage may have begun during the call.
        failed_at: the first failure after a success.
        outcomes: of the last calls while CLOSED, SUCCESS or FAILURE each, the newest last, from the first failure on.
        failed_probes: since it opened.
        probe_at: while OPEN, when the next probe is due; while HALF_OPEN, when the probe's lease ends.
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
    changes: tuple[Change, ...] = ()

    @property
    def failures(self) -> int:
        """How many of the last calls failed."""
        return self.outcomes.count(FAILURE)

    def probe_due(self, settings: BreakerSettings, now: float) -> float:
        """When the next probe of an open breaker may begin.

        It is never later than a recovery time after the opening: by the present policy, although an earlier one had a
        longer time, and although the clock of the container that opened it was ahead.
        """
        is_ahead = self.since > now + CLOCK_SKEW_SECONDS
        return now if is_ahead else min(self.probe_at, self.since + settings.recovery)


@dataclass(frozen=True)
class Concurrency:
    """The state of the concurrency limit.

    Args:
        limit: permitted callers by the adaptive limit; 0 means as many as possible.
        proven: the last limit with a window in full use without throttling; 0 if unknown.
        throttled: the last limit that was too high; 0 if unknown.
        calm: windows in full use without throttling since `limit` or `throttled` changed.
        limit_set: an operator's limit, which replaces `limit`.
        window: when the present window began.
        cut: the window in which the limit was last reduced.
        clean: an attempt has succeeded in the window while the limit was in full use.
        seconds: the mean duration of calls, recent ones weighted more; 0 if unknown.
    """

    limit: int = 0
    proven: int = 0
    throttled: int = 0
    calm: int = 0
    limit_set: int | None = None
    window: float = 0.0
    cut: float = -1.0
    clean: bool = False
    seconds: float = 0.0

    def adaptive(self, most: int) -> int:
        """The adaptive limit. `most`: the event source's concurrency."""
        return min(self.limit or most, most)


@dataclass(frozen=True)
class Budget:
    """The state of the retry budget.

    Args:
        spent: how many retries of its capacity are used up.
        refilled: when time was last credited to it.
    """

    spent: float = 0.0
    refilled: float = 0.0


@dataclass(frozen=True)
class Health:
    """The state of one downstream.

    Args:
        permits: the attempts under way: code -> until when the permit is valid, and the epoch in which it began.
    """

    breaker: Breaker = Breaker()
    concurrency: Concurrency = Concurrency()
    budget: Budget = Budget()
    permits: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    def callers(self, settings: DownstreamSettings) -> int | None:
        """The permitted number of concurrent callers; None without a limit."""
        if self.concurrency.limit_set is not None:
            return self.concurrency.limit_set
        return self.concurrency.adaptive(settings.most) if settings.concurrency.enabled else None

    def allowed_retries(self, settings: DownstreamSettings) -> float | None:
        """How many more retries the budget lets fail; None without a budget."""
        return max(0.0, settings.budget.capacity - self.budget.spent) if settings.budget.enabled else None


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


def _fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a part of the document: field names end with the unit there, and lists are tuples here."""
    values = {name.removesuffix("_seconds"): value for name, value in document.items()}
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(value)
        elif name in ("failure_threshold", "window_calls", "capacity"):
            values[name] = int(value)  # 5.0 is a whole number to JSON Schema
    return values
