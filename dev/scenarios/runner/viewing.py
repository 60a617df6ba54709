"""The live view: a panel that is redrawn in a terminal, a line whenever something changes elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, RenderableType
from rich.live import Live


class View[Snapshot](Protocol):
    interval: float  # seconds between two looks

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, snapshot: Snapshot) -> None: ...


class PlainView[Snapshot]:
    """For logs and pipes: one line a look, and only if it says something new after its time, which ends with " s "."""

    interval = 1.0

    def __init__(self, console: Console, line: Callable[[Snapshot], str]) -> None:
        self._console = console
        self._line = line
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, snapshot: Snapshot) -> None:
        line = self._line(snapshot)
        said = line.split(" s ", 1)[1]  # without the time, which always changes
        if said != self._last:
            self._last = said
            self._console.print(line, highlight=False, soft_wrap=True)


class LiveView[Snapshot]:
    """For terminals. What it showed last stays on the screen."""

    interval = 0.4

    def __init__(self, console: Console, panel: Callable[[Snapshot], RenderableType]) -> None:
        self._panel = panel
        self._live = Live(console=console, refresh_per_second=8)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(self._panel(snapshot))


def for_console[Snapshot](
    console: Console, panel: Callable[[Snapshot], RenderableType], line: Callable[[Snapshot], str]
) -> View[Snapshot]:
    if console.is_terminal:
        return LiveView(console, panel)
    return PlainView(console, line)
