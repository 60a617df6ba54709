"""Print a command's result to stdout, as text or JSON, and everything else to stderr.

The printed texts contain those of senders, whose control characters are escaped here: each string is printed on one
line. Only `print_lines` prints the lines of a text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from slotkeeper.printable import printable
from slotkeeper_cli.formatting import cut

_GAP = 2  # spaces between two columns

# Lines that are shown together, or not at all.
Block = list[Text]


class PlainConsole(Console):
    """A console that escapes the control characters of strings, also in the cells of tables."""

    def __init__(self, *, stderr: bool = False) -> None:
        # Without markup: rich would read brackets in a request's id as a style.
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True, emoji=False, markup=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Called by rich for each string."""
        return super().render_str(printable(text), **options)


class Output:
    """One command's output.

    Args:
        as_json: print the result as one JSON document.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        # Made per command, since tests replace sys.stdout and sys.stderr.
        self.console = PlainConsole()
        self.errors = PlainConsole(stderr=True)

    def result(self, data: Any, text: str | list[str] | Callable[[Console], None]) -> None:
        """Print `data` as JSON if --json was given; otherwise print the text, the lines, or call the function."""
        if self.as_json:
            self.document(data)
        elif callable(text):
            text(self.console)
        else:
            for line in [text] if isinstance(text, str) else text:
                self.console.print(line)

    def document(self, data: Any) -> None:
        """Print data as JSON."""
        text = json.dumps(data, indent=2, ensure_ascii=False)
        self.console.file.write(printable(text, keep="\n") + "\n")

    def note(self, text: str) -> None:
        """Print a line on stderr: a warning, or the progress of the command."""
        self.errors.print(text)

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

    @contextmanager
    def counting(self) -> Iterator[Callable[[str, int], None]]:
        """Show the numbers of records that are read: the function receives a source, and how many more."""
        with self.progress() as progress:
            tasks: dict[str, Any] = {}

            def on_read(source: str, number: int) -> None:
                if source not in tasks:
                    tasks[source] = progress.add_task(source, total=None)
                progress.advance(tasks[source], number)

            yield on_read


def width_of(console: Console) -> int | None:
    """The characters of a line: of the terminal, or those that COLUMNS states; None in a pipe or file: whole ids."""
    return console.width if console.is_terminal or "COLUMNS" in os.environ else None


def print_lines(console: Console, text: str, indent: str = "") -> None:
    """Print a text on its own lines, such as an error message. All but the first are indented."""
    for number, line in enumerate(text.split("\n")):
        console.print(indent * (number > 0) + line)


def styled(text: str, style: str = "") -> Text:
    """A text in a style, on one line."""
    return Text(printable(text), style=style, overflow="fold")


def whole(text: str, style: str) -> Text:
    """A text that is not wrapped, since it is copied: a link or a command."""
    shown = styled(text, style)
    shown.no_wrap = True
    return shown


def wrapped(block: Block, width: int, is_framed: bool = False) -> Block:
    """Lines of at most `width` characters; what continues one is indented. `is_framed`: no line is longer."""
    paper, lines = PlainConsole(), Block()
    for each in block:
        if each.no_wrap and not is_framed:
            lines.append(each)
            continue
        indent = "  " + " " * (len(each) - len(each.plain.lstrip()))
        parts = [each] if len(each) <= width else [*each.wrap(paper, width - len(indent))]
        for part in parts:
            part.rstrip()
        lines += [parts[0], *(Text(indent) + part for part in parts[1:])]
    return lines


class Rows:
    """A table, each row on one line: if the terminal is too narrow, the widest cells are cut in their middle."""

    def __init__(self, *columns: str) -> None:
        self._columns = columns
        self._rows = [[Text(each.removeprefix(">"), "dim") for each in self._columns]]

    def add_row(self, *cells: str | Text, style: str = "") -> None:
        """Add a row, with a cell for each column."""
        self._rows.append([each if isinstance(each, Text) else Text(printable(each), style) for each in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.lines(width_of(console))

    def lines(self, width: int | None) -> list[Text]:
        """The heading and the rows, each at most `width` characters long; None: as long as they are."""
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        space = sum(widths) if width is None else max(width - _GAP * (len(widths) - 1), len(widths))
        while sum(widths) > space:
            widths[widths.index(max(widths))] -= 1
        lines = []
        for row in self._rows:
            line = Text()
            for cell, column, most in zip(row, self._columns, widths, strict=True):
                shown = Text(cut(cell.plain, most), cell.style) if len(cell) > most else cell.copy()
                blank = " " * (most - len(shown))
                line += Text(blank) + shown if column.startswith(">") else shown + Text(blank)
                line += Text(" " * _GAP)
            line.rstrip()
            lines.append(line)
        return lines


def table(*columns: str) -> Rows:
    """A table in the style of all commands; a heading that begins with `>` is aligned right."""
    return Rows(*columns)
