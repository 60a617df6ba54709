"""A command of the operator's that a page mentions in a sentence exists, with its options; blocks are run elsewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

from slotkeeper_cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
MENTIONED = sorted(
    {line for page in DOCS.glob("*.md") for line in re.findall(r"`(slotkeeper [a-z][^`\n]*)`", page.read_text())}
)
COMMAND: Any = typer.main.get_command(app)


@pytest.mark.parametrize("line", MENTIONED)
def test_a_command_that_is_mentioned_exists_with_its_options(line: str) -> None:
    _, *words = shlex.split(line.rstrip("."))
    command = COMMAND
    while isinstance(command, click.Group) and words:
        assert words[0] in command.commands
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known


def test_there_is_something_to_try() -> None:
    assert len(MENTIONED) > 20
