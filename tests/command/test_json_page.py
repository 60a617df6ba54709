"""docs/json.md: `Operator.run` compares each answer with --json with it; here, that the page has nothing else."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.command import json_page
from tests.command.account_contents import edit
from tests.command.command_tree import all_commands
from tests.command.operator_account import NOW, ROOT, Operator

SOURCES = "".join(path.read_text() for folder in ("cli", "layers") for path in (ROOT / folder).rglob("*.py"))


def test_each_command_has_a_section() -> None:
    """`web` prints no document."""
    commands = {path for path, command in all_commands() if path and not hasattr(command, "commands")} - {"web"}
    assert commands - json_page.sections().keys() == set()


def test_each_key_is_a_name_in_the_code() -> None:
    keys = {key[-1] for section in json_page.sections().values() for key in section.rows}
    names = {key for key in keys if re.fullmatch(r"[a-z_0-9]+", key)}
    assert {name for name in names if not re.search(rf"\b{name}\b", SOURCES)} == set()


@pytest.fixture
def furnished(operator: Operator) -> Operator:
    operator.processes.set_limit("sample", 9)
    operator.run_glue(operator.hold("a", weight=5, key="acme"))
    operator.stop_long_ago(operator.hold("dead"))
    operator.lease("lease-1", int(NOW) + 60)
    operator.wait("q", start_before="2099-11-28T08:00:00Z", weight=8)
    operator.wait("heavy", weight=10)
    operator.processes.set_key_limit("sample", 5, "acme")
    edit(operator, "after_keys", {"M": {"1": {"S": "acme"}}})
    operator.processes.create("odd", 2, "sample-job")
    edit(operator, "slot_limit", {"S": "2"}, "odd")
    return operator


# The sections, in an order in which each question has an answer.
CONVERSATION = {
    "status": ("status", "status sample"),
    "process list": ("process list",),
    "process add": ("process add new --limit 2",),
    "process set-limit": ("process set-limit sample 4",),
    "process set-key-limit": ("process set-key-limit sample 4",),
    "process set-rate": ("process set-rate sample 2/hour",),
    "process pause": ("process pause sample",),
    "process resume": ("process resume sample",),
    "process repair": ("process repair odd",),
    "holder release": ("holder release dead",),
    "process remove": ("process remove new",),
}


def test_each_key_of_a_process_and_its_holders_is_printed(furnished: Operator) -> None:
    furnished.event_source = "Disabled"
    missing = {}
    for name, questions in CONVERSATION.items():
        answers = [furnished.run(*shlex.split(question), "--json", "--yes").json for question in questions]
        missing[name] = json_page.unprinted(name, answers)
    assert {name: keys for name, keys in missing.items() if keys} == {}
