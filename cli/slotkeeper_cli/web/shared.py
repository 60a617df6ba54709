"""Readings that all open pages share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

type Key = tuple[Hashable, ...]
type Data = Mapping[str, Any]

REFRESH = 5.0  # seconds between two refreshes of a page
# Seconds for which a reading that no page shows any more is kept.
FORGOTTEN_AFTER = 120.0
# A reading that takes long is repeated less often: this many times its duration, and at most every minute.
_PAUSE_FACTOR, _LONGEST_PAUSE = 4.0, 60.0
# Readings at the same time. The slow ones, such as histories, have threads of their own: they delay no other page.
_QUICK_READINGS, _SLOW_READINGS = 8, 2


@dataclass(frozen=True)
class PageReading:
    """The reading of a page.

    Args:
        key: of equal readings.
        read: reads it, in a thread.
        every: seconds between two readings; None if it is repeated only when the operator asks.
        is_slow: whether it may take many seconds.
    """

    key: Key
    read: Callable[[], Data]
    every: float | None = REFRESH
    is_slow: bool = False


@dataclass(frozen=True)
class Snapshot:
    """The result of a reading. `at`: when, in seconds since the epoch; `took`: seconds."""

    data: Data
    at: float
    took: float = 0.0

    def is_fresh(self, every: float | None) -> bool:
        """Whether it need not be read again yet."""
        # A little less, so that a page's own timer, which is not exact, always brings a new reading.
        pause = max((every or 0.0) * 0.9, min(self.took * _PAUSE_FACTOR, _LONGEST_PAUSE))
        return time.time() - self.at <= pause


class SharedReadings:
    """Reads for all open pages: one asyncio task for each reading, for which any number of pages waits.

    It is used on the event loop alone. A page that waits holds no thread.
    """

    def __init__(self) -> None:
        self._quick = ThreadPoolExecutor(_QUICK_READINGS, "reading")
        self._slow = ThreadPoolExecutor(_SLOW_READINGS, "slow-reading")
        self._tasks: dict[Key, asyncio.Task[Snapshot]] = {}
        self._kept: dict[Key, Snapshot] = {}
        self._changed_at = 0.0

    def known(self, reading: PageReading) -> Snapshot | None:
        """The last result, however old it is; None if it was not read for a while."""
        return self._kept.get(reading.key)

    def soon(self, reading: PageReading) -> Snapshot | None:
        """The last result, which is read again if it is old; None if it was not read yet, or could not be."""
        known = self._kept.get(reading.key)
        if known is None or not self._is_kept(known, reading):
            self._task(reading)
        return known

    async def read(self, reading: PageReading, *, again: bool = False) -> Snapshot:
        """The reading, of now or from a moment ago. Errors of `read` pass through, and are not kept.

        Args:
            again: read it now, unless it is being read.
        """
        kept = self._kept.get(reading.key)
        if kept is not None and not again and self._is_kept(kept, reading):
            return kept
        # A page that is closed while it waits does not end the reading of the others.
        return await asyncio.shield(self._task(reading))

    def forget(self) -> None:
        """Read everything again, since an action may have changed it. The last results stay known until then."""
        self._tasks.clear()
        self._changed_at = time.time()

    def _is_kept(self, kept: Snapshot, reading: PageReading) -> bool:
        return kept.at > self._changed_at and kept.is_fresh(reading.every)

    def _task(self, reading: PageReading) -> asyncio.Task[Snapshot]:
        task = self._tasks.get(reading.key)
        if task is None:
            task = self._tasks[reading.key] = asyncio.create_task(self._read(reading))
            task.add_done_callback(lambda ended: self._ended(reading.key, ended))
        return task

    async def _read(self, reading: PageReading) -> Snapshot:
        at, began = time.time(), time.monotonic()
        pool = self._slow if reading.is_slow else self._quick
        data = await asyncio.get_running_loop().run_in_executor(pool, reading.read)
        return Snapshot(data, at, time.monotonic() - began)

    def _ended(self, key: Key, task: asyncio.Task[Snapshot]) -> None:
        failed = task.cancelled() or task.exception() is not None
        if self._tasks.get(key) is not task:
            return  # it began before an action
        del self._tasks[key]
        if failed:
            return
        self._kept[key] = task.result()
        # A console may be open for days.
        oldest = time.time() - FORGOTTEN_AFTER
        self._kept = {other: each for other, each in self._kept.items() if each.at > oldest or other == key}
