"""`make run PRIORITIES=yes`: a backlog, urgent and heavy requests in between, a cancellation, and a raised limit.

1. First the backlog: half of low priority, half of normal priority, some of them heavy.
2. While it is worked off, urgent requests, of high priority: one of them heavy.
3. A request of high priority that needs all slots. While slots are kept free for it, an operator cancels it.
4. A request of high priority that is heavier than the limit, so it is blocked, and keeps no other request out.
5. An operator raises the limit. The blocked request is the next to start. One more urgent request comes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import Snapshot, counted, watch
from dev.scenarios.runner.scenario import CannotContinue, Outcome, Run
from dev.scenarios.runner.whole_run import Sending
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.ending_queue import EndingQueue
from slotkeeper.slots.processes import Operations, Processes
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.request_table import Leaving, RequestTable
from slotkeeper.slots.rows import RequestRow, RequestRows

from . import slot_requests, slot_stack
from .slot_report import Parameters, build
from .slot_requests import PROCESS, Request, SentRequest

MIN_REQUESTS, MIN_LIMIT = 12, 3
OPERATOR = "make run"
URGENT_SHARE = 0.15
HEAVY_EVERY = 6  # of the backlog
# Seconds for which a job waits before its work. Without them the hand-offs would take much of a short run's time, and
# with equal ones several slots would be released at the same instant.
LINGER = (0.6, 1.4, 1.0)
WITHIN = 30.0  # seconds in which a request that was sent must be queued, while slots are in use
FULL_WITHIN = 5.0  # seconds for which an urgent request is held back until all slots are in use, so that it must wait
OTHERS = 2  # workflows that end while one is blocked, before the limit is raised
TICK = 0.02  # seconds


@dataclass(frozen=True)
class Mix:
    """The requests of a run. `raised`: the limit after it was raised."""

    backlog: Sequence[Request]
    urgent: Sequence[Request]
    cancelled: Request
    blocked: Request
    raised: int


def mix(requests: Sequence[Request], limit: int) -> Mix:
    """Give these requests, at least MIN_REQUESTS, their priorities and weights for this limit."""
    heavy = limit - 1
    lingering = [
        replace(each, arguments={**each.arguments, "--linger_seconds": f"{LINGER[i % len(LINGER)]:g}"})
        for i, each in enumerate(requests)
    ]
    count = max(3, round(URGENT_SHARE * len(requests)))
    *others, cancelled, blocked = lingering
    backlog = [
        replace(
            each,
            priority="normal" if number % 2 else "low",
            weight=heavy if number % HEAVY_EVERY == HEAVY_EVERY - 1 else 1,
        )
        for number, each in enumerate(others[:-count])
    ]
    urgent = [
        replace(each, priority="high", weight=heavy if number == count // 2 else 1)
        for number, each in enumerate(others[-count:])
    ]
    return Mix(
        backlog,
        urgent,
        replace(cancelled, priority="high", weight=limit),
        replace(blocked, priority="high", weight=limit + 1),
        limit + 2,
    )


def measure(aws: EmbeddedAws, parameters: Parameters, run: Run) -> Outcome:
    """Run on a deployed stack. Raises Stalled, SendFailed, CannotContinue."""
    requests, inputs = slot_requests.for_the_job(parameters.requests, parameters.fail)
    slot_stack.upload(aws, inputs, run)
    director, since = Director(aws, mix(requests, parameters.limit), parameters.limit), time.time()
    with run.phase("send", f"send a backlog of {counted(len(director.mix.backlog), 'request')}"):
        director.send(*director.mix.backlog)

    def progress(elapsed: float) -> Snapshot:
        snapshot = slot_stack.progress(aws, parameters.requests, director.limit, elapsed, since)
        director.act(snapshot.done)
        return snapshot

    with run.phase("run", "run, with urgent and heavy requests in between"):
        watch(run.console, progress)
    with run.phase("collect", "collect the records"):
        slots = slot_stack.collect(aws, director.sendings())
        results = slot_stack.outputs_of(aws)
    checks = [slot_stack.results_are_those(slots.history, director.sent, results)]
    return build(parameters, slots, checks, {}, run)


class Director:
    """Sends the requests of a mix, and acts as an operator.

    Attributes:
        limit: of the process.
        cancel_was_late: the request that was to be cancelled held its slots already.
    """

    def __init__(self, aws: EmbeddedAws, mix: Mix, limit: int) -> None:
        self.mix, self.limit = mix, limit
        self.sent: list[SentRequest] = []
        self.cancel_was_late = False
        self._aws, self._sqs, self._queue_url = aws, aws.client("sqs"), aws.outputs["RequestQueueUrl"]
        dynamodb, slots, requests = (
            aws.client("dynamodb"),
            aws.outputs["SlotTableName"],
            aws.outputs["RequestTableName"],
        )
        self._doorbell = Doorbell(self._sqs, aws.outputs["DispatchQueueUrl"])
        self._endings = EndingQueue(self._sqs, aws.outputs["EndingQueueUrl"])
        self._operations = Operations(Processes(dynamodb, slots), self._doorbell)
        self._rows, self._table = RequestRows(dynamodb, requests), RequestTable(dynamodb, requests, slots)
        self._course = self._steps()
        self._due: float = next(self._course)

    def send(self, *requests: Request) -> None:
        self.sent += slot_requests.send(self._sqs, self._queue_url, requests)

    def sendings(self) -> list[Sending]:
        """The messages, with their expected outcomes."""
        cancelled = None if self.cancel_was_late else self.mix.cancelled
        return [each.sending(outcome="CANCELLED" if each.request is cancelled else "") for each in self.sent]

    def act(self, ended: int) -> None:
        """Carry out the steps that are due after so many ended workflows. Raises CannotContinue."""
        while self._due <= ended:
            self._due = next(self._course, math.inf)

    def _steps(self) -> Iterator[int]:
        """The steps after the backlog. Before each it yields how many workflows must have ended."""
        *urgent, last = self.mix.urgent
        total = len(self.mix.backlog) + len(self.mix.urgent) + 2
        # The second half ends without further requests of high priority but the last.
        apart = total / 2 / len(self.mix.urgent)
        for number, each in enumerate(urgent):
            yield 1 + int(number * apart)
            self._send_when_full(each)
        yield total // 2
        self.send(self.mix.cancelled)
        name = _execution(self.mix.cancelled)
        self._await_queued(name)
        # All slots may have been released since the last read.
        leaving = Leaving(name, "CANCELLED", "Cancelled", f"by {OPERATOR}")
        self.cancel_was_late = not self._table.leave(PROCESS, [leaving], time.time())
        self._endings.publish(PROCESS, [name])
        self._doorbell.ring(Bell(PROCESS))
        self._send_when_full(self.mix.blocked)
        self._await_queued(_execution(self.mix.blocked))
        yield total // 2 + OTHERS
        self.limit = self.mix.raised
        self._operations.set_limit(PROCESS, self.limit)
        yield total // 2 + OTHERS + 2
        self._send_when_full(last)

    def _send_when_full(self, request: Request) -> None:
        self._wait_until(self._is_full, FULL_WITHIN)
        self.send(request)

    def _is_full(self) -> bool:
        item = slot_stack.item_of(self._aws, PROCESS)
        return item.slots_in_use >= item.slot_limit

    def _await_queued(self, execution: str) -> None:
        def row() -> RequestRow | None:
            return self._rows.row(PROCESS, execution)

        if not self._wait_until(lambda: row() is not None, WITHIN):
            raise CannotContinue(f"within {WITHIN:.0f} s {execution} was not queued; the run cannot show it")

    def _wait_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not (held := holds()) and time.monotonic() < deadline:
            time.sleep(TICK)
        return held


def _execution(request: Request) -> str:
    return execution_name(PROCESS, request.request_id, 1)
