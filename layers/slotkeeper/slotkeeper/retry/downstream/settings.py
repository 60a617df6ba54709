"""The settings of circuit breaker, concurrency limit and retry budget, as parts of the retry policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# By class name, so with all their subclasses: failures that concern the downstream. ConnectionError,
# TimeoutError and the exceptions of requests are OSErrors; HTTPError is the base class of urllib3's exceptions.
BREAKER_ERRORS = ("Retryable", "OSError", "HTTPError", "ClientError", "BotoCoreError")
THROTTLE_ERRORS = ("RateLimited", "ThrottlingException", "Throttling", "TooManyRequestsException", "SlowDown")


@dataclass(frozen=True)
class Breaker:
    """The circuit breaker.

    With the built-in numbers it opens if 15 of the last 16 calls failed. Fewer, and it would open by chance at a
    downstream that fails every second call and completes all work with retries. More, and an outage would cost more
    calls.

    Args:
        failure_threshold: failures among the last `window_calls` calls of all containers that open it.
        window_calls: the number of calls that are considered; at least `failure_threshold` are.
        recovery: seconds; the longest time from the opening, or from a failed probe, to the next probe. The first probe
            comes much earlier (rules.py).
        errors: the names of the error types that count. Throttling counts only while the limit is one caller.
    """

    enabled: bool = True
    failure_threshold: int = 15
    window_calls: int = 16
    recovery: float = 30.0
    errors: tuple[str, ...] = BREAKER_ERRORS

    @property
    def considered(self) -> int:
        """How many of the last calls are considered."""
        return max(self.window_calls, self.failure_threshold)


@dataclass(frozen=True)
class Concurrency:
    """The adaptive concurrency limit; its rule is in concurrency_limit.py.

    Args:
        window: seconds. At most once per window throttling reduces the limit; it grows after a window in which it was
            in full use without throttling. At least the duration of a typical call.
        slow: seconds; a success that took longer reduces it like throttling. None: no success does.
        errors: the names of the error types that mean throttling.
    """

    enabled: bool = True
    window: float = 10.0
    slow: float | None = None
    errors: tuple[str, ...] = THROTTLE_ERRORS


@dataclass(frozen=True)
class Budget:
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
    """The settings of one downstream. `from_document` reads them; policy.schema.json has the bounds."""

    breaker: Breaker = field(default_factory=Breaker)
    concurrency: Concurrency = field(default_factory=Concurrency)
    budget: Budget = field(default_factory=Budget)

    def with_document(self, document: Mapping[str, Any]) -> DownstreamSettings:
        """Replace the fields that the document has, which must be valid by policy.schema.json."""
        return replace(
            self, **{part: replace(getattr(self, part), **_fields(given)) for part, given in document.items()}
        )


def _fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a part of the document: field names end with the unit there, and lists are tuples here."""
    values = {name.removesuffix("_seconds"): value for name, value in document.items()}
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(value)
        elif name in ("failure_threshold", "window_calls", "capacity"):
            values[name] = int(value)  # 5.0 is a whole number to JSON Schema
    return values
