"""The worker's breaker, limit, budget and retries in front of a fragile downstream, in virtual time.

Code that waits is suspended, and the clock jumps to the next instant at which some code continues. The same seed gives
the same run. The queue and the ledger take time, and do not fail.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any

from botocore.exceptions import ClientError
from greenlet import GreenletExit, getcurrent, greenlet

from slotkeeper.retry import Retryable
from slotkeeper.retry.consumer import QUICK_RETRY_SECONDS
from slotkeeper.retry.deferral import spread_seconds
from slotkeeper.retry.downstream.downstreams import DEFAULT, UNWATCHED, Downstreams, DownstreamTable, Rejection
from slotkeeper.retry.errors import Failure
from slotkeeper.retry.plan import AttemptHistory, RetryAt, plan_retry
from slotkeeper.retry.policy import Policy, share

LEASE = 125.0  # seconds: the worker's timeout in template.yaml, and CLOCK_SKEW_SECONDS
# Seconds of a call of DynamoDB; of an invocation besides its calls of the downstream; and to a refusal.
CALL, INVOCATION, REFUSAL = (0.003, 0.008), (0.03, 0.06), 0.05
POLL = 0.2  # seconds after which an idle container notices a new message, at most


class RateLimited(Retryable):
    """The downstream has too many callers."""


@dataclass(frozen=True)
class Fault:
    """What the downstream and its table do. The functions receive the seconds since the beginning, first.

    Args:
        per_second: messages per container.
        seconds: the mean duration of a call.
        slower: the factor by which calls are slower.
        errors: the share of calls that fail at random, after the duration of a call.
        is_refused: whether a call fails immediately.
        callers: how many the downstream takes of so many containers; it answers the others with 429.
        table: the share of calls of DownstreamTable that fail after the SDK's own retries.
    """

    per_second: float
    seconds: float = 0.5
    slower: Callable[[float], float] = lambda _: 1.0
    errors: float = 0.0
    is_refused: Callable[[float, Random], bool] = lambda *_: False
    callers: Callable[[float, int], float] = lambda *_: math.inf
    table: float = 0.0


class Clock:
    """Seconds since the beginning, and the tasks that wait for them."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._tasks: list[greenlet] = []
        self._hub = getcurrent()
        self._has_ended = False

    def read(self) -> float:
        return self.now

    def at(self, when: float, call: Callable[[], object]) -> None:
        heappush(self._due, (when, next(self._order), call))

    def start(self, task: Callable[[], object]) -> None:
        self._tasks.append(greenlet(task))
        self.at(self.now, self._tasks[-1].switch)

    def sleep(self, seconds: float) -> None:
        if self._has_ended:
            raise GreenletExit
        self.at(self.now + seconds, getcurrent().switch)
        self._hub.switch()

    def run(self, seconds: float) -> None:
        """Run for so many seconds, then end all tasks."""
        while self._due[0][0] <= seconds:
            self.now, _, call = heappop(self._due)
            call()
        self._has_ended = True
        for task in self._tasks:
            task.throw(GreenletExit)


