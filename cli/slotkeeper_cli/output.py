"""The output of a command: its result on stdout, as text or JSON, and everything else on stderr."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table


class Output:
    """One command's output.

    Args:
        as_json: print the result as one JSON document.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        # Made per command: they hold the streams of the moment, which tests and pipes exchange. Without markup: what is
        # printed are names and texts of others, and a request's id may have brackets.
        self.console = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)
        self.errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

    def result(self, data: Any, render: Callable[[Console], None]) -> None:
        """Print `data` as JSON if --json was given; else call `render`."""
        if self.as_json:
            self.console.out(json.dumps(data, indent=2, ensure_ascii=False), highlight=False)
        else:
            render(self.console)

    def note(self, text: str) -> None:
        """Print a line on stderr: a warning, or what the command waits for."""
        self.errors.print(text, markup=False)

    def progress(self) -> Progress:
        """A progress bar on stderr; none without a terminal."""
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.errors,
            transient=True,
            disable=not self.errors.is_terminal,
        )


def table(*columns: str, title: str | None = None) -> Table:
    """A table in the style of all commands; a heading that begins with `>` is aligned right."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for column in columns:
        made.add_column(
            column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold"
        )
    return made
