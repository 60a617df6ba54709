"""One instance's way to a valid token: it looks at the item, and uses, waits, or refreshes by what it sees."""

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

# A probe that has used up more than this share of `Timing.api` is followed by a lock anew, so that `POST /auth` has all
# of its time too.
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
    """In place of `authenticate`: the winner of the lock asks another function to refresh, then waits like the others.

    Args:
        ask: called with the release code, by which that function takes the lock over (`SharedToken.refresh`). It raises
            AuthenticationRefused if that function surely was not asked; after any other error it may have been.
    """

    ask: Callable[[str], None]


@dataclass(frozen=True)
class Dependencies:
    """What a search works with; see SharedToken."""

    table: TokenTable
    name: str
    authenticate: Callable[[float], str] | DelegateRefresh
    still_valid: Callable[[str, float], bool] | None
    timing: Timing
    report: Callable[[TokenEvent], None]
    clock: Callable[[], float]


@dataclass(frozen=True)
class _Instant:
    """By both clocks: the monotonic one may stand still while a container is frozen, the other one may be set."""

    wall: float
    monotonic: float


@dataclass(frozen=True)
class LockPause:
    """Until when, by the monotonic clock, an instance leaves the lock to the others, and why."""

    until: float
    reason: str


class TokenRefresh:
    """What one instance has seen and done so far.

    Args:
        bad: the token that it has found invalid.
        seconds: how long it may take.
        allowed: how long its caller allowed for it, some of which the caller may have used up before.
        probes: whether the API is asked if the token really is invalid, before it is asked for a new one.
        delegated_code: the release code of another instance that asked this one to refresh.
        lock_pause: after a failure of this instance, in this search or the one before.
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
        self.reason = "it was not looked for yet"
        self.reads = 0
        self._deps = dependencies
        self._seconds = seconds
        self._allowed = seconds if allowed is None else allowed
        self._probes = probes and dependencies.still_valid is not None
        self._probes_next = False  # whether the lock that it has tried to take is for a probe first
        self._delegated_code = delegated_code
        self._started = time.monotonic()
        self._taken: dict[str, _Instant] = {}  # release codes that may be the lock's, since when at the latest
        self._new_token: str | None = None  # a new token that is not known to be stored
        self._held_since = _Instant(0.0, 0.0)  # its lock, at the latest
        self._watched_code: str | None = None
        self._watched_since = 0.0
        self._first_seen: int | None = None  # the generation that was stored when the search began
        self._expected = 0.0  # when the token that is waited for will be there, by the monotonic clock; or past

    @property
    def waited(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._started

    @property
    def longest_poll_interval(self) -> float:
        """Seconds until the next look at most, if this one has found nothing."""
        return longest_poll_interval(self.waited, self._expected - time.monotonic())

    @property
    def refreshing(self) -> bool:
        """Whether this instance has tried to take the lock."""
        return bool(self._taken)

    def is_new(self, token: KnownToken) -> bool:
        """Whether a token has been stored since the search began."""
        return token.generation != self._first_seen

    def check(self) -> KnownToken | None:
        """One look at the item and what follows from it; None if it has to be looked at again. Raises as `get`."""
        self.reads += 1
        try:
            return self._decide(self._deps.table.read(self._deps.name))
        except (BotoCoreError, ClientError) as error:
            if not _is_transient(error):
                raise
            # A write whose answer was lost comes here too: the next look shows whether it took effect.
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
                # A take-over is not probed: the dead holder has probably asked the API, and the others have waited for
                # a lease already.
                self._probes_next = self._probes and item.access_token is not None and item.lock is None
                return self._take(item, now)
            case Step.TOO_LATE:
                self._raise_if_time_is_too_short()
                return None
            case WaitForRefresh(reason):
                self.reason = reason
                if item.lock is not None:
                    # By its holder's clock, which may be ahead: but it is not younger than we have seen it.
                    age = max(watched, now - (item.lock.expires - self._deps.timing.lease))
                    self._expect_after(item.refresh_seconds - age)
                return None

    def _raise_if_time_is_too_short(self) -> None:
        """Raises TokenTimeout if this caller never had the time for a refresh: if all are like it, none ever begins."""
        needed = self._deps.timing.holding
        left = max(0.0, self._seconds - self.waited)
        self.reason = (
            f"nobody refreshes it, and {left:.1f} s are too few to begin: a refresh may take {needed:g} s "
            "(Timing.api + Timing.store)"
        )
        if self.lock_pause.until > self._started:
            self.reason = f"{self.lock_pause.reason}; {self.reason}"
        if self._allowed < needed:
            raise TokenTimeout(f"no valid token within {self._allowed:.1f} s: {self.reason}")

    def _expect_after(self, seconds: float) -> None:
        self._expected = time.monotonic() + seconds

    def _watch(self, item: TokenItem) -> float:
        """For how long this lock has been seen."""
        code = item.lock.release_code if item.lock else None
        if code != self._watched_code:
            self._watched_code, self._watched_since = code, time.monotonic()
        return time.monotonic() - self._watched_since

    def _take(self, item: TokenItem, now: float) -> KnownToken | None:
        code = uuid4().hex
        # Noted before the call, since its answer may be lost: then the next look finds the lock under this code.
        self._taken[code] = _Instant(now, time.monotonic())
        if not self._deps.table.acquire(self._deps.name, item, code, now + self._deps.timing.lease):
            self.reason = "another instance took the lock"
            self._expect_after(item.refresh_seconds)
            return None
        if item.lock is not None and item.lock.release_code not in (self._delegated_code, *self._taken):
            self._deps.report(TookOver())
        return self._hold(item, code)

    def _hold(self, item: TokenItem, code: str) -> KnownToken | None:
        """What the holder of the lock does. `item` has the token that was found invalid."""
        table, name, timing = self._deps.table, self._deps.name, self._deps.timing
        since = self._held_since = self._taken[code]
        if self._new_token is None:
            if self._probes_next:
                self._probes_next = False
                seconds = min(timing.api, self._seconds - self.waited - timing.holding)
                valid = self._probe(item.access_token or "", seconds)
                if valid:
                    table.release(name, code)
                    return KnownToken(item.access_token or "", item.generation)
                if valid is None and seconds < timing.api <= self._allowed - timing.holding:
                    # The token may be good. Another instance, or this one at the next call, has the time to find out.
                    table.release(name, code)
                    self.reason = f"{seconds:.1f} s were too few to ask the API whether it accepts the stored one"
                    return None
                if self._elapsed(since) > QUICK_PROBE_SHARE * timing.api:
                    # Two calls of a slow API do not fit into one lock: `take` locks anew what is still its own.
                    mine = replace(item, lock=RefreshLock(code, since.wall), refused_until=None)
                    return self._take(mine, self._deps.clock())
            left = timing.api - self._elapsed(since)
            if left < timing.api / 2:
                # This container stood still, or DynamoDB was slow. A POST that began now might end after the lease.
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
        """What came of the token in hand. If it was not stored, the lock was gone: this container stood still.

        Two instances: A takes the lock and is frozen; B takes over, POSTs, stores its token; A thaws and POSTs. A's
        token is the live one, but only while nobody has posted since, which A cannot know: so it never stores it. B's
        token is dead: so A holds that one invalid, and refreshes it like any other.
        """
        token, self._new_token = self._new_token or "", None
        if stored:
            self._deps.report(Refreshed(item.generation, self.waited))
            return KnownToken(token, item.generation)
        if self._elapsed(self._held_since) < self._deps.timing.holding:
            # Nobody can have taken the lock over by now. So the token was stored, the answer was lost, and another
            # instance has found it invalid and refreshed it since: theirs is a good one.
            self.reason = "its own token was replaced at once"
            return None
        if item.access_token is not None:
            self.bad = KnownToken(item.access_token, item.generation)
        self.reason = "its own token came after its lock was gone"
        self._deps.report(StoredTooLate())
        return None

    def _delegate(self, other: DelegateRefresh, code: str) -> None:
        del self._taken[code]  # from here on it is the other function's lock
        try:
            other.ask(code)
        except AuthenticationRefused as error:
            self._refuse(code, str(error), self._deps.timing.refused_for(error.retry_after))
        except Exception as error:
            # It may have been asked; if not, the lock expires and somebody asks again.
            self.reason = f"the function that refreshes it may not have been asked: {type(error).__name__}"

    def _probe(self, token: str, seconds: float) -> bool | None:
        """Whether the API says so; None if it does not answer. Then it is asked for a token, and says what is wrong."""
        if self._deps.still_valid is None or seconds <= 0:
            return None
        try:
            return self._deps.still_valid(token, seconds)
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
            reason = f"asking for it failed with {type(error).__name__}"  # its text may hold anything, a secret too
        else:
            if isinstance(token, str) and token:
                return token
            reason = "its answer held no token"
        self._refuse(code, reason, self._deps.timing.refused_for(retry_after))
        return None

    def _unlock_after_own_failure(self, code: str, reason: str, pause: float) -> None:
        """Leaves the refresh to the others, after a failure of this instance before it asked the API."""
        if self._delegated_code is not None:
            # No other instance can refresh, and those that delegate to this one would invoke it again and again.
            pause = max(pause, OWN_FAILURE_PAUSE)
        self.reason = f"this instance could not ask the API: {reason}"
        # Without a pause it could lock again, each time, before another instance reads the item.
        self.lock_pause = LockPause(time.monotonic() + pause + OWN_FAILURE_PAUSE, self.reason)
        if pause:
            self._refuse(code, reason, pause)
            return
        self._deps.report(RefreshAbandoned(reason))
        retry_transient(self._deps.table.release, self._deps.timing.store)(self._deps.name, code)

    def _refuse(self, code: str, reason: str, pause: float) -> None:
        """Leaves the API in peace for `pause` seconds, and says why to all who need a token.

        Raises:
            TokenRefused: but not if the lock is another's by now, who knows better.
        """
        until = self._deps.clock() + pause
        try:
            held = retry_transient(self._deps.table.refuse, self._deps.timing.store)(
                self._deps.name, code, until, reason
            )
        except (BotoCoreError, ClientError):
            held = True  # the lock stays, and keeps the others from asking until it expires
        self._deps.report(AuthenticationFailed(reason))
        if held:
            raise TokenRefused(reason, until)

    def _elapsed(self, since: _Instant) -> float:
        return max(self._deps.clock() - since.wall, time.monotonic() - since.monotonic)


def retry_transient[**P, R](call: Callable[P, R], seconds: float) -> Callable[P, R]:
    """A call of DynamoDB, repeated for so many seconds while it is throttled, broken off or unanswered."""
    return backoff.on_exception(
        backoff.expo,
        (BotoCoreError, ClientError),
        giveup=lambda error: not _is_transient(error),
        max_time=seconds,
        logger=None,
        factor=0.05,
    )(call)


def _is_transient(error: Exception) -> bool:
    """Throttled, broken off or unanswered; not denied, not malformed."""
    return not isinstance(error, ClientError) or error.response["Error"]["Code"] in TRANSIENT_ERRORS
