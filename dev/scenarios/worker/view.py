"""What the live view shows of a snapshot: a panel in a terminal, a line elsewhere."""

from __future__ import annotations

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .watching import Snapshot


def plain_line(snapshot: Snapshot) -> str:
    parts = [
        f"{snapshot.elapsed:6.1f} s",
        f"callers {snapshot.callers}/{snapshot.limit}",
        f"waiting {snapshot.waiting}",
        f"in flight {snapshot.in_flight}",
        f"delayed {snapshot.delayed}",
        f"scheduled {snapshot.scheduled}",
        f"succeeded {snapshot.succeeded}/{snapshot.requests}",
        f"dead-lettered {snapshot.dead_lettered}",
    ]
    return "  ".join(parts)


def _count(name: str, value: int, style: str) -> Text:
    return Text.assemble(name, " ", (str(value), f"bold {style}"))


def panel(snapshot: Snapshot) -> Panel:
    callers = Text(f"{snapshot.callers} of {snapshot.limit}  ")
    callers.append("■" * snapshot.callers, style="bold cyan")
    callers.append("□" * max(0, snapshot.limit - snapshot.callers), style="dim")
    counts = Table.grid(padding=(0, 3))
    counts.add_row(
        _count("waiting", snapshot.waiting, "yellow"),
        _count("in flight", snapshot.in_flight, "cyan"),
        _count("delayed", snapshot.delayed, "yellow"),
        _count("scheduled", snapshot.scheduled, "magenta"),
    )
    counts.add_row(
        _count("succeeded", snapshot.succeeded, "green"),
        _count("dead-lettered", snapshot.dead_lettered, "red" if snapshot.dead_lettered else "dim"),
        _count("calls", snapshot.calls, "cyan"),
    )
    progress = Table.grid(padding=(0, 1))
    progress.add_row(
        ProgressBar(total=max(1, snapshot.requests), completed=snapshot.ended, width=40),
        Text(f"{snapshot.ended} of {snapshot.requests} in {snapshot.elapsed:.1f} s"),
    )
    return Panel(
        Group(Text.assemble("callers of the downstream  ", callers), counts, progress),
        title="Slotkeeper: the worker",
        title_align="left",
        expand=False,
    )
