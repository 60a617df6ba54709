"""SharedToken: one API token for all instances. One instance refreshes it while the others wait.

An API that allows one token at a time ends every earlier token at each `POST /auth`. So all instances share the token
in one DynamoDB item (item.py), and each has a cache:

    get         returns the cached token, else the stored one, else refreshes
    invalidate  marks the token that got a 401 as invalid; if another token is stored since, that one is used
    refresh     one instance takes the lock, requests a token and stores it; the others read until the item changes
    take over   exactly one of the waiting instances gets an expired lock

Safety does not depend on clocks: a token is stored only under the lock under which its `POST /auth` was made. Clocks
decide when a lock counts as expired, and so only whether two instances may call the API at the same time. The lease
includes the allowed clock difference.

The modules: item.py has the item and its conditional updates, timing.py the times and the decision, refresh.py the
refresh of one instance, outcomes.py errors and events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import backoff

from slotkeeper.token.item import TokenTable
from slotkeeper.token.outcomes import StillUnauthorized, TokenEvent, TokenTimeout, Unauthorized, Waited
from slotkeeper.token.refresh import DelegateRefresh, Dependencies, LockPause, TokenRefresh, retry_transient
from slotkeeper.token.timing import KnownToken, Timing

MAX_TOKENS_PER_REQUEST = 3  # the cached one, the stored one, a new one


class SharedToken:
    """One API token, shared by all instances that use the same item. Thread-safe.

    Args:
        table: the token table.
        name: the item's key.
        authenticate: requests a new token from the API within the given seconds, and returns it. Every exception counts
            as a refusal, because the API may have received the request, except AuthenticationNotAttempted. The message
            of AuthenticationRefused is the reason.
        still_valid: checks, within the given seconds, whether the API accepts a token, by a call that every valid token
            may make. With it, a request that is always answered 401 causes no refresh; without it, at most one per
            `Timing.min_interval`. It gets the caller's time beyond a refresh, at most `Timing.api`. For an answer that
            does not state it, such as 429, it raises AuthenticationRefused: no instance refreshes for its `retry_after`
            or `Timing.refusal`, but the next such answer does not prevent a refresh. Any other exception counts as no.
        timing: see Timing. It must be the same for all instances.
        report: receives the token events, for metrics.
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
        """Return a token that this instance has not found invalid. A cached token needs no call.

        Args:
            within: maximum seconds, for example the time that a Lambda invocation has left. Default and maximum:
                `Timing.patience`. With less than `Timing.api + Timing.store` this instance never refreshes, and raises
                TokenTimeout immediately if no other instance is refreshing.

        Raises:
            TokenRefused: the API recently gave no token, to this or another instance.
            TokenTimeout: no token was available in time.
            MalformedToken: the item does not have the types that item.py documents.
            ClientError, BotoCoreError: DynamoDB refused the call, and a retry would not help.
        """
        cached = self._cached
        return cached.value if cached is not None else self._obtain(within)[0].value

    def invalidate(self, token: str) -> None:
        """Mark a token as invalid after a 401. The next `get` uses another token, or refreshes if none is stored."""
        cached = self._cached
        if cached is None:
            # Another thread has marked it already, or the token did not come from this cache.
            self._bad = self._bad or KnownToken(token, None)
        elif cached.value == token:
            self._bad, self._cached = cached, None

    def call[Answer](self, request: Callable[[str], Answer], within: float | None = None) -> Answer:
        """Run a request with a valid token, and again with another token if it raises Unauthorized.

        A request is made at most three times: with the cached token, with the stored one, which may be invalid too, and
        with a new one. With `still_valid` even a new token may be invalid: a paused container may have made its
        `POST /auth` late, and so have ended the new token before it was stored.

        Args:
            within: maximum seconds for getting all the tokens, without the time of the request.

        Raises:
            StillUnauthorized: a new token did not help, or the API accepts the token for other requests. The token is
                not refreshed.
            TokenTimeout: as `get`, and if three tokens were invalidated one after the other.
            Exception: any exception of `get` and of the request.
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
                raise StillUnauthorized(
                    "the API answered 401 to this request although it accepts the token, so the request itself is not "
                    "allowed"
                )
            try:
                return request(known.value)
            except Unauthorized:
                # With `still_valid` the refresh checks whether this token is invalid; without it a new token counts as
                # valid, and the request is at fault.
                is_final = is_new and self._deps.still_valid is None
                is_last = len(tried) == MAX_TOKENS_PER_REQUEST - 1
                if is_last and self._deps.still_valid is not None:
                    raise TokenTimeout(
                        f"the API answered 401 to this request with {MAX_TOKENS_PER_REQUEST} tokens, each of which was "
                        "replaced while the request was made: another client may invalidate them"
                    ) from None
                if tried and (is_final or is_last):
                    raise StillUnauthorized(
                        "the API answered 401 to this request again with a newer token: the request itself may not be "
                        "allowed"
                    ) from None
                self.invalidate(known.value)
                tried.append(known)

    def refresh(self, delegated_code: str | None = None, within: float | None = None) -> int:
        """Replace the stored token although it may be valid: for the function that refreshes for all instances.

        If another instance is refreshing, wait for its token instead.

        Args:
            delegated_code: the release code of the instance that delegates the refresh. If the lock has another code,
                the call has no effect: an asynchronous invocation may arrive twice (Lambda guide, "Invoking a Lambda
                function asynchronously").
            within: as for `get`.

        Returns:
            The generation of the token that is stored now.

        Raises:
            Exception: as `get`.
        """
        item = retry_transient(self._deps.table.read, self._timing.store)(self._deps.name)
        if delegated_code is not None and (item.lock is None or item.lock.release_code != delegated_code):
            return item.generation
        # Clear the cache also if the item does not exist: an operator has deleted it, to get a new token.
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
        """Return a token, and whether it is new: stored after the search for it began.

        Args:
            allowed: the value of `within` before other tokens were tried.
        """
        started = time.monotonic()
        seconds = self._bounded(within)
        allowed = seconds if allowed is None else allowed
        if not self._thread_lock.acquire(timeout=seconds):
            raise TokenTimeout(f"no valid token within {seconds:.1f} s: another thread is still waiting for one")
        try:
            cached = self._cached  # another thread may have set it since
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
            # backoff's max_time uses a clock that may be set back.
            lambda token: token is None and refresh.waited < seconds,
            # Spreads the reads of instances that got their 401 at the same time. More jitter would mean more reads, and
            # a longer delay until the token is found.
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
