"""The calls of each command that docs/permissions.md lists, and a check that a command makes no other one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.template.roles.needs import ACTIONS, PARTS, PREFIXES

PAGE = (Path(__file__).parents[3] / "docs" / "permissions.md").read_text()
ACTION = re.compile(r"`([a-z0-9]+:[A-Z]\w+)`")
EVERY_COMMANDS = {"cloudformation:DescribeStacks", "sts:GetCallerIdentity"}  # GetCallerIdentity needs no permission
AUDIT = {"logs:CreateLogStream", "logs:PutLogEvents"}


def section(heading: str) -> str:
    """The text below a heading of the page."""
    match = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert match is not None, heading
    return match[1]


def entries(text: str) -> dict[str, str]:
    """The entries of a section's list: text before the colon -> text after it."""
    return dict(re.findall(r"^- (.+?): (.+)$", re.sub(r"\n  +", " ", text), re.MULTILINE))


# Command -> the actions of its calls.
OPERATORS = {
    command.strip("`"): set(ACTION.findall(calls)) | (AUDIT if entry.endswith(" (audit)") else set())
    for entry, calls in entries(section("Who operates")).items()
    for command in entry.partition(" (")[0].split(", ")
}


def actions_of(service: str, operation: str, parameters: dict[str, Any]) -> set[str]:
    """The IAM actions of a call. A transaction has those of its parts."""
    if operation == "TransactWriteItems":
        return {PARTS[kind] for part in parameters["TransactItems"] for kind in part}
    return {ACTIONS.get((service, operation), f"{PREFIXES.get(service, service)}:{operation}")}


class WatchedClient:
    """A client of a command. Its calls are noted, those of a test that acts meanwhile are not.

    Args:
        noted: the actions of its calls are added.
    """

    def __init__(self, client: Any, noted: set[str]) -> None:
        self._client, self._noted = client, noted

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name not in self._client.meta.method_to_api_mapping:
            return found

        def call(**parameters: Any) -> Any:
            self._note(name, parameters)
            return found(**parameters)

        return call

    def get_paginator(self, name: str) -> Any:
        """A paginator, of which the first call is noted here."""
        self._note(name, {})
        return self._client.get_paginator(name)

    def _note(self, name: str, parameters: dict[str, Any]) -> None:
        meta = self._client.meta
        self._noted |= actions_of(meta.service_model.service_name, meta.method_to_api_mapping[name], parameters)


def check_page(arguments: Iterable[str], called: set[str]) -> None:
    """Check that a command has made only the calls that the page lists for it.

    Args:
        arguments: of the command; the first words that are a command's name it. Without a command, nothing is checked.
        called: the actions of its calls.
    """
    words = [each for each in arguments if not each.startswith("-")]
    names = (" ".join(words[:number]) for number in (3, 2, 1))
    if command := next((name for name in names if name in OPERATORS), None):
        more = called - OPERATORS[command] - EVERY_COMMANDS
        assert not more, f"{command} calls {', '.join(sorted(more))}, which docs/permissions.md does not list for it"
