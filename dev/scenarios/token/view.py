"""What the live view shows of a snapshot: a panel in a terminal, a line elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dev.emulator.chat_service import ChatService

from .course import Course


@dataclass(frozen=True)
class Starting:
    """How many containers have answered for the first time."""

    elapsed: float
    containers: int
    started: int

    @property
    def over(self) -> bool:
        return self.started >= self.containers

    def said(self) -> str:
        return f"{self.started} of {self.containers} containers of the chatbot have started"


@dataclass(frozen=True)
class Snapshot:
    """What an onlooker sees. `on_the_way`: sent, and neither answered nor given up."""

    elapsed: float
    messages: int
    answered: int
    refused: int
    on_the_way: int
    invalidations: int
    auths: int

    @property
    def ended(self) -> int:
        return self.answered + self.refused

    @property
    def over(self) -> bool:
        return self.ended >= self.messages

    def said(self) -> str:
        return (
            f"{self.answered} of {self.messages} answered, {self.refused} refused, {self.on_the_way} on the way, "
            f"{self.invalidations} invalidations made, {self.auths} POST /auth seen"
        )


def look(course: Course, service: ChatService, messages: int, elapsed: float) -> Snapshot:
    standing = course.standing()
    return Snapshot(
        elapsed=elapsed,
        messages=messages,
        answered=standing.answered,
        refused=standing.ended - standing.answered,
        on_the_way=standing.sent - standing.ended,
        invalidations=standing.invalidations,
        auths=service.auths,
    )


def starting_line(snapshot: Starting) -> str:
    return f"{snapshot.elapsed:6.1f} s  containers {snapshot.started}/{snapshot.containers}"


def starting_panel(snapshot: Starting) -> Panel:
    return _panel(_progress(snapshot.started, snapshot.containers, snapshot.elapsed))


def plain_line(snapshot: Snapshot) -> str:
    parts = [
        f"{snapshot.elapsed:6.1f} s",
        f"answered {snapshot.answered}/{snapshot.messages}",
        f"on the way {snapshot.on_the_way}",
        f"invalidations {snapshot.invalidations}",
        f"POST /auth {snapshot.auths}",
    ]
    if snapshot.refused:
        parts.append(f"refused {snapshot.refused}")
    return "  ".join(parts)


def panel(snapshot: Snapshot) -> Panel:
    counts = Table.grid(padding=(0, 3))
    counts.add_row(
        *(
            Text.assemble(name, " ", (str(value), f"bold {style}"))
            for name, value, style in (
                ("on the way", snapshot.on_the_way, "yellow"),
                ("answered", snapshot.answered, "green"),
                ("refused", snapshot.refused, "red" if snapshot.refused else "dim"),
                ("invalidations", snapshot.invalidations, "magenta"),
                ("POST /auth", snapshot.auths, "cyan"),
            )
        )
    )
    return _panel(counts, _progress(snapshot.ended, snapshot.messages, snapshot.elapsed))


def _progress(done: int, of: int, elapsed: float) -> Table:
    progress = Table.grid(padding=(0, 1))
    progress.add_row(
        ProgressBar(total=max(1, of), completed=done, width=40), Text(f"{done} of {of} in {elapsed:.1f} s")
    )
    return progress


def _panel(*rows: Table) -> Panel:
    return Panel(Group(*rows), title="Slotkeeper: one token", title_align="left", expand=False)
