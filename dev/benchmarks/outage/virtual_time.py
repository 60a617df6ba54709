"""Virtual time: code that waits is suspended, and the clock jumps to the next instant at which some code continues.

The real code of the product runs unchanged: each call of a simulated service waits for its latency by `sleep`. A run
with the same seed is the same run on every machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from heapq import heappop, heappush

from greenlet import GreenletExit, getcurrent, greenlet

# Epoch seconds of the start, so that the product's times are plausible.
START = 1_800_000_000.0


class VirtualTime:
    """A clock and the tasks that wait for it. `now` is in seconds since the epoch."""

    def __init__(self) -> None:
        self.now = START
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._tasks: list[greenlet] = []
        self._hub = getcurrent()

    def clock(self) -> float:
        """The time, for the product's `clock` and `timer`."""
        return self.now

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.now - START

    def at(self, when: float, call: Callable[[], object]) -> None:
        """Call at an instant, or now if it has passed. The call must not wait."""
        heappush(self._due, (max(when, self.now), next(self._order), call))

    def start(self, task: Callable[[], object]) -> None:
        """Start a task, which may wait."""
        # The hub is its parent: a task that ends continues its parent, which could otherwise be a task that sleeps.
        made = greenlet(task, self._hub)
        self._tasks.append(made)
        self.at(self.now, made.switch)

    def sleep(self, seconds: float) -> None:
        """Suspend the present task."""
        self.at(self.now + seconds, getcurrent().switch)
        self._hub.switch()

    def suspend(self) -> None:
        """Suspend the present task until `wake`."""
        self._hub.switch()

    def wake(self, task: greenlet) -> None:
        """Continue a suspended task now."""
        self.at(self.now, task.switch)

    def run(self, until: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """Run to `until`, seconds since the start, or until `is_done`."""
        self._hub = getcurrent()
        while self._due and self._due[0][0] <= START + until and not is_done():
            self.now, _, call = heappop(self._due)
            call()

    def end(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.throw(GreenletExit)
