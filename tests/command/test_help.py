"""The help of every command reads well on a terminal of any width, and lists every parameter with a text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.command.command_tree import all_commands

COMMANDS = dict(all_commands())
GROUPS = {path: command for path, command in COMMANDS.items() if hasattr(command, "commands")}


@pytest.fixture
def helps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str, int], list[str]]:
    def shown(path: str, columns: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        COMMANDS[""]([*path.split(), "--help"], standalone_mode=False)
        return capsys.readouterr().out.splitlines()

    return shown


def test_the_version_imports_no_command_and_no_client_of_aws() -> None:
    """Imported, they take half a second, which a shell's completion takes for each press of the key."""
    program = """
import sys
from slotkeeper_cli.app import main
try:
    main(["--version"])
except SystemExit:
    print([name for name in sys.modules if name == "boto3" or name.startswith("slotkeeper_cli.commands.")])
"""
    found = {"PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.check_output([sys.executable, "-c", program], env=found, text=True)
    assert printed.splitlines()[1:] == ["[]"]


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("path", COMMANDS)
def test_paragraphs_fill_the_width(path: str, columns: int, helps: Callable[[str, int], list[str]]) -> None:
    shown = helps(path, columns)
    text = [line.strip() for line in shown[: next(n for n, line in enumerate(shown) if line.startswith("╭"))]]

    assert max(map(len, shown)) <= columns
    early = [
        line
        for line, following in pairwise(text)
        if line and following and len(line) + 1 + len(following.split()[0]) <= columns - 2
    ]
    assert early == []


@pytest.mark.parametrize("path", COMMANDS)
def test_every_parameter_has_a_text(path: str) -> None:
    assert [each.name for each in COMMANDS[path].params if not each.help] == []


@pytest.mark.parametrize("path", GROUPS)
def test_a_group_lists_each_command_with_a_summary_on_one_line(
    path: str, helps: Callable[[str, int], list[str]]
) -> None:
    shown = [line.strip("│ ") for line in helps(path, 80)]

    for name, command in GROUPS[path].commands.items():
        summary, _, _ = command.help.partition("\n\n")
        assert summary.endswith(".")
        assert len(summary) <= 60
        assert [line for line in shown if line.split() == [name, *summary.split()]], name
