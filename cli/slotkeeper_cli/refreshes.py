"""Show what a command reads, and read it again every few seconds, until Ctrl-C.

On a terminal the newest data replaces the earlier on an alternate screen; into a pipe or file each refresh is printed
after the other. Both state when the data was read. If a refresh fails, the earlier data stays under its own time, with
the error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from slotkeeper_cli.context import CommandContext
from slotkeeper_cli.errors import failure_text, is_failure
from slotkeeper_cli.formatting import cut, local_time
from slotkeeper_cli.output import styled

# Lines of data, for a width and a number of lines that may be shown; None: any.
Lines = Callable[[int | None, int | None], list[Text]]


def show_refreshes(context: CommandContext, read: Callable[[], Lines], every: float) -> NoReturn:
    """Show what `read` returns, again and again. It returns only by an exception, such as KeyboardInterrupt.

    A failure of the first read is raised. After a later one, the next refresh makes a new connection: the operator may
    have signed in again.

    Args:
        every: seconds from one refresh to the next read.
    """
    console = context.out.console
    refreshes = _refreshes(context, read)
    if not console.file.isatty() or console.is_dumb_terminal:
        for shown in refreshes:
            if shown.error:
                context.out.note(shown.heading(every))
            else:
                console.print(f"--- read at {local_time(shown.read_at)} ---")
                for line in shown.lines(None, None):
                    console.print(line)
                console.print()
            time.sleep(every)
    frame = _Frame(next(refreshes), every)
    # It is drawn every second, so that it fits after a change of the terminal's size.
    with Live(frame, console=console, screen=True, refresh_per_second=1) as live:
        while True:
            time.sleep(every)
            live.update(_Frame(next(refreshes), every), refresh=True)


@dataclass(frozen=True)
class _Refresh:
    """The newest data that was read, and why there is none newer."""

    read_at: float
    lines: Lines
    error: str = ""

    def heading(self, every: float) -> str:
        when = local_time(self.read_at)
        if self.error:
            return f"Not refreshed since {when}: {self.error}. The command tries again every {every:g} s"
        return f"Read at {when}, again every {every:g} s. Ctrl-C ends"


def _refreshes(context: CommandContext, read: Callable[[], Lines]) -> Iterator[_Refresh]:
    newest: _Refresh | None = None
    while True:
        started = time.time()
        try:
            newest = _Refresh(started, read())
            yield newest
        except Exception as error:
            if newest is None or not is_failure(error):
                raise
            context.reconnect()
            yield _Refresh(newest.read_at, newest.lines, cut(failure_text(error), 500).rstrip("."))


@dataclass(frozen=True)
class _Frame:
    """A refresh on a screen: its heading, and lines for the rest."""

    shown: _Refresh
    every: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.size
        heading = styled(self.shown.heading(self.every), "red" if self.shown.error else "dim")
        above = list(heading.wrap(console, width))
        yield from above
        yield from self.shown.lines(width, height - len(above))
