"""Show the progress of a long run: a panel in a terminal, a line per change elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

STALLED_AFTER = 60.0  # seconds without any movement
LINE_INTERVAL, PANEL_INTERVAL = 1.0, 0.4  # seconds between two reads
WIDEST_GAUGE = 60  # more boxes do not fit a terminal's line


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
    def panel(self, title: str) -> RenderableType: ...


@dataclass(frozen=True)
class Snapshot:
    """Numbers that describe the progress.

    Args:
        elapsed: seconds since the start.
        ended: there is nothing more to wait for.
        done, total: for the progress bar.
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

    def panel(self, title: str) -> Panel:
        gauges, counts, progress = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 3)), Table.grid(padding=(0, 1))
        for name, (used, limit) in self.gauges.items():
            boxes = Text()
            if limit <= WIDEST_GAUGE:
                boxes = Text("■" * used, style="bold cyan").append("□" * max(0, limit - used), style="dim")
            gauges.add_row(name, f"{used} of {limit}", boxes)
        counts.add_row(*(Text.assemble(name, " ", (str(value), "bold")) for name, value in self.counts.items()))
        bar = ProgressBar(total=max(1, self.total), completed=self.done, width=40)
        progress.add_row(bar, Text(f"{self.done} of {self.total} in {self.elapsed:.1f} s"))
        return Panel(Group(gauges, counts, progress), title=title, title_align="left", expand=False)


class LiveView:
    """Shows progress. The last state stays on the screen."""

    def __init__(self, console: Console, title: str = "") -> None:
        self._console = console
        self._title = title
        self._last_status = ""
        self._live = Live(console=console, refresh_per_second=8) if console.is_terminal else None
        self.interval = PANEL_INTERVAL if self._live else LINE_INTERVAL

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        if self._live:
            self._live.update(progress.panel(self._title))
        elif progress.status != self._last_status:
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
