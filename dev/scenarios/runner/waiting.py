"""Waiting for a run's end: one snapshot after the other, and an end to waiting for nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from .command import CannotGoOn

STALLED_AFTER = 60.0  # seconds without any movement


class Stuck(CannotGoOn):
    """Nothing has moved for too long; the text says what stands where."""


class Watched(Protocol):
    """A dataclass. `elapsed` is seconds; two that differ in nothing else show that nothing moved."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def elapsed(self) -> float: ...
    @property
    def over(self) -> bool: ...
    def said(self) -> str:
        """What stands where, for whoever has to find out why nothing moves."""
        ...


class Stall[Snapshot: Watched]:
    """Notices that nothing but the clock has changed for `after` seconds."""

    def __init__(self, after: float = STALLED_AFTER) -> None:
        self._after = after
        self._last: Snapshot | None = None
        self._since = 0.0

    def check(self, snapshot: Snapshot) -> None:
        """Raises Stuck."""
        still = replace(snapshot, elapsed=0.0)
        if still != self._last:
            self._last, self._since = still, snapshot.elapsed
        elif snapshot.elapsed - self._since >= self._after:
            raise Stuck(f"nothing has moved for {snapshot.elapsed - self._since:.0f} s: {snapshot.said()}")


def wait_until_over[Snapshot: Watched](
    look: Callable[[float], Snapshot],
    show: Callable[[Snapshot], None],
    interval: float,
    stalled_after: float = STALLED_AFTER,
) -> Snapshot:
    """Looks every `interval` seconds until the run is over, and returns the last snapshot. Raises Stuck."""
    stall: Stall[Snapshot] = Stall(stalled_after)
    began = time.monotonic()
    while True:
        snapshot = look(time.monotonic() - began)
        show(snapshot)
        if snapshot.over:
            return snapshot
        stall.check(snapshot)
        time.sleep(interval)
