"""The measurement: when each variant has a queue.

A variant that polls every five minutes is idle for most of its period, so its window is open in the background. The
others have the engine to themselves, one after the other, and the quick ones twice: a disturbance of the machine would
show as a difference between their windows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dev.benchmarks.outcome import Notify
from dev.scenarios.runner.scenario import CannotContinue
from slotkeeper_cli.audit.intervals import Interval

from .hand_off_designs import JOB_SECONDS, BenchmarkStack, Variant

LATE = 20.0  # seconds to wait for a poll that is due
ENGINE_DELAY = 1.0  # seconds after which MiniStack notices that a hidden message is visible again


@dataclass(frozen=True)
class Plan:
    """`wake_seconds` of a window; of the others by whole periods. `rounds`: how often the quick variants run."""

    limit: int
    wake_seconds: float
    periods: tuple[int, int, int]
    polls: tuple[int, int, int]
    rounds: int

    @property
    def seconds(self) -> float:
        """Approximate, without deployment and reading."""
        quick = 2 * self.wake_seconds + self.periods[0] * self.polls[0]
        background = float(self.periods[2] * self.polls[2])
        return max(self.rounds * quick + self.periods[1] * self.polls[1], background)


FULL = Plan(limit=4, wake_seconds=50.0, periods=(5, 30, 300), polls=(8, 3, 1), rounds=2)
SMALL = Plan(limit=2, wake_seconds=4.0, periods=(2, 7, 9), polls=(1, 1, 1), rounds=1)


@dataclass
class HandOffRun:
    """Opens the windows of a plan. `windows`: variant -> when it had a queue."""

    stack: BenchmarkStack
    plan: Plan
    notify: Notify
    wakes: Sequence[Variant]
    polling: Sequence[Variant]
    windows: dict[str, list[Interval]] = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)

    def measure(self) -> None:
        """Raises CannotContinue if a queue became empty, or an expected poll did not happen."""
        quick, slow, background = self.polling
        for variant in (*self.wakes, *self.polling):
            self._warm_up(variant)
        self._started = time.monotonic()
        opened = self._open(background, self.plan.polls[2])
        for number in range(self.plan.rounds):
            for wake in self.wakes:
                self._observe(wake)
            self._observe(quick, self.plan.polls[0])
            if number == 0:
                self._observe(slow, self.plan.polls[1])
        self._finish(background, opened, self.plan.polls[2])

    def _warm_up(self, variant: Variant) -> None:
        """As many requests as slots, so that none is refused: the first of each operation is slower."""
        self.notify(f"warm up {variant.name}", 0.0)
        enough = self.stack.admitted(variant) + self.plan.limit
        self.stack.send(variant, self.plan.limit, f"warm-{variant.name}")
        _wait_for(
            lambda: self.stack.admitted(variant) >= enough and not self.stack.in_use(variant),
            LATE,
            f"the first requests of {variant.name} do not end",
        )

    def _observe(self, variant: Variant, polls: int = 0) -> None:
        self._finish(variant, self._open(variant, polls), polls)

    def _open(self, variant: Variant, polls: int) -> tuple[float, int]:
        """Fill its queue with more than it can use; the time, and how many it had admitted before."""
        before = self.stack.admitted(variant)
        seconds = self.plan.wake_seconds if variant.period is None else 0.0
        enough = round(self.plan.limit * max(seconds / JOB_SECONDS, polls + 2)) + 10
        at = time.time()
        self.stack.send(variant, enough, f"{variant.name}-{at:.0f}")
        return at, before

    def _finish(self, variant: Variant, opened: tuple[float, int], polls: int) -> None:
        """Wait until its time has passed and its last poll has filled the slots, and close its window."""
        at, before = opened
        self._pass(variant, at + (self.plan.wake_seconds if variant.period is None else variant.period * polls))
        if variant.period is not None:
            _wait_for(
                lambda: self.stack.admitted(variant) >= before + self.plan.limit * (polls + 1),
                LATE + polls * ENGINE_DELAY,
                f"{variant.name} has not polled {polls} times: see the engine's log",
            )
        now = time.time()
        if not self.stack.queued(variant):
            raise CannotContinue(f"the queue of {variant.name} became empty: its idle slots would show nothing")
        self.windows.setdefault(variant.name, []).append((at, now))
        self.stack.clear(variant)

    def _pass(self, variant: Variant, until: float) -> None:
        while (left := until - time.time()) > 0:
            done = (time.monotonic() - self._started) / self.plan.seconds
            self.notify(f"{variant.name}: {left:.0f} s more", min(1.0, done))
            time.sleep(min(1.0, left))


def _wait_for(condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise CannotContinue(otherwise)
        time.sleep(0.2)
