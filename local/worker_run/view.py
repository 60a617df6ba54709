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
        f"queued {snapshot.queued}",
        f"delayed {snapshot.delayed}",
        f"scheduled {snapshot.scheduled}",
        f"succeeded {snapshot.succeeded}/{snapshot.requests}",
        f"dead-lettered {snapshot.dead_lettered}",
    ]
    return "  ".join(parts)


def panel(snapshot: Snapshot) -> Panel:
    callers = Text(f"{snapshot.callers} of {snapshot.limit}  ")
    callers.append("■" * snapshot.callers, style="bold cyan")
    callers.append("□" * max(0, snapshot.limit - snapshot.callers), style="dim")
    counts = Table.grid(padding=(0, 3))
    counts.add_row(
        *(
            Text.assemble(name, " ", (str(value), f"bold {style}"))
            for name, value, style in (
                ("queued", snapshot.queued, "yellow"),
                ("delayed", snapshot.delayed, "yellow"),
                ("scheduled", snapshot.scheduled, "magenta"),
                ("calls", snapshot.calls, "cyan"),
                ("succeeded", snapshot.succeeded, "green"),
                ("dead-lettered", snapshot.dead_lettered, "red" if snapshot.dead_lettered else "dim"),
            )
        )
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
