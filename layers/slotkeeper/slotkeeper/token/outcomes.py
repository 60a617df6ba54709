"""Errors of the token lock, and the events that it reports for metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class AuthenticationRefused(Exception):
    """Raised by `authenticate`: the API gave no token. The reason is stored and shown, so it must contain no secret.

    Args:
        retry_after: the API's Retry-After, seconds; None if it sent none. No instance asks again before that, up to
            `Timing.longest_retry_after`. Default: `Timing.refusal`.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class AuthenticationNotAttempted(Exception):
    """Raised by `authenticate` if it failed before it called the API. The reason is shown; it must contain no secret.

    The instance releases the lock, so that another instance can refresh immediately, and waits `OWN_FAILURE_PAUSE`
    seconds before it tries again.

    Args:
        pause: seconds for which no instance tries, for a failure that probably affects all: no connection.
    """

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


class Unauthorized(Exception):
    """Raised by a request that `SharedToken.call` runs: the API answered 401."""


class TokenError(Exception):
    """There is no valid token for this request, or the API refuses the request with a valid one."""


class TokenRefused(TokenError):
    """The API gave no token, and no instance asks it again before `until` (seconds since the epoch)."""

    def __init__(self, reason: str, until: float) -> None:
        super().__init__(f"the API gave no token: {reason}")
        self.reason = reason
        self.until = until

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle passes the message alone. A pool of processes, which sends errors by pickle, would hang.
        return type(self), (self.reason, self.until), vars(self)


class TokenTimeout(TokenError):
    """No valid token was available in time. The message states the cause."""


class StillUnauthorized(TokenError):
    """The API answered 401 to a new token, or to one that it accepts: the request itself is not allowed."""


@dataclass(frozen=True)
class Refreshed:
    """This instance stored a new token, `seconds` after it began to take the lock."""

    generation: int
    seconds: float


@dataclass(frozen=True)
class Waited:
    """`get` had to wait for a token, its own refresh included."""

    seconds: float


@dataclass(frozen=True)
class TookOver:
    """This instance took over an expired lock, whose holder has died or was paused."""


@dataclass(frozen=True)
class AuthenticationFailed:
    """The API gave this instance no token."""

    reason: str


@dataclass(frozen=True)
class RefreshAbandoned:
    """This instance held the lock, failed before it called the API, and released the lock."""

    reason: str


@dataclass(frozen=True)
class StoredTooLate:
    """This instance got its token after it had lost its lock. It was not stored, and has ended the stored token."""


TokenEvent = Refreshed | Waited | TookOver | AuthenticationFailed | RefreshAbandoned | StoredTooLate
