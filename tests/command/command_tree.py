"""Every command of the operator command, and its help as text without the frames around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from slotkeeper_cli.app import app


def all_commands(command: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each group and command with its path: `process`, `process add`. The root command's path is empty."""
    command = command or typer.main.get_command(app)
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from all_commands(each, f"{path} {name}".strip())


def in_one_line(shown: str) -> str:
    """The words of a help text, however it was wrapped."""
    return " ".join(shown.translate(dict.fromkeys(map(ord, "│╭╮╰╯─"), " ")).split())
