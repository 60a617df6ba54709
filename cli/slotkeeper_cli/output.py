"""Print a command's result to stdout, as text or JSON, and everything else to stderr."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table


class Output:
    """One command's output.

    Args:
        as_json: print the result as one JSON document.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        # Made per command, since tests replace sys.stdout and sys.stderr. Without markup: rich would read brackets in a
        # request's id as a style.
        self.console = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)
        self.errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

    def result(self, data: Any, text: str | Callable[[Console], None]) -> None:
        """Print `data` as JSON if --json was given; otherwise print the text, or call the function that prints it."""
        if self.as_json:
            self.console.out(json.dumps(data, indent=2, ensure_ascii=False), highlight=False)
        elif callable(text):
            text(self.console)
        else:
            self.console.print(text)

    def note(self, text: str) -> None:
        """Print a line on stderr: a warning, or the progress of the command."""
        self.errors.print(text, markup=False)

    def progress(self) -> Progress:
        """A progress bar on stderr; invisible without a terminal."""
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.errors,
            transient=True,
            disable=not self.errors.is_terminal,
        )


def table(*columns: str) -> Table:
    """A table in the style of all commands; a heading that begins with `>` is aligned right."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        justify: JustifyMethod = "right" if column.startswith(">") else "left"
        made.add_column(column.removeprefix(">"), justify=justify, overflow="fold")
    return made
