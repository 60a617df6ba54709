"""What the live view shows of a snapshot: a panel in a terminal, a line elsewhere."""

from __future__ import annotations

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .beside import Snapshot


def plain_line(snapshot: Snapshot) -> str:
    slots = "  ".join(f"{name} {_slots(slot)}" for name, slot in snapshot.slots.items())
    return (
        f"{snapshot.elapsed:6.1f} s  {snapshot.phase}  {slots}  sent {snapshot.sent}  queued {snapshot.queued}  "
        f"running {snapshot.running}  rounds {snapshot.rounds}  faults {snapshot.faults}  {snapshot.last}"
    )


def _slots(slot: tuple[int, int, bool]) -> str:
    holders, limit, paused = slot
    return f"{holders}/{limit}{' paused' if paused else ''}"


def panel(snapshot: Snapshot) -> Panel:
    slots = Table.grid(padding=(0, 2))
    for name, (holders, limit, paused) in snapshot.slots.items():
        boxes = Text("■" * holders, style="bold cyan")
        boxes.append("□" * max(0, limit - holders), style="dim")
        slots.add_row(name, f"{holders} of {limit}", boxes, Text("paused" if paused else "", style="yellow"))
    counts = Text.assemble(
        "sent ", (str(snapshot.sent), "bold"), "   queued ", (str(snapshot.queued), "bold yellow"),
        "   running ", (str(snapshot.running), "bold cyan"), "   janitor's rounds ", (str(snapshot.rounds), "bold"),
    )  # fmt: skip
    faults = Text.assemble("faults ", (str(snapshot.faults), "bold red"), f"   last: {snapshot.last or 'none'}")
    progress = Table.grid(padding=(0, 1))
    done = min(snapshot.elapsed, snapshot.seconds)
    progress.add_row(
        ProgressBar(total=snapshot.seconds, completed=done, width=40),
        Text(f"{snapshot.elapsed:.0f} of {snapshot.seconds:.0f} s, {snapshot.phase}"),
    )
    return Panel(Group(slots, counts, faults, progress), title="Slotkeeper: soak", title_align="left", expand=False)
