"""The commands that texts advise: a text of a sender or an item is a value in them, and never an option."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.next_step import ToFillIn, next_step
from tests.command.command_tree import all_commands

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = [
    *("--overdue", "-1", "-y", "--", "-", "--yes=x", "-\n", "", " ", "a b", "#a", "~", "*", "{a,b}", "a=b", "\\n", "é"),
    *("it's", '"', "$(id)", "`id`", "$HOME", "a;b", "a|b", "a\nb", "a\r", "'\x07\\", "\x1b[2J", "\x9b1m", "a\u202eb"),
]
# What quotes for a shell itself, with the reason.
EXEMPT = {
    "layers/slotkeeper/slotkeeper/next_step.py": "it makes the commands",
    "cli/slotkeeper_cli/entry.py": "the path of the command's own Python, without the layer",
    "cli/slotkeeper_cli/commands/stack.py": "the environment of the operator's own program",
    "cli/slotkeeper_cli/stack_variables.py": "exports of the stack's outputs",
    "dev/emulator/own_job.py": "it reads the developer's own command",
    "dev/emulator/next_steps.py": "make local-up with the developer's own process; it does not import the layer",
    "dev/emulator/worker_client.py": "make work with the developer's own body; it does not import the layer",
}
COMMANDS = dict(all_commands())


def _read(arguments: tuple[str, ...]) -> dict[str, Any]:
    """The values that the operator command reads from arguments, by parameter."""
    path, words = "", list(arguments)
    while True:
        command = COMMANDS[path]
        read, words, _ = command.make_parser(command.context_class(command)).parse_args(words)
        if not words:
            return {name: value for name, value in read.items() if value is not None}
        path = f"{path} {words.pop(0)}".strip()


@pytest.mark.parametrize("text", HOSTILE, ids=repr)
def test_the_command_reads_each_value_as_it_is(text: str) -> None:
    assert _read(next_step("retry run-now", text).arguments) == {"request_id": text}
    assert _read(next_step("process set-limit", text, -1).arguments) == {"process": text, "limit": "-1"}
    limit = next_step("process set-key-limit", text, "none", key=text)
    assert _read(limit.arguments) == {"process": text, "limit": "none", "key": text}
    cancel = next_step("request cancel", text, text, process=text, stop=True)
    assert _read(cancel.arguments) == {"ids": (text, text), "process": text, "stop": True}
    assert _read(next_step("dlq redrive", "work", id=[text, text]).arguments) == {"queue": "work", "ids": [text, text]}


def test_a_shell_reads_each_value_as_it_is_and_a_terminal_shows_it() -> None:
    steps = [next_step("request show", text, process=text, key=text) for text in HOSTILE]
    assert all(each.isprintable() for each in steps)
    shell = "slotkeeper() { printf '%s\\0' \"$@\" END; }\n" + "\n".join(steps)
    read = subprocess.run(["bash", "-uc", shell], stdout=subprocess.PIPE, check=True).stdout.decode()
    assert [tuple(each.split("\0")[:-1]) for each in read.split("END\0")[:-1]] == [each.arguments for each in steps]


def test_an_id_that_no_argument_can_contain_names_nothing() -> None:
    assert next_step("retry run-now", "victim\0").arguments == ("retry", "run-now", "victim\\u0000")


def test_a_value_of_a_sender_is_not_to_be_filled_in() -> None:
    assert next_step("explain", "A_NEW_ID").is_complete
    assert not next_step("process add", "a", target=ToFillIn("JOB_OR_ARN")).is_complete


def _made_elsewhere(source: ast.Module) -> Iterator[int]:
    """The lines with a command in which a value is written, or with a shell's quoting."""
    for node in ast.walk(source):
        if isinstance(node, ast.JoinedStr):
            text = "".join(each.value if isinstance(each, ast.Constant) else "\0" for each in node.values)
            if re.search(r"slotkeeper (--\w+ )?[a-z][^.;:,\0\n]*\0", text):
                yield node.lineno
        elif isinstance(node, ast.Import) and node.names[0].name == "shlex":
            yield node.lineno


def test_every_command_with_a_value_is_made_by_next_step() -> None:
    found = {}
    for folder in ("layers", "cli", "functions", "dev", "jobs", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            if "tests" not in path.parts and (lines := [*_made_elsewhere(ast.parse(path.read_text()))]):
                found[str(path.relative_to(ROOT))] = lines
    assert {name: lines for name, lines in found.items() if name not in EXEMPT} == {}
    assert found.keys() >= EXEMPT.keys()
