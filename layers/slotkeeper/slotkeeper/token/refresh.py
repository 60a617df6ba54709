"""The refresh of one instance: reads the item until it can use the token, refresh it, or has no time left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import uuid4

import backoff
from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.token.item import RefreshLock, TokenItem, TokenTable
from slotkeeper.token.outcomes import (
    AuthenticationFailed,
    AuthenticationNotAttempted,
    AuthenticationRefused,
    RefreshAbandoned,
    Refreshed,
    StoredTooLate,
    TokenEvent,
    TokenRefused,
    TokenTimeout,
    TookOver,
)
from slotkeeper.token.timing import (
    OWN_FAILURE_PAUSE,
    KnownToken,
    Step,
    Timing,
    WaitForRefresh,
    decide,
    longest_poll_interval,
)

# After a probe that has used more than this share of `Timing.api`, the instance locks again, so that `POST /auth` also
# has its full time.
QUICK_PROBE_SHARE = 0.05

TRANSIENT_ERRORS = {
    "InternalServerError",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "ThrottlingException",
}


@dataclass(frozen=True)
class DelegateRefresh:
    """Replaces `authenticate`: the lock's holder invokes another function to refresh, then waits like the others.

    Args:
        ask: called with the release code, with which that function takes the lock over (`SharedToken.refresh`). It
            raises AuthenticationRefused if the function was certainly not invoked; after any other exception it may
            have been.
    """

    ask: Callable[[str], None]


@dataclass(frozen=True)
class Dependencies:
    """The dependencies of a refresh; see SharedToken."""

    table: TokenTable
    name: str
    authenticate: Callable[[float], str] | DelegateRefresh
    still_valid: Callable[[str, float], bool] | None
    timing: Timing
    report: Callable[[TokenEvent], None]
    clock: Callable[[], float]


@dataclass(frozen=True)
class _Instant:
    """A time by both clocks: the monotonic clock may stop while a container is frozen, the other one may be set."""

    wall: float
    monotonic: float


@dataclass(frozen=True)
class LockPause:
    """The time, by the monotonic clock, until which an instance does not take the lock, and the reason."""

    until: float
    reason: str


class TokenRefresh:
    """The state of one instance that needs a valid token.

    Args:
        bad: the token that it has found invalid.
        seconds: its maximum duration.
        allowed: the seconds that its caller had at first, some of which may be used up.
        probes: whether it checks that the API refuses the stored token, before it requests a new one.
        delegated_code: the release code of another instance that delegated the refresh to this one.
        lock_pause: after a failure of this instance, in this refresh or an earlier one.
    """

    def __init__(
        self,
        dependencies: Dependencies,
        bad: KnownToken | None,
        seconds: float,
        *,
        allowed: float | None = None,
        probes: bool = True,
        delegated_code: str | None = None,
        lock_pause: LockPause | None = None,
    ) -> None:
        self.bad = bad
        self.lock_pause = lock_pause or LockPause(0.0, "")
        self.reason = "the token item was not read yet"
        self.reads = 0
        self._deps = dependencies
        self._seconds = seconds
        self._allowed = seconds if allowed is None else allowed
        self._probes = probes and dependencies.still_valid is not None
        self._probes_next = False  # whether it probes the stored token first when it gets the lock
        self._delegated_code = delegated_code
        self._started = time.monotonic()
        self._taken: dict[str, _Instant] = {}  # release codes that may be the lock's -> when `acquire` was called
        self._new_token: str | None = None  # a new token whose storing is not confirmed
        self._held_since = _Instant(0.0, 0.0)  # when `acquire` was called for its lock
        self._watched_code: str | None = None
        self._watched_since = 0.0
        self._first_seen: int | None = None  # the generation at the first read
        self._expected = 0.0  # when another instance's token is expected, by the monotonic clock

    @property
    def waited(self) -> float:
        """Seconds since this refresh began."""
        return time.monotonic() - self._started

    @property
    def longest_poll_interval(self) -> float:
        """Maximum seconds until the next read."""
        return longest_poll_interval(self.waited, self._expected - time.monotonic())

    @property
    def refreshing(self) -> bool:
        """Whether this instance has tried to take the lock."""
        return bool(self._taken)

    def is_new(self, token: KnownToken) -> bool:
        """Whether the token was stored after the first read."""
        return token.generation != self._first_seen

    def check(self) -> KnownToken | None:
        """Read the item and act on it; None if it must be read again. Raises as `SharedToken.get`."""
        self.reads += 1
        try:
            return self._decide(self._deps.table.read(self._deps.name))
        except (BotoCoreError, ClientError) as error:
            if not _is_transient(error):
                raise
            # Also after a write whose answer was lost: the next read shows whether it took effect.
            self.reason = f"DynamoDB did not answer: {type(error).__name__}"
            return None

    def _decide(self, item: TokenItem) -> KnownToken | None:
        watched = self._watch(item)
        if self._first_seen is None:
            self._first_seen = item.generation
        if item.lock is not None and item.lock.release_code in self._taken:
            return self._hold(item, item.lock.release_code)
        if self._new_token is not None:
            return self._was_stored(item, item.access_token == self._new_token)
        now = self._deps.clock()
        match decide(
            item,
            self.bad,
            watched=watched,
            now=now,
            left=self._seconds - self.waited,
            timing=self._deps.timing,
            delegated_code=self._delegated_code,
        ):
            case Step.USE:
                return KnownToken(item.access_token or "", item.generation)
            case Step.RESPECT_REFUSAL:
                raise TokenRefused(item.refused_reason, item.refused_until or now)
            case Step.ACQUIRE if time.monotonic() < self.lock_pause.until:
                self.reason = self.lock_pause.reason
                return None
            case Step.ACQUIRE:
                # No probe after a take-over: the dead holder has probably called the API, and the other instances have
                # already waited for a lease.
                self._probes_next = self._probes and item.access_token is not None and item.lock is None
                return self._take(item, now)
            case Step.TOO_LATE:
                self._raise_if_time_is_too_short()
                return None
            case WaitForRefresh(reason):
                self.reason = reason
                if item.lock is not None:
                    # The lock's age by its holder's clock, which may be ahead, but at least the time it was watched.
                    age = max(watched, now - (item.lock.expires - self._deps.timing.lease))
                    self._expect_after(item.refresh_seconds - age)
                return None

    def _raise_if_time_is_too_short(self) -> None:
        """Raise TokenTimeout if this caller never had the time for a refresh: if all wait, no instance refreshes."""
        timing = self._deps.timing
        left = max(0.0, self._seconds - self.waited)
        self.reason = (
            f"no instance is refreshing it, and {left:.1f} s are too few for this one to start: a refresh needs "
            f"{timing.holding:g} s (Timing.api + Timing.store)"
        )
        if self.lock_pause.until > self._started:
            self.reason = f"{self.lock_pause.reason}; {self.reason}"
        if self._allowed < timing.holding:
            advice = timing.advice_for(self._allowed)
            raise TokenTimeout(f"no valid token within {self._allowed:.1f} s: {self.reason}. {advice}")

    def _expect_after(self, seconds: float) -> None:
        self._expected = time.monotonic() + seconds

    def _watch(self, item: TokenItem) -> float:
        """Return for how many seconds this instance has seen this lock."""
        code = item.lock.release_code if item.lock else None
        if code != self._watched_code:
            self._watched_code, self._watched_since = code, time.monotonic()
        return time.monotonic() - self._watched_since

    def _take(self, item: TokenItem, now: float) -> KnownToken | None:
        code = uuid4().hex
        # Stored before the call, because its answer may be lost. Then the next read finds the lock with this code.
        self._taken[code] = _Instant(now, time.monotonic())
        if not self._deps.table.acquire(self._deps.name, item, code, now + self._deps.timing.lease):
            self.reason = "another instance took the lock"
            self._expect_after(item.refresh_seconds)
            return None
        if item.lock is not None and item.lock.release_code not in (self._delegated_code, *self._taken):
            self._deps.report(TookOver())
        return self._hold(item, code)

    def _hold(self, item: TokenItem, code: str) -> KnownToken | None:
        """Refresh as the holder of the lock. `item` has the token that was found invalid."""
        table, name, timing = self._deps.table, self._deps.name, self._deps.timing
        since = self._held_since = self._taken[code]
        if self._new_token is None:
            if self._probes_next:
                self._probes_next = False
                seconds = min(timing.api, self._seconds - self.waited - timing.holding)
                valid = self._probe(item.access_token or "", seconds)
                if valid is True:
                    table.release(name, code)
                    return KnownToken(item.access_token or "", item.generation)
                if isinstance(valid, AuthenticationRefused) and item.refused_until is None:
                    # A `POST /auth` would end a token that may be valid, at an API that is in trouble. After the pause
                    # it is sent even if the next probe has such an answer: the probe alone may be broken.
                    self._refuse(code, str(valid), timing.refused_for(valid.retry_after))
                    return None
                if valid is None and seconds < timing.api <= self._allowed - timing.holding:
                    # The token may be valid. Another instance, or this one at the next call, has the time to check it.
                    table.release(name, code)
                    self.reason = f"{seconds:.1f} s were too few to check with the API whether the stored one is valid"
                    return None
                if self._elapsed(since) > QUICK_PROBE_SHARE * timing.api:
                    # Two calls of a slow API do not fit into one lease. So take the lock again, from this instance.
                    mine = replace(item, lock=RefreshLock(code, since.wall), refused_until=None)
                    return self._take(mine, self._deps.clock())
            left = timing.api - self._elapsed(since)
            if left < timing.api / 2:
                # This container was paused, or DynamoDB was slow. A POST that starts now might end after the lease.
                table.release(name, code)
                self.reason = "the lock came too late to use it"
                return None
            if isinstance(self._deps.authenticate, DelegateRefresh):
                self._delegate(self._deps.authenticate, code)
                return None
            self._new_token = self._ask_the_api(self._deps.authenticate, code, timing.api - self._elapsed(since))
            if self._new_token is None:
                return None
        stored, item = table.store(name, code, self._new_token, self._deps.clock(), self._elapsed(since))
        return self._was_stored(item, stored)

    def _was_stored(self, item: TokenItem, stored: bool) -> KnownToken | None:
        """Return this instance's new token if it was stored. If it was not, the instance had lost its lock:

        1. Instance A takes the lock and is frozen.
        2. The lease ends. Instance B takes over, POSTs, and stores its token.
        3. A continues and POSTs, which ends B's token.
        4. A does not store its token, because it cannot know whether another instance has posted since.
        5. A treats the stored token as invalid, and refreshes it like any other.
        """
        token, self._new_token = self._new_token or "", None
        if stored:
            self._deps.report(Refreshed(item.generation, self.waited))
            return KnownToken(token, item.generation)
        if self._elapsed(self._held_since) < self._deps.timing.holding:
            # The lease has not ended, so no instance can have taken over. The token was stored and the answer was lost.
            # Another instance has since found the token invalid and replaced it by a valid one.
            self.reason = "another instance has already replaced this instance's token"
            return None
        if item.access_token is not None:
            self.bad = KnownToken(item.access_token, item.generation)
        self.reason = "this instance got its token after it had lost its lock"
        self._deps.report(StoredTooLate())
        return None

    def _delegate(self, other: DelegateRefresh, code: str) -> None:
        del self._taken[code]  # the lock now belongs to the other function
        try:
            other.ask(code)
        except AuthenticationRefused as error:
            self._refuse(code, str(error), self._deps.timing.refused_for(error.retry_after))
        except Exception as error:
            # The function may have been invoked. If not, the lock expires, and another instance invokes it.
            self.reason = f"the function that refreshes it may not have been invoked: {type(error).__name__}"

    def _probe(self, token: str, seconds: float) -> bool | AuthenticationRefused | None:
        """Check whether the API accepts a token. Return the error if its answer does not state that.

        None without an answer: `POST /auth` then shows the cause, and a slow API delays the others by no pause.
        """
        if self._deps.still_valid is None or seconds <= 0:
            return None
        try:
            return bool(self._deps.still_valid(token, seconds))
        except AuthenticationRefused as error:
            return error
        except Exception:
            return None

    def _ask_the_api(self, authenticate: Callable[[float], str], code: str, seconds: float) -> str | None:
        retry_after = None
        try:
            token = authenticate(seconds)
        except AuthenticationNotAttempted as error:
            self._unlock_after_own_failure(code, str(error), error.pause)
            return None
        except AuthenticationRefused as error:
            reason, retry_after = str(error), error.retry_after
        except Exception as error:
            reason = f"requesting it failed with {type(error).__name__}"  # its message may contain a secret
        else:
            if isinstance(token, str) and token:
                return token
            reason = "its answer contained no token"
        self._refuse(code, reason, self._deps.timing.refused_for(retry_after))
        return None

    def _unlock_after_own_failure(self, code: str, reason: str, pause: float) -> None:
        """Release the lock for other instances, after a failure of this one before it called the API."""
        if self._delegated_code is not None:
            # Only this function can refresh, and the instances that delegate to it would invoke it repeatedly.
            pause = max(pause, OWN_FAILURE_PAUSE)
        self.reason = f"this instance could not call the API: {reason}"
        # Without a pause this instance could take the lock again each time before another one reads the item.
        self.lock_pause = LockPause(time.monotonic() + pause + OWN_FAILURE_PAUSE, self.reason)
        if pause:
            self._refuse(code, reason, pause)
            return
        self._deps.report(RefreshAbandoned(reason))
        retry_transient(self._deps.table.release, self._deps.timing.store)(self._deps.name, code)

    def _refuse(self, code: str, reason: str, pause: float) -> None:
        """Record a refusal, so that no instance calls the API for `pause` seconds.

        Raises:
            TokenRefused: unless another instance has taken over the lock, whose result is newer.
        """
        until = self._deps.clock() + pause
        try:
            held = retry_transient(self._deps.table.refuse, self._deps.timing.store)(
                self._deps.name, code, until, reason
            )
        except (BotoCoreError, ClientError):
            held = True  # the lock stays, and prevents other calls of the API until it expires
        self._deps.report(AuthenticationFailed(reason))
        if held:
            raise TokenRefused(reason, until)

    def _elapsed(self, since: _Instant) -> float:
        return max(self._deps.clock() - since.wall, time.monotonic() - since.monotonic)


def retry_transient[**P, R](call: Callable[P, R], seconds: float) -> Callable[P, R]:
    """Wrap a call of DynamoDB, to repeat it for at most `seconds` after transient errors."""
    return backoff.on_exception(
        backoff.expo,
        (BotoCoreError, ClientError),
        giveup=lambda error: not _is_transient(error),
        max_time=seconds,
        logger=None,
        factor=0.05,
    )(call)


def _is_transient(error: Exception) -> bool:
    """Whether a retry may help: the call was throttled, interrupted or not answered, and not denied or invalid."""
    return not isinstance(error, ClientError) or error.response["Error"]["Code"] in TRANSIENT_ERRORS
