"""`make run PRIORITIES=yes`: a backlog, urgent and heavy requests in between, a cancellation, and a raised limit.

1. First the backlog: half of low priority, half of normal priority, some of them heavy. Two of high priority are
   heavier than the limit, so they are blocked, and keep no other request out.
2. While the backlog is worked off, urgent requests of high priority: one of them is heavy.
3. An operator cancels one of the blocked requests, and raises the limit. The other one is the next to start.
4. One more urgent request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .slot_requests import Request
from .slot_stack import SlotStack

MIN_REQUESTS, MIN_LIMIT = 12, 3
URGENT_SHARE = 0.15
HEAVY_EVERY = 6  # of the backlog
# Seconds for which a job waits before its work. Without them the hand-offs would take much of a short run's time, and
# with equal ones several slots would be released at the same instant.
LINGER = (0.6, 1.4, 1.0)


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
    lingering = [
        replace(each, work={"arguments": {**each.work["arguments"], "--linger_seconds": f"{LINGER[i % 3]:g}"}})
        for i, each in enumerate(requests)
    ]
    count = max(3, round(URGENT_SHARE * len(requests)))
    *others, cancelled, blocked = lingering
    heavy = limit - 1
    backlog = [
        replace(each, priority="normal" if i % 2 else "low", weight=heavy if i % HEAVY_EVERY == HEAVY_EVERY - 1 else 1)
        for i, each in enumerate(others[:-count])
    ]
    urgent = [
        replace(each, priority="high", weight=heavy if i == count // 2 else 1) for i, each in enumerate(others[-count:])
    ]
    too_heavy = {"priority": "high", "weight": limit + 1}
    return Mix(
        backlog,
        urgent,
        replace(cancelled, outcome="CANCELLED", **too_heavy),  # type: ignore[arg-type]
        replace(blocked, **too_heavy),  # type: ignore[arg-type]
        limit + 2,
    )


class Director:
    """Sends the requests of a mix, and acts as an operator. The first ones are sent when it is made."""

    def __init__(self, stack: SlotStack, mix: Mix) -> None:
        self._stack, self._mix = stack, mix
        stack.send(mix.cancelled, mix.blocked, *mix.backlog)
        self._steps = self._course()
        self._due, self._act = next(self._steps)

    def act(self, ended: int) -> None:
        """Carry out the steps that are due after so many ended requests."""
        while self._due <= ended:
            self._act()
            self._due, self._act = next(self._steps, (math.inf, self._act))

    def _course(self) -> Iterator[tuple[float, Callable[[], object]]]:
        """The steps, and how many requests must have ended before each."""
        stack, of = self._stack, self._mix
        *urgent, last = of.urgent
        total = len(of.backlog) + len(of.urgent) + 2
        for number, each in enumerate(urgent):
            yield 1 + number * total / 2 / len(of.urgent), lambda each=each: stack.send(each)  # type: ignore[misc]
        process = of.cancelled.process
        yield total // 2, lambda: stack.cancel(process, of.cancelled.execution)
        yield total // 2 + 2, lambda: stack.operations.set_limit(process, of.raised)
        yield total // 2 + 4, lambda: stack.send(last)
