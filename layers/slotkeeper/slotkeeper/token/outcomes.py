"""What the token lock raises, and what it reports for metrics."""

from __future__ import annotations

from dataclasses import dataclass


class AuthenticationRefused(Exception):
    """Raised by an `authenticate` callable: why there is no token. The text is stored and shown; no secret in it.

    Args:
        retry_after: for how many seconds the API wants not to be asked again; None if it did not say. It is honored up
            to `Timing.longest_retry_after`; without it no instance asks for `Timing.refusal`.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class AuthenticationNotAttempted(Exception):
    """Raised by an `authenticate` callable that failed before it asked the API. The text is shown; no secret in it.

    The instance unlocks the refresh, so that another instance can begin it immediately, and waits `OWN_FAILURE_PAUSE`
    seconds before it tries again.

    Args:
        pause: for how many seconds no instance tries, for a failure that the others probably share: no connection.
    """

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


class Unauthorized(Exception):
    """Raised by a request that `SharedToken.call` runs: the API answered 401."""


class TokenError(Exception):
    """There is no token for this request, or none that helps it."""


class TokenRefused(TokenError):
    """The API gave no token, and nobody asks it again before `until` (seconds since the epoch)."""

    def __init__(self, reason: str, until: float) -> None:
        super().__init__(f"the API gave no token: {reason}")
        self.reason = reason
        self.until = until


class TokenTimeout(TokenError):
    """No valid token came within the time there was; the text says what was waited for."""


class StillUnauthorized(TokenError):
    """The API answered 401 to a token that is new or that it accepts elsewhere: the request itself is not allowed."""


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
    """This instance took over an expired lock: its holder has died or stood still."""


@dataclass(frozen=True)
class AuthenticationFailed:
    """The API gave this instance no token."""

    reason: str


@dataclass(frozen=True)
class RefreshAbandoned:
    """This instance held the lock, failed before it asked the API, and unlocked."""

    reason: str


@dataclass(frozen=True)
class StoredTooLate:
    """This instance's token came after its lock was gone, was not stored, and has killed whichever was."""


TokenEvent = Refreshed | Waited | TookOver | AuthenticationFailed | RefreshAbandoned | StoredTooLate
