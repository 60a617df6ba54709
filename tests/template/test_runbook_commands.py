"""The runbooks' commands are commands that there are."""

from __future__ import annotations

import re
import shlex

import click
import pytest
import typer

from slotkeeper_cli.app import app
from tests.support.metrics import ROOT

TEXT = "".join((ROOT / "docs" / name).read_text() for name in ("runbooks.md", "metrics.md"))
IN_BLOCKS = sorted({line.split("#")[0].strip() for line in re.findall(r"^    (slotkeeper .*)$", TEXT, re.MULTILINE)})
IN_SENTENCES = sorted(set(re.findall(r"`(slotkeeper [^`]*)`", TEXT)))
BLANKS = {
    "<limit>": "3",
    "<process>": "sample",
    "<execution>": "sample-1",
    "<id>": "order-1",
    "<file>": "/dev/null",
    "${AWS::StackName}": "s",
}


def _command(line: str) -> tuple[click.Command, list[str]]:
    """The command that a line names, and what is given to it."""
    for blank, filled in BLANKS.items():
        line = line.replace(blank, filled)
    _, *words = shlex.split(line)
    found: click.Command = typer.main.get_command(app)
    while isinstance(found, click.Group):
        found = found.commands[words.pop(0)]
    return found, words


@pytest.mark.parametrize("line", IN_BLOCKS)
def test_a_command_to_copy_is_complete(line: str) -> None:
    command, words = _command(line)
    command.make_context(command.name, words)


@pytest.mark.parametrize("line", IN_SENTENCES)
def test_a_command_that_is_mentioned_exists_with_its_options(line: str) -> None:
    command, words = _command(line)
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known


def test_there_is_something_to_try() -> None:
    assert len(IN_BLOCKS) > 10
    assert len(IN_SENTENCES) > 10
