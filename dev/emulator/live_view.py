"""Show the progress of a long run: a line for each change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from rich.console import Console

STALLED_AFTER = 60.0  # seconds without any movement
INTERVAL = 1.0  # seconds between two reads


class Stalled(Exception):
    """Nothing has changed for too long; the text contains the last status."""


class Progress(Protocol):
    """One read of the progress. `status` contains everything but the time, so that equal ones mean no change."""

    @property
    def elapsed(self) -> float: ...
    @property
    def ended(self) -> bool: ...
    @property
    def status(self) -> str: ...


@dataclass(frozen=True)
class Snapshot:
    """Numbers that describe the progress.

    Args:
        elapsed: seconds since the start.
        ended: there is nothing more to wait for.
        done, total: what has ended, and all.
        gauges: (in use, limit) by name.
        counts: by name.
        details: only reported of a stalled run.
    """

    elapsed: float
    ended: bool
    done: int
    total: int
    gauges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    counts: Mapping[str, int | str] = field(default_factory=dict)
    details: str = ""

    @property
    def status(self) -> str:
        gauges = [f"{name} {used}/{limit}" for name, (used, limit) in self.gauges.items()]
        counts = [f"{name} {value}" for name, value in self.counts.items()]
        return "  ".join([*gauges, *counts, f"ended {self.done}/{self.total}"])


class LiveView:
    """Prints the progress under a title, a line for each change."""

    def __init__(self, console: Console, title: str = "") -> None:
        self._console = console
        self._title = title
        self._last_status = ""
        self.interval = INTERVAL

    def __enter__(self) -> Self:
        if self._title:
            self._console.print(self._title, highlight=False)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def show(self, progress: Progress) -> None:
        if progress.status != self._last_status:
            self._last_status = progress.status
            self._console.print(f"{progress.elapsed:6.1f} s  {progress.status}", highlight=False, soft_wrap=True)


def watch[P: Progress](
    console: Console, read: Callable[[float], P], title: str = "", stalled_after: float = STALLED_AFTER
) -> P:
    """Show the results of `read(elapsed seconds)` until one has ended, and return that one. Raises Stalled."""
    last, since, started = "", 0.0, time.monotonic()
    with LiveView(console, title) as view:
        while True:
            progress = read(time.monotonic() - started)
            view.show(progress)
            if progress.ended:
                return progress
            status = "; ".join(filter(None, [progress.status, getattr(progress, "details", "")]))
            if status != last:
                last, since = status, progress.elapsed
            elif progress.elapsed - since >= stalled_after:
                raise Stalled(f"nothing has moved for {progress.elapsed - since:.0f} s: {status}")
            time.sleep(view.interval)


def counted(count: int, noun: str) -> str:
    """1 row, 2 rows."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
