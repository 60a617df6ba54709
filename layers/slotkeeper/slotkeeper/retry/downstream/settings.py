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
    """The circuit breaker. The names are those of Powertools' `circuit_breaker`.

    Args:
        failure_threshold: consecutive failures, counted over all containers, after which no attempt begins.
        recovery: seconds from the opening, or from a failed probe, to the next probe.
        errors: the names of the error types that count. Throttling counts only while the limit is one caller.
    """

    enabled: bool = True
    failure_threshold: int = 5
    recovery: float = 30.0
    errors: tuple[str, ...] = BREAKER_ERRORS


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
    """The retry budget: how many retries may fail in a window, besides those that are under way.

    Retries that succeed cost nothing, as in the standard retry mode of the AWS SDKs (SDKs and Tools Reference Guide,
    "Retry behavior"), and throttled ones reduce the concurrency limit instead. So a redrive after a repair has the
    whole concurrency.

    Args:
        percent: of the first attempts of the window.
        floor: the number that may always fail.
        window: seconds.
    """

    enabled: bool = True
    percent: float = 20.0
    floor: int = 10
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
        elif name in ("failure_threshold", "floor"):
            values[name] = int(value)  # 5.0 is a whole number to JSON Schema
    return values
