"""The compared designs: what an invocation does with one message."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any, Protocol

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from slotkeeper.retry.attempt import WorkDeadLettered, WorkRetried, WorkSucceeded
from slotkeeper.retry.consumer import Consumer, StillInProgress, WorkRequest
from slotkeeper.retry.deferral import NotYetDue, WaitsForDownstream
from slotkeeper.retry.delivery import DeadLetterQueue, PlannedDelivery, RetryQueue, ScheduleTarget
from slotkeeper.retry.downstream.downstreams import DEFAULT, Downstreams, DownstreamTable, TooManyWriters
from slotkeeper.retry.downstream.health import Health, State
from slotkeeper.retry.ledger import Ledger
from slotkeeper.retry.message import Message, parse_message
from slotkeeper.retry.policy import BuiltInPolicy, Policy

from .fragile_downstream import Call
from .other_breakers import RULES, OtherBreakers
from .simulated_queue import QueuedMessage, SimulatedQueue, SimulatedScheduler
from .simulated_table import SimulatedTable
from .virtual_time import VirtualTime

# Of template.yaml, for the project's worker.
VISIBILITY, MAX_RECEIVES, INVOCATION = 720.0, 1000, 120.0
# A plain retry: a function with a timeout of 10 s, six times that as visibility timeout, and at least five receives
# (Lambda guide, "Configuring an SQS queue for use with Lambda").
PLAIN_VISIBILITY, PLAIN_MAX_RECEIVES = 60.0, 5


class Stopped(BaseException):
    """The function is stopped by its timeout, in the middle of a call."""


CALL = (0.003, 0.008)  # seconds of a call of DynamoDB or SQS
INVOKE = (0.010, 0.020)  # seconds from a container's end of one invocation to its next one

WATCHING, UNWATCHED, PLAIN = "worker", "worker without downstreams", "plain SQS retry"
DESIGNS = (WATCHING, UNWATCHED, PLAIN)


class Downstream(Protocol):
    """What the work calls. `calls` is its own record."""

    calls: list[Call]

    def call(self) -> None: ...


class World:
    """One queue, its consumers and a downstream.

    Args:
        design: one of DESIGNS, or a breaker of other_breakers.
        downstream: creates the downstream.
        concurrency: the event source's maximum concurrency.
        policy: the policy's document.

    Attributes:
        others: further downstreams, by name.
        done: the second at which each request succeeded, by its id.
    """

    def __init__(
        self,
        design: str,
        downstream: Callable[[VirtualTime, Random], Downstream],
        concurrency: int,
        seed: int,
        policy: Mapping[str, Any] | None = None,
    ) -> None:
        self.random = Random(seed)
        self.time = VirtualTime()
        self.design = design
        self.downstream = downstream(self.time, self.random)
        self.others: dict[str, Downstream] = {}
        self.done: dict[str, float] = {}
        self._opened = 0
        self._policy = _FixedPolicy(Policy.from_document(policy or {}))
        self._other = OtherBreakers(RULES[design], concurrency, self.time.clock) if design in RULES else None
        plain = design == PLAIN
        visibility, receives = (PLAIN_VISIBILITY, PLAIN_MAX_RECEIVES) if plain else (VISIBILITY, MAX_RECEIVES)
        self.queue = SimulatedQueue(self.time, visibility, receives, self._call)
        self.ledger = SimulatedTable("request_id", self._call)
        self.health = SimulatedTable("downstream", self._call)
        self.scheduler = SimulatedScheduler(self.time, self.queue, self._call)
        self.concurrency = concurrency
        self.permitted: list[tuple[float, int]] = []
        self.spent = 0  # attempts that a failure has used up; of a plain retry, receives
        self.unreported = 0
        for _ in range(concurrency):
            self.time.start(self._container(self._plain if plain else self._worker()))

    @property
    def opened(self) -> int:
        """How often a breaker has opened."""
        return self._other.opened if self._other else self._opened

    @property
    def backlog(self) -> int:
        """The messages that are queued or scheduled."""
        return len(self.queue.messages) + self.scheduler.pending

    def send(self, number: int | str, to: str = "", delay: float = 0.0, **fields: Any) -> None:
        body = {"request_id": f"request-{number}", "payload": {"to": to} if to else {}, **fields}
        self.queue.add(json.dumps(body), delay)

    def _call(self) -> None:
        self.time.sleep(self.random.uniform(*CALL))

    def _pause(self, most: float) -> None:
        self.time.sleep(self.random.uniform(0, most))

    def _container(self, handle: Callable[[QueuedMessage], bool]) -> Callable[[], None]:
        def run() -> None:
            while True:
                message = self.queue.receive()
                self.time.sleep(self.random.uniform(*INVOKE))
                if handle(message):
                    self.queue.delete(message)

        return run

    def _plain(self, _: QueuedMessage) -> bool:
        """A handler that raises: the message returns after the visibility timeout."""
        try:
            self.downstream.call()
        except Exception:
            self.spent += 1
            return False
        return True

    def _worker(self) -> Callable[[QueuedMessage], bool]:
        """A container with the worker's real code."""
        clock = self.time.clock
        sqs: Any = self.queue
        scheduler: Any = self.scheduler
        ledger: Any = self.ledger
        health: Any = self.health
        queue = _NotedRetries(sqs, scheduler, "work", ScheduleTarget("retries", "role", "work", "dead"))
        downstreams = Downstreams(
            DownstreamTable(health, "downstreams", pause=self._pause),
            most=self.concurrency,
            on_health=self._seen,
            on_unreported=self._unreported,
            clock=clock,
        )
        watched: Any = {WATCHING: downstreams, UNWATCHED: None} | dict.fromkeys(RULES, self._other)
        consumer = Consumer(
            Ledger(ledger, "ledger"),
            queue,
            DeadLetterQueue(sqs, "dead"),
            self._policy,
            downstreams=watched[self.design],
            downstream=lambda request: request.payload.get("to", DEFAULT),
            clock=clock,
            timer=clock,
        )

        def perform(request: WorkRequest, _seconds: float) -> None:
            self.others.get(request.payload.get("to", ""), self.downstream).call()

        def handle(message: QueuedMessage) -> bool:
            ends = self.time.now + INVOCATION
            context: Any = SimpleNamespace(get_remaining_time_in_millis=lambda: int((ends - self.time.now) * 1000))
            try:
                outcome = consumer.consume(SQSRecord(message.record), perform, context)
            except Stopped:
                return False
            except (WaitsForDownstream, NotYetDue, StillInProgress, TooManyWriters):
                return False
            if isinstance(outcome, WorkRetried):
                before = parse_message(message.body).uncounted
                self.spent += queue.uncounted == before
            if isinstance(outcome, WorkSucceeded):
                self.done[parse_message(message.body).request_id] = self.time.elapsed
            self.spent += isinstance(outcome, WorkDeadLettered)
            return True

        return handle

    def _unreported(self, _reason: str) -> None:
        self.unreported += 1

    def _seen(self, _name: str, before: Health, after: Health, callers: int | None) -> None:
        self._opened += before.breaker.state == State.CLOSED != after.breaker.state
        permitted = callers or 0 if after.breaker.state == State.CLOSED else 0
        if not self.permitted or self.permitted[-1][1] != permitted:
            self.permitted.append((self.time.elapsed, permitted))


class _FixedPolicy(BuiltInPolicy):
    """A policy from a document."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def latest(self) -> Policy:
        return self._policy

    latest_for_downstream = latest


class _NotedRetries(RetryQueue):
    """The real queue, which notes of the last retry how many attempts do not count."""

    uncounted = 0

    def schedule(self, message: Message, due: float, now: float) -> PlannedDelivery:
        self.uncounted = message.uncounted
        return super().schedule(message, due, now)
