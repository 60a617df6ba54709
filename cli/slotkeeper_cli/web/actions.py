"""Changes: each is a command of `slotkeeper`, run as in a terminal, with its guards and its audit line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from slotkeeper.next_step import NextStep
from slotkeeper_cli.errors import CommandRefused, NeedsYes
from slotkeeper_cli.look.pages import render
from slotkeeper_cli.stack_connection import LOCAL_FILE, StackConnection

READ_ONLY = (
    "This console is read-only. Nothing was changed. Start it with slotkeeper web --write, or run the command in a "
    "terminal."
)
WITHDRAWN = "The page does not offer this any more: its data have changed. Nothing was changed."
# The commands that change nothing.
_READS = (
    *(("audit",), ("doctor",), ("explain",), ("status",), ("what-if",), ("failed", "list"), ("failed", "show")),
    *(("dlq", "list"), ("dlq", "show"), ("request", "list"), ("retry", "list"), ("retry", "show")),
    *(("retry", "breaker", "show"), ("token", "show")),
)
# A refresh may have replaced the button that opened a dialog: the new one has its id. An open dialog keeps the focus.
_FOCUS_AGAIN = """const focus = () => document.querySelector('[role=dialog]')
  ? setTimeout(focus, 50) : document.getElementById(window.pressed)?.focus()
focus()"""
# The fields of a form, as the browser sends them.
type Fields = Mapping[str, Sequence[str]]


def reads(step: NextStep) -> bool:
    """Whether a command changes nothing: it runs without a question, also in a read-only console."""
    return any(step.arguments[: len(each)] == each for each in _READS)


@dataclass(frozen=True)
class Outcome:
    """The output of a command, and its exit code."""

    code: int
    text: str

    @property
    def question(self) -> str:
        """The question that the command asks before it changes something, after its warnings; empty if it asks none."""
        # By the exit code, since a sender can choose texts that the command prints. They have no line breaks.
        if self.code != NeedsYes.exit_code:
            return ""
        lines = self.text.removesuffix(NeedsYes.why).strip().splitlines()
        return "\n".join(each.removeprefix("slotkeeper: ") for each in lines)


@dataclass(frozen=True)
class Offer:
    """The action of a button of a page.

    Args:
        title: of its dialog.
        step: the command, or what makes it of the fields of the button's form; it raises CommandRefused.
    """

    title: str
    step: NextStep | Callable[[Fields], NextStep]


class Actions:
    """Runs commands on the console's stack.

    Args:
        writes: whether they may change something. Without, each change is refused here, also if a page offers it.

    Attributes:
        changed: called after each command that may have changed something.
    """

    def __init__(self, stack: StackConnection, writes: bool) -> None:
        self._stack, self.writes = stack, writes
        self.changed: Callable[[], None] = lambda: None

    def whole(self, step: str) -> str:
        """The command as an operator would type it. Any other text, as of the AWS CLI, stays as it is."""
        if isinstance(step, NextStep):
            return NextStep([*self._options, *step.arguments])
        program, space, rest = step.partition(" ")
        return f"{NextStep(self._options)}{space}{rest}" if program == "slotkeeper" else step

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
        outcome = await self.execute([*["--yes"] * confirmed, *step.arguments])
        self.changed()
        return outcome

    async def execute(self, arguments: Iterable[str]) -> Outcome:
        """Run a command in a separate process."""
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

    async def ask(self, offer: Offer | None, fields: Fields) -> None:
        """Open a dialog that shows a command and its effect, and runs it if the operator confirms it."""
        try:
            if offer is None:
                raise CommandRefused(WITHDRAWN)
            step = offer.step if isinstance(offer.step, NextStep) else offer.step(fields)
        except CommandRefused as refused:
            Dialog(self, "Not possible", None).show(outcome=Outcome(3, " ".join(refused.sentences)))
            return
        dialog = Dialog(self, offer.title, step)
        if reads(step):
            dialog.show(reads=True)
            dialog.show(outcome=await self.execute(step.arguments), reads=True)
        elif not self.writes:
            dialog.show(outcome=Outcome(3, READ_ONLY))
        else:
            dialog.show(asks=True)


class Dialog:
    """A dialog about one command. It belongs to the page, since a refresh may remove the button that opened it."""

    def __init__(self, actions: Actions, title: str, step: NextStep | None) -> None:
        self._actions, self._step = actions, step
        self._shown: dict[str, Any] = {"title": title, "command": step and actions.whole(step)}
        self._confirmed = self._asks = False
        with ui.context.client.content:
            self._dialog = ui.dialog(value=True).props('aria-labelledby="dialog-title"')
        self._dialog.on_value_change(lambda event: None if event.value else self._close())
        with self._dialog, ui.element().classes("dialog"):
            self._content = ui.html(sanitize=False)
        # Only the two buttons of the dialog's own template have this attribute.
        self._content.on(
            "click",
            lambda event: self._pressed(event.args),
            js_handler="event => { const button = event.target.closest('[data-press]'); "
            "if (button) emit(button.dataset.press) }",
        )

    def show(self, *, question: str = "", outcome: Outcome | None = None, asks: bool = False, **state: bool) -> None:
        """Show what the dialog is about, and the buttons for the next answer."""
        self._asks = asks
        state = {"reads": False, "runs": False} | state
        shown = {**self._shown, **state, "question": question, "outcome": outcome, "asks": asks}
        self._content.set_content(render("dialog.html", **shown))

    def _close(self) -> None:
        self._dialog.delete()
        ui.run_javascript(_FOCUS_AGAIN)

    async def _pressed(self, button: str) -> None:
        if button == "close" or self._step is None:
            self._dialog.close()
            return
        if not self._asks:
            return  # a second click
        self.show(runs=True)
        outcome = await self._actions.run(self._step, confirmed=self._confirmed)
        if outcome.question and not self._confirmed:
            self._confirmed = True
            self.show(question=outcome.question, asks=True)
        else:
            self.show(outcome=outcome)
