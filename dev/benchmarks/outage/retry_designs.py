"""The compared designs: what an invocation does with one message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from slotkeeper.retry.attempt import WorkDeadLettered, WorkRetried
from slotkeeper.retry.consumer import Consumer, StillInProgress
from slotkeeper.retry.dead_letters import DeadLetterQueue
from slotkeeper.retry.deferral import NotYetDue, WaitsForDownstream
from slotkeeper.retry.delivery import PlannedDelivery, RetryQueue, ScheduleTarget
from slotkeeper.retry.downstream.downstreams import Downstreams
from slotkeeper.retry.downstream.health import Health, State
from slotkeeper.retry.downstream.table import DownstreamTable, TooManyWriters
from slotkeeper.retry.ledger import Ledger
from slotkeeper.retry.message import Message, parse_message
from slotkeeper.retry.parameter import BuiltInPolicy

from .fragile_downstream import FragileDownstream
from .simulated_queue import QueuedMessage, SimulatedQueue, SimulatedScheduler
from .simulated_table import SimulatedTable
from .virtual_time import VirtualTime

# Of template.yaml, for the project's worker.
VISIBILITY, MAX_RECEIVES, INVOCATION = 720.0, 1000, 120.0
# A plain retry: a function with a timeout of 10 s, six times that as visibility timeout, and at least five receives
# (Lambda guide, "Configuring an SQS queue for use with Lambda").
PLAIN_VISIBILITY, PLAIN_MAX_RECEIVES = 60.0, 5

CALL = (0.003, 0.008)  # seconds of a call of DynamoDB or SQS
INVOKE = (0.010, 0.020)  # seconds from a container's end of one invocation to its next one

WATCHING, UNWATCHED, PLAIN = "worker", "worker without downstreams", "plain SQS retry"
DESIGNS = (WATCHING, UNWATCHED, PLAIN)


class World:
    """One queue, its consumers and a downstream.

    Args:
        concurrency: the event source's maximum concurrency.
    """

    def __init__(self, design: str, capacity: Sequence[tuple[float, int]], concurrency: int, seed: int) -> None:
        self.random = Random(seed)
        self.time = VirtualTime()
        self.design = design
        self.downstream = FragileDownstream(self.time, capacity, self.random)
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
    def backlog(self) -> int:
        """The messages that are queued or scheduled."""
        return len(self.queue.messages) + self.scheduler.pending

    def send(self, number: int) -> None:
        self.queue.add(f'{{"request_id":"request-{number}","payload":{{}}}}')

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
        consumer = Consumer(
            Ledger(ledger, "ledger"),
            queue,
            DeadLetterQueue(sqs, "dead"),
            BuiltInPolicy(),
            downstreams=downstreams if self.design == WATCHING else None,
            clock=clock,
            timer=clock,
        )

        def handle(message: QueuedMessage) -> bool:
            ends = self.time.now + INVOCATION
            context: Any = SimpleNamespace(get_remaining_time_in_millis=lambda: int((ends - self.time.now) * 1000))
            try:
                outcome = consumer.consume(SQSRecord(message.record), lambda *_: self.downstream.call(), context)
            except (WaitsForDownstream, NotYetDue, StillInProgress, TooManyWriters):
                return False
            if isinstance(outcome, WorkRetried):
                before = parse_message(message.body).uncounted
                self.spent += queue.uncounted == before
            self.spent += isinstance(outcome, WorkDeadLettered)
            return True

        return handle

    def _unreported(self, _reason: str) -> None:
        self.unreported += 1

    def _seen(self, _name: str, _before: Health, after: Health, callers: int | None) -> None:
        permitted = callers or 0 if after.state == State.CLOSED else 0
        if not self.permitted or self.permitted[-1][1] != permitted:
            self.permitted.append((self.time.elapsed, permitted))


class _NotedRetries(RetryQueue):
    """The real queue, which notes of the last retry how many attempts do not count."""

    uncounted = 0

    def schedule(self, message: Message, due: float, now: float) -> PlannedDelivery:
        self.uncounted = message.uncounted
        return super().schedule(message, due, now)
