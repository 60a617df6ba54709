"""One token for every instance: one of them refreshes it while the others wait.

An API that allows one token at a time kills every earlier token at each `POST /auth`. So all instances share the token
in one DynamoDB item (item.py), each with a cache of its own, and:

    get         cache, else the item, else refresh
    invalidate  a 401 marks the very token it was the answer to; if another one is stored by now, that one is used
    refresh     one instance takes the lock, asks the API, stores the token; the others look until the item changes
    take over   a lock that has expired goes to exactly one of those who wait

Safety needs no clock: a token is stored only under the lock that its `POST /auth` was made under. Clocks decide when a
lock counts as expired, and thereby only whether two ask the API at once; the lease leaves room for the skew allowed.

The parts: item.py the item and its conditional updates, timing.py the times and the decision, refresh.py one
instance's way to a token, outcomes.py errors and events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import backoff

from slotkeeper.token.item import TokenTable
from slotkeeper.token.outcomes import (
    StillUnauthorized,
    TokenEvent,
    TokenTimeout,
    Unauthorized,
    Waited,
)
from slotkeeper.token.refresh import DelegateRefresh, Dependencies, LockPause, TokenRefresh, retry_transient
from slotkeeper.token.timing import KnownToken, Timing

MAX_TOKENS_PER_REQUEST = 3  # with which one request is asked: the cached one, the stored one, a new one


class SharedToken:
    """One API token, shared by all instances that name the same item. Safe to use from many threads.

    Args:
        table: where the item is.
        name: its key: one bot, one token.
        authenticate: asks the API for a new token within the seconds it is given, and returns it. Whatever it raises
            counts as a refusal, since the API may have been asked, except AuthenticationNotAttempted; the text of
            AuthenticationRefused is the reason.
        still_valid: asks the API, within seconds, whether it accepts a token: some call that any valid token may make.
            With it, a request that is always answered 401 costs nobody's token; without it, at most one refresh per
            `Timing.min_interval`. If it raises, the answer counts as no. It has the time that the caller can spare
            beyond a refresh, `Timing.api` at most.
        timing: see Timing. It must be the same for all instances.
        report: is told what happens, for metrics.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        table: TokenTable,
        name: str,
        authenticate: Callable[[float], str] | DelegateRefresh,
        *,
        still_valid: Callable[[str, float], bool] | None = None,
        timing: Timing | None = None,
        report: Callable[[TokenEvent], None] = lambda _event: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._timing = timing or Timing()
        self._deps = Dependencies(table, name, authenticate, still_valid, self._timing, report, clock)
        self._cached: KnownToken | None = None
        self._cached_is_new = False  # see _obtain
        self._bad: KnownToken | None = None
        self._lock_pause: LockPause | None = None
        self._thread_lock = threading.Lock()

    def get(self, within: float | None = None) -> str:
        """A token that this instance has no reason to doubt. From the cache it costs no call.

        Args:
            within: seconds, if there are fewer than `Timing.patience`; the time a Lambda has left, say. With fewer than
                `Timing.api + Timing.store` this instance never refreshes: if no other does either, TokenTimeout comes
                immediately.

        Raises:
            TokenRefused: the API gave no token a moment ago, to this or to another instance.
            TokenTimeout: no token came in time.
            MalformedToken: the item is not what item.py says.
            ClientError, BotoCoreError: DynamoDB refused for good.
        """
        cached = self._cached
        return cached.value if cached is not None else self._obtain(within)[0].value

    def invalidate(self, token: str) -> None:
        """The API answered 401 to this token. The next `get` uses another one, or refreshes if there is none yet."""
        cached = self._cached
        if cached is None:
            # Another thread was here before, or the token comes from outside.
            self._bad = self._bad or KnownToken(token, None)
        elif cached.value == token:
            self._bad, self._cached = cached, None

    def call[Answer](self, request: Callable[[str], Answer], within: float | None = None) -> Answer:
        """Runs a request with a valid token, and once more with a new token if it raises Unauthorized.

        A token that was in the item all along may be as dead as the one in the cache: then a 401 to it is the first one
        that says so, and not the second. With `still_valid` a new token is not held to be good either: the late POST of
        a container that stood still may have killed it before it was stored. So a request may be made three times, but
        never more.

        Args:
            within: seconds for all the tokens together; the request's own time comes on top.

        Raises:
            StillUnauthorized: a new token did not help, or the API accepts the token. Nobody's token is refreshed.
            Whatever `get` and the request raise.
        """
        tried: list[KnownToken] = []
        left, allowed = within, self._bounded(within)
        while True:
            started = time.monotonic()
            cached = self._cached
            known, is_new = (cached, False) if cached is not None else self._obtain(left, allowed=allowed)
            if left is not None:
                left -= time.monotonic() - started
            if known in tried:
                raise StillUnauthorized("the API answered 401 to this request, though it accepts the token")
            try:
                return request(known.value)
            except Unauthorized:
                # Where the API can be asked, the search for the next token finds out whether this one is dead.
                blamed = is_new and self._deps.still_valid is None
                if tried and (blamed or len(tried) == MAX_TOKENS_PER_REQUEST - 1):
                    raise StillUnauthorized("the API answered 401 to this request again, with a newer token") from None
                self.invalidate(known.value)
                tried.append(known)

    def refresh(self, delegated_code: str | None = None, within: float | None = None) -> int:
        """Replaces the stored token though nobody has found it invalid: for the one function that refreshes.

        If another instance is refreshing it, waits for that one's token instead.

        Args:
            delegated_code: the release code of the instance that delegates the refresh. If the lock has another code by
                now, nothing is done: an asynchronous invocation may arrive twice (Lambda guide, "Invoking a Lambda
                function asynchronously").
            within: as for `get`.

        Returns:
            The generation that is stored now.

        Raises:
            As `get`.
        """
        item = retry_transient(self._deps.table.read, self._timing.store)(self._deps.name)
        if delegated_code is not None and (item.lock is None or item.lock.release_code != delegated_code):
            return item.generation
        # Dropped even if the item is gone: somebody has deleted it, and waits for a new token.
        self._cached = None
        self._bad = KnownToken(item.access_token, item.generation) if item.access_token is not None else None
        return self._obtain(within, probes=False, delegated_code=delegated_code)[0].generation or 0

    def _bounded(self, within: float | None) -> float:
        return self._timing.patience if within is None else max(0.0, min(within, self._timing.patience))

    def _obtain(
        self,
        within: float | None,
        *,
        allowed: float | None = None,
        probes: bool = True,
        delegated_code: str | None = None,
    ) -> tuple[KnownToken, bool]:
        """A token, and whether it is new: not stored yet when this thread, or the one that found it, began to look.

        Args:
            allowed: what `within` was before other tokens were tried.
        """
        started = time.monotonic()
        seconds = self._bounded(within)
        allowed = seconds if allowed is None else allowed
        if not self._thread_lock.acquire(timeout=seconds):
            raise TokenTimeout(f"no valid token within {seconds:.1f} s: another thread is looking for it")
        try:
            cached = self._cached  # by another thread, meanwhile
            if cached is not None:
                return cached, self._cached_is_new
            return self._search(max(0.0, seconds - (time.monotonic() - started)), allowed, probes, delegated_code)
        finally:
            self._thread_lock.release()

    def _search(
        self, seconds: float, allowed: float, probes: bool, delegated_code: str | None
    ) -> tuple[KnownToken, bool]:
        refresh = TokenRefresh(
            self._deps,
            self._bad,
            seconds,
            allowed=allowed,
            probes=probes,
            delegated_code=delegated_code,
            lock_pause=self._lock_pause,
        )
        poll = backoff.on_predicate(
            backoff.runtime,
            # backoff's own bound goes by a clock that may be set back.
            lambda token: token is None and refresh.waited < seconds,
            # Enough to part those who met the 401 together; with more, they would look more often and learn it later.
            jitter=lambda pause: pause / 2 + backoff.full_jitter(pause / 2),
            max_time=seconds,
            logger=None,
            value=lambda _: refresh.longest_poll_interval,
        )(refresh.check)
        try:
            token = poll()
        finally:
            self._bad, self._lock_pause = refresh.bad, refresh.lock_pause
            if refresh.reads > 1 or refresh.refreshing:
                self._deps.report(Waited(refresh.waited))
        if token is None:
            raise TokenTimeout(f"no valid token within {seconds:.1f} s: {refresh.reason}")
        self._cached, self._cached_is_new = token, refresh.is_new(token)
        return token, self._cached_is_new
