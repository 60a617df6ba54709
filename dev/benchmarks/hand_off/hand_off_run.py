"""The course of the measurement: who has a standing queue when.

A way that looks every five minutes is idle for nearly all of its one period, so it stands in the background. The
others have the engine for themselves, one after the other, and the quick ones twice: a disturbance of the machine would
show as a difference between their windows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from dev.benchmarks.outcome import Tell
from dev.scenarios.runner.intervals import Interval
from dev.scenarios.runner.scenario import CannotGoOn

from .hand_off_designs import JOB_SECONDS, Stand, Way

LATE = 20.0  # seconds after which a look that is due will not come any more
ENGINE_LOOK = 1.0  # seconds after which MiniStack notices that a hidden message is visible again


@dataclass(frozen=True)
class Plan:
    """`wake_seconds` a window; the others by whole periods. `rounds`: how often the quick ones have their turn."""

    limit: int
    wake_seconds: float
    periods: tuple[int, int, int]
    looks: tuple[int, int, int]
    rounds: int

    @property
    def seconds(self) -> float:
        """About, without deployment and reading."""
        quick = self.wake_seconds + self.periods[0] * self.looks[0]
        behind = float(self.periods[2] * self.looks[2])
        return max(self.rounds * quick + self.periods[1] * self.looks[1], behind)


FULL = Plan(limit=4, wake_seconds=50.0, periods=(5, 30, 300), looks=(8, 3, 1), rounds=2)
SMALL = Plan(limit=2, wake_seconds=4.0, periods=(2, 7, 9), looks=(1, 1, 1), rounds=1)


@dataclass
class Course:
    """Walks through a plan. `windows`: way -> when it had a standing queue."""

    stand: Stand
    plan: Plan
    tell: Tell
    windows: dict[str, list[Interval]] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    def walk(self, wake: Way, polling: Sequence[Way]) -> None:
        """Raises CannotGoOn if a queue ran dry, or a look did not come."""
        quick, slow, behind = polling
        for way in (wake, *polling):
            self._warm_up(way)
        self._began = time.monotonic()
        opened = self._open(behind, self.plan.looks[2])
        for number in range(self.plan.rounds):
            self._watch(wake)
            self._watch(quick, self.plan.looks[0])
            if number == 0:
                self._watch(slow, self.plan.looks[1])
        self._await_looks(behind, self.plan.periods[2], opened, self.plan.looks[2])
        self._close(behind, opened)

    def _warm_up(self, way: Way) -> None:
        """As many requests as slots, so that nobody is refused: the first of everything is slower."""
        self.tell(f"warm up {way.name}", 0.0)
        before = self.stand.admitted(way)
        self.stand.send(way, self.plan.limit, f"warm-{way.name}")
        deadline = time.monotonic() + LATE
        while self.stand.admitted(way) < before + self.plan.limit or self.stand.in_use(way):
            if time.monotonic() > deadline:
                raise CannotGoOn(f"{way.name} does not come to the end of its first requests")
            time.sleep(0.2)

    def _watch(self, way: Way, looks: int = 0) -> None:
        opened = self._open(way, looks)
        if way.period is None:
            self._pass(way, opened[0] + self.plan.wake_seconds)
        else:
            self._await_looks(way, way.period, opened, looks)
        self._close(way, opened)

    def _open(self, way: Way, looks: int) -> tuple[float, int]:
        """Makes its queue stand, longer than it can use up; returns since when, and how many it had admitted before."""
        before = self.stand.admitted(way)
        seconds = self.plan.wake_seconds if way.period is None else 0.0
        enough = round(self.plan.limit * max(seconds / JOB_SECONDS, looks + 2)) + 10
        at = time.time()
        self.stand.send(way, enough, f"{way.name}-{at:.0f}")
        return at, before

    def _await_looks(self, way: Way, period: int, opened: tuple[float, int], looks: int) -> None:
        """Returns when the last of its looks has filled the slots."""
        at, before = opened
        self._pass(way, at + period * looks)
        deadline = time.time() + LATE + looks * ENGINE_LOOK
        while self.stand.admitted(way) < before + self.plan.limit * (looks + 1):
            if time.time() > deadline:
                raise CannotGoOn(f"{way.name} has not looked {looks} times again: see the engine's log")
            time.sleep(0.2)

    def _pass(self, way: Way, until: float) -> None:
        """Lets time go by, and says so."""
        while (left := until - time.time()) > 0:
            done = (time.monotonic() - self._began) / self.plan.seconds
            self.tell(f"{way.name}: {left:.0f} s more", min(1.0, done))
            time.sleep(min(1.0, left))

    def _close(self, way: Way, opened: tuple[float, int]) -> None:
        now = time.time()
        if not self.stand.queued(way):
            raise CannotGoOn(f"the queue of {way.name} ran dry: its idle slots would say nothing")
        self.windows.setdefault(way.name, []).append((opened[0], now))
        self.stand.clear(way)
