"""The live view: a panel that is redrawn in a terminal, a line whenever something changes elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .watching import Snapshot

SLOTS_DRAWN = 60  # more boxes than this do not fit a terminal's line


class View(Protocol):
    interval: float  # seconds between two looks

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, snapshot: Snapshot) -> None: ...


def plain_line(snapshot: Snapshot) -> str:
    parts = [
        f"{snapshot.elapsed:6.1f} s",
        f"slots {snapshot.slots_in_use}/{snapshot.limit}",
        f"waiting {snapshot.waiting}",
        f"running {snapshot.running}",
        f"done {snapshot.succeeded}",
        f"failed {snapshot.failed}",
    ]
    if snapshot.dead_lettered:
        parts.append(f"dead-lettered {snapshot.dead_lettered}")
    return "  ".join(parts)


class PlainView:
    """For logs and pipes: one line a look, and only if it says something new."""

    interval = 1.0

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, snapshot: Snapshot) -> None:
        line = plain_line(snapshot)
        said = line.split(" s ", 1)[1]  # without the time, which always changes
        if said != self._last:
            self._last = said
            self._console.print(line, highlight=False, soft_wrap=True)


def panel(snapshot: Snapshot) -> Panel:
    used, limit = snapshot.slots_in_use, snapshot.limit
    boxes = Text(f"{used} of {limit}  ")
    if limit <= SLOTS_DRAWN:
        boxes.append("■" * used, style="bold cyan")
        boxes.append("□" * max(0, limit - used), style="dim")
    counts = Table.grid(padding=(0, 3))
    cells = []
    for name, value, style in (
        ("waiting", snapshot.waiting, "yellow"),
        ("running", snapshot.running, "cyan"),
        ("done", snapshot.succeeded, "green"),
        ("failed", snapshot.failed, "red" if snapshot.failed else "dim"),
        ("dead-lettered", snapshot.dead_lettered, "red" if snapshot.dead_lettered else "dim"),
    ):
        cells.append(Text.assemble(name, " ", (str(value), f"bold {style}")))
    counts.add_row(*cells)
    progress = Table.grid(padding=(0, 1))
    progress.add_row(
        ProgressBar(total=max(1, snapshot.requests), completed=snapshot.ended, width=40),
        Text(f"{snapshot.ended} of {snapshot.requests} in {snapshot.elapsed:.1f} s"),
    )
    return Panel(
        Group(Text.assemble("slots in use  ", boxes), counts, progress),
        title="Slotkeeper",
        title_align="left",
        expand=False,
    )


class LiveView:
    """For terminals. What it showed last stays on the screen."""

    interval = 0.4

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=8)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(panel(snapshot))


def for_console(console: Console) -> View:
    return LiveView(console) if console.is_terminal else PlainView(console)
