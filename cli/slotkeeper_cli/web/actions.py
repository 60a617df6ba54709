"""Changes: each is a command of `slotkeeper`, run as in a terminal, with its guards and its audit line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nicegui import ui

from slotkeeper.next_step import NextStep
from slotkeeper.printable import printable
from slotkeeper_cli.errors import NeedsYes
from slotkeeper_cli.stack_connection import LOCAL_FILE, StackConnection

READ_ONLY = (
    "This console is read-only. Nothing was changed. Start it with slotkeeper web --write, or run the command below in "
    "a terminal."
)


@dataclass(frozen=True)
class Outcome:
    """What a command printed, and its exit code."""

    code: int
    text: str

    @property
    def question(self) -> str:
        """The question that the command asks before it changes something; empty if it asks none."""
        # By the exit code, since a sender can choose texts that the command prints.
        asks = self.code == NeedsYes.exit_code
        return self.text.removeprefix("slotkeeper: ").removesuffix(NeedsYes.why).strip() if asks else ""


class Actions:
    """Runs commands on the console's stack.

    Args:
        writes: whether they may change something. Without, each action is refused here, also if a page offers it.
        changed: called after each command.
    """

    def __init__(self, stack: StackConnection, writes: bool, changed: Callable[[], None]) -> None:
        self._stack, self.writes, self._changed = stack, writes, changed

    def shown(self, step: NextStep) -> str:
        """The command as an operator would type it."""
        return NextStep([*self._options, *step.arguments])

    @property
    def _options(self) -> list[str]:
        stack = self._stack
        if stack.is_local:
            return ["--local"]
        profile = ["--profile", stack.profile] if stack.profile else []
        return ["--stack", stack.name, *profile, "--region", stack.region]

    async def run(self, step: NextStep, *, confirmed: bool = False) -> Outcome:
        """Run a command; a question of it is answered by yes only if it is confirmed."""
        if not self.writes:
            return Outcome(3, READ_ONLY)
        outcome = await self._run([*["--yes"] * confirmed, *step.arguments])
        self._changed()
        return outcome

    async def _run(self, arguments: Iterable[str]) -> Outcome:
        local = {LOCAL_FILE: str(self._stack.local_file)} if self._stack.local_file else {}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "slotkeeper_cli", *self._options, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "COLUMNS": "200", **local},
        )
        printed, _ = await process.communicate()
        return Outcome(process.returncode or 0, printed.decode(errors="replace").strip())

    def button(self, name: str, command: Callable[[], NextStep], icon: str) -> ui.button:
        """A button that shows a command, and runs it if the operator says so."""
        return ui.button(name, icon=icon, on_click=lambda: self.ask(name, command())).props("outline dense no-caps")

    def look(self, name: str, command: Callable[[], NextStep]) -> ui.button:
        """A button that shows what a command prints which changes nothing."""

        async def show() -> None:
            step = command()
            with _dialog() as dialog, ui.card().classes("max-w-full"):
                ui.label(self.shown(step)).classes("font-bold")
                printed = ui.label("Reading ...").props('role="status"').classes("font-mono whitespace-pre-wrap")
                ui.button("Close", on_click=dialog.close).props("flat no-caps")
            printed.set_text(printable((await self._run(step.arguments)).text, keep="\n"))

        return ui.button(name, icon="search", on_click=show).props("outline dense no-caps")

    def ask(self, name: str, step: NextStep) -> None:
        """Show a command in a dialog; run it there, and show what it printed."""

        async def start(*, confirmed: bool) -> None:
            go.disable()
            outcome = await self.run(step, confirmed=confirmed)
            if outcome.question and not confirmed:
                said.set_text(printable(outcome.question, keep="\n"))
                go.set_text("Yes")
                go.enable()
                state["confirmed"] = True
                return
            said.set_text(printable(outcome.text, keep="\n"))
            said.classes("text-negative" if outcome.code else "text-positive")
            go.delete()
            close.set_text("Close")

        state = {"confirmed": False}
        with _dialog() as dialog, ui.card().classes("max-w-full"):
            ui.label(name).props('role="heading" aria-level="2"').classes("text-lg font-bold")
            said = ui.label("" if self.writes else READ_ONLY).props('role="status"').classes("whitespace-pre-wrap")
            ui.code(self.shown(step), language="bash").classes("w-full")
            with ui.row():
                close = ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
                go = ui.button("Run", on_click=lambda: start(confirmed=state["confirmed"])).props("no-caps")
                go.set_enabled(self.writes)


def _dialog() -> ui.dialog:
    """An open dialog. It belongs to the page, since a refresh may remove the button that opened it."""
    with ui.context.client.content:
        dialog = ui.dialog(value=True)
    dialog.on_value_change(lambda event: None if event.value else dialog.delete())
    return dialog
