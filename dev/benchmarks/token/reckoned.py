"""The same code on a clock that jumps: what hundreds of instances would see where a call takes as long as on AWS.

No engine on one machine answers hundreds at once as fast as DynamoDB does. So here the instances are greenlets, their
calls and pauses are events, and time goes from one event to the next. The lock's code is the product's own, with its
pauses as they are; the table is a plain object with the steps of token_item.py, and takes CALL_SECONDS for each.
"""

from __future__ import annotations

import datetime
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import patch

from backoff import _sync
from botocore.exceptions import ClientError
from greenlet import getcurrent, greenlet

from dev.benchmarks.token import ways
from dev.benchmarks.token.crowds import Invalidation, losers
from slotkeeper.token import lock as token_lock
from slotkeeper.token import refresh as token_search
from slotkeeper.token.item import RefreshLock, TokenItem

# A call of DynamoDB inside a region, and one of the API that is not `POST /auth`; by half of it more or less, or all
# would go on in step.
CALL_SECONDS = 0.005
# Units a second of one partition, and so of one item (DynamoDB guide, "Burst and adaptive capacity").
MOST = {"reads": 3000, "writes": 1000}
# botocore repeats a throttled call once, after a part of a second ("Retry behavior" of the AWS SDKs guide).
ATTEMPTS, RETRY_SECONDS = 2, 1.0
EPOCH = 1_800_000_000.0  # when it begins, by everybody's clock


class Clock:
    """Time, and who goes on when. In place of the module `time` while greenlets run."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, greenlet]] = []
        self._numbers = itertools.count()
        self._hub = getcurrent()

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return EPOCH + self.now

    def sleep(self, seconds: float) -> None:
        self._at(self.now + seconds, getcurrent())
        self._hub.switch()

    def half_a_call(self) -> None:
        self.sleep(random.uniform(0.5, 1.5) * CALL_SECONDS / 2)

    def run(self, works: list[Callable[[], None]]) -> None:
        """All of them, from now on, until the last one is done."""
        for work in works:
            self._at(self.now, greenlet(work, self._hub))
        while self._events:
            self.now, _, following = heapq.heappop(self._events)
            following.switch()

    def _at(self, moment: float, who: greenlet) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), who))


class _Dates:
    """In place of the module `datetime`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.datetime = self  # the class of that name

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._clock.time(), datetime.UTC)


class Table(ways.Store):
    """One token item. Half of a call's time is the way there."""

    def __init__(self, clock: Clock, item: TokenItem) -> None:
        self._clock = clock
        self._item = item
        self.counts: Counter[str] = Counter()
        self._room = {kind: (float(most), 0.0) for kind, most in MOST.items()}

    def read(self, _name: str) -> TokenItem:
        return self._call("reads", lambda: self._item)

    def take(self, _name: str, seen: TokenItem, release_code: str, expires: float) -> bool:
        def step() -> bool:
            before = self._item
            same = (before.generation, before.lock, before.refused_until) == (
                seen.generation,
                seen.lock,
                seen.refused_until,
            )
            self.counts["refused"] += not same
            if same:
                self._item = replace(before, lock=RefreshLock(release_code, expires), refused_until=None)
            return same

        return self._call("writes", step)

    def store(
        self, _name: str, release_code: str, token: str, now: float, seconds: float = 0.0
    ) -> tuple[bool, TokenItem]:
        def step() -> tuple[bool, TokenItem]:
            lock = self._item.lock
            held = lock is not None and lock.release_code == release_code
            if held:
                self._item = TokenItem(token, self._item.generation + 1, now, refresh_seconds=seconds)
            self.counts["refused"] += not held
            return held, self._item

        return self._call("writes", step)

    def put(self, token: str, seconds: float = 0.0) -> None:
        def step() -> None:
            generation = self._item.generation + 1
            self._item = replace(self._item, access_token=token, generation=generation, refresh_seconds=seconds)

        self._call("writes", step)

    def _call[Answer](self, kind: str, step: Callable[[], Answer]) -> Answer:
        for attempt in range(ATTEMPTS):
            self._clock.half_a_call()
            if self._is_served(kind):
                self.counts[kind] += 1
                answer = step()
                self._clock.half_a_call()
                return answer
            self.counts["throttled"] += 1
            self._clock.half_a_call()
            if attempt < ATTEMPTS - 1:
                self._clock.sleep(random.uniform(0, RETRY_SECONDS))
        raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "too many at once"}}, kind)

    def _is_served(self, kind: str) -> bool:
        """A bucket that holds the units of one second, and refills all the time."""
        left, since = self._room[kind]
        left = min(float(MOST[kind]), left + (self._clock.now - since) * MOST[kind])
        served = left >= 1
        self._room[kind] = (left - served, self._clock.now)
        return served


class Api:
    """One live token; a `POST /auth` kills the one before as it arrives."""

    def __init__(self, clock: Clock, auth_seconds: float) -> None:
        self._clock = clock
        self._auth_seconds = auth_seconds
        self.posts = 0

    def authenticate(self, _seconds: float) -> str:
        self._clock.half_a_call()
        self.posts += 1
        token = f"token-{self.posts}"
        self._clock.sleep(self._auth_seconds)
        self._clock.half_a_call()
        return token

    def is_valid(self, token: str, _seconds: float) -> bool:
        self._clock.half_a_call()
        valid = self.posts > 0 and token == f"token-{self.posts}"
        self._clock.half_a_call()
        return valid


@contextmanager
def _instead_of_time(clock: Clock) -> Iterator[None]:
    with ExitStack() as stack:
        for module in (ways, token_lock, token_search, _sync):
            stack.enter_context(patch.object(module, "time", clock))
        stack.enter_context(patch.object(_sync, "datetime", _Dates(clock)))
        yield


def meet_401(
    way: str,
    instances: int,
    auth_seconds: float,
    seed: int = 1,
    *,
    last_share: float | None = None,
    spread: float = 0.0,
) -> Invalidation:
    """One invalidation that all of them meet at once. The same seed draws the same pauses.

    Args:
        last_share: how long the refresh before this one took, as a multiple of `auth_seconds`; drawn if left out.
        spread: seconds within which they meet it, if not at once.
    """
    share = ways.last_share(seed) if last_share is None else last_share
    clock = Clock()
    api = Api(clock, auth_seconds)
    table = Table(clock, TokenItem("token-0", 1, EPOCH - 60, refresh_seconds=share * auth_seconds))
    messages: list[tuple[float, bool]] = []

    def live() -> None:
        clock.sleep(random.uniform(0, spread))
        messages.append(ways.serve(ways.WAYS[way](table, api), api, "token-0"))

    before = random.getstate()
    random.seed(seed)
    try:
        with _instead_of_time(clock):
            clock.run([live] * instances)
    finally:
        random.setstate(before)
    failed = sum(not answered for _, answered in messages)
    return Invalidation(api.posts, failed, losers(messages, api.posts), table.counts)