class World:
    """Containers of one worker, which receive messages at a constant rate.

    Args:
        policy: the policy's document. None: the worker does not watch its downstream.

    Attributes:
        done: how many requests have succeeded.
        calls: (began, ended, answer) of each call of the downstream.
    """

    def __init__(self, fault: Fault, containers: int, seed: int, policy: Mapping[str, Any] | None) -> None:
        self.done = 0
        self.calls: list[tuple[float, float, int]] = []
        self._fault, self._containers, self._random = fault, containers, Random(seed)
        self._clock = Clock()
        self._policy = Policy.from_document(policy or {})
        self._callers = 0
        self._waiting: list[tuple[float, int, AttemptHistory]] = []  # (visible at, receives, attempts)
        self._item: dict[str, Any] = {}
        for _ in range(containers):
            self._clock.start(partial(self._container, watches=policy is not None))

    def run(self, seconds: float) -> World:
        rate = self._fault.per_second * self._containers
        for number in range(int(seconds * rate)):
            message = (number / rate, 0, AttemptHistory(str(number), ()))
            self._clock.at(number / rate, partial(heappush, self._waiting, message))
        self._clock.run(seconds)
        return self

    def _container(self, *, watches: bool) -> None:
        table = DownstreamTable(self, "downstreams", sleep=self._clock.sleep)  # type: ignore[arg-type]
        downstreams = Downstreams(table, most=self._containers, clock=self._clock.read)
        while True:
            while not self._waiting or self._waiting[0][0] > self._clock.now:
                visible_at = self._waiting[0][0] if self._waiting else math.inf
                self._clock.sleep(min(POLL, visible_at - self._clock.now))
            _, receives, message = heappop(self._waiting)
            self._clock.sleep(self._random.uniform(*INVOCATION))
            later = self._handle(message, receives, downstreams if watches else None)
            if later:
                heappush(self._waiting, later)

    def _handle(
        self, message: AttemptHistory, receives: int, downstreams: Downstreams | None
    ) -> tuple[float, int, AttemptHistory] | None:
        """Handle one delivery as the consumer does; the message's next delivery."""
        began = self._clock.now
        try:
            is_retry = bool(message.attempts)
            asked = downstreams and downstreams.ask(DEFAULT, self._policy, is_retry=is_retry, lease=LEASE)
        except ClientError:
            return self._clock.now + QUICK_RETRY_SECONDS, receives + 1, message
        if isinstance(asked, Rejection):
            # Of the queue's counts, the worker does not add that of delayed messages, which are retries here.
            backlog = sum(times > 0 or visible_at <= began for visible_at, times, _ in self._waiting)
            spread = spread_seconds(backlog, asked.per_second, asked.most_per_second)
            wait = max(0.0, asked.not_before - began) + spread * share(message.key, receives)
            return began + max(1, math.ceil(wait)), receives + 1, message
        with asked or UNWATCHED as admission:
            called = self._clock.now
            try:
                self._call_downstream()
            except Retryable as error:
                failure = Failure.of(error)
                counts = admission.failed(failure, self._clock.now - called)
                attempts = replace(message, attempts=(*message.attempts, began))
                plan = plan_retry(
                    replace(failure, counts=failure.counts and counts), attempts, self._policy, self._clock.now
                )
                if not isinstance(plan, RetryAt):
                    return None
                return plan.when, 0, replace(attempts, uncounted=attempts.uncounted + (not plan.counted))
            admission.succeeded(self._clock.now - called)
        self.done += 1
        return None

    def _call_downstream(self) -> None:
        fault, began, answer = self._fault, self._clock.now, 200
        if self._callers >= fault.callers(began, self._containers):
            answer = 429
        elif fault.is_refused(began, self._random):
            answer = 503
        seconds = fault.seconds * fault.slower(began) * self._random.uniform(0.8, 1.2)
        self._callers += 1
        self._clock.sleep(seconds if answer == 200 else REFUSAL)
        self._callers -= 1
        if answer == 200 and self._random.random() < fault.errors:
            answer = 503
        self.calls.append((began, self._clock.now, answer))
        if answer != 200:
            raise (RateLimited if answer == 429 else Retryable)(str(answer))

    # DynamoDB, with the downstream's item.

    def get_item(self, **_: Any) -> dict[str, Any]:
        self._call_table("GetItem")
        return {"Item": self._item} if self._item else {}

    def put_item(self, **given: Any) -> dict[str, Any]:
        self._call_table("PutItem")
        if self._item.get("version") != given.get("ExpressionAttributeValues", {}).get(":seen"):
            answer: Any = {"Error": {"Code": "ConditionalCheckFailedException"}, "Item": self._item}
            raise ClientError(answer, "PutItem")
        self._item = given["Item"]
        return {}

    def _call_table(self, operation: str) -> None:
        self._clock.sleep(self._random.uniform(*CALL))
        if self._random.random() < self._fault.table:
            raise ClientError({"Error": {"Code": "ProvisionedThroughputExceededException"}}, operation)
