"""What the live view shows of a snapshot: a panel in a terminal, a line elsewhere."""

from __future__ import annotations

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .watching import Snapshot

SLOTS_DRAWN = 60  # more boxes than this do not fit a terminal's line


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
