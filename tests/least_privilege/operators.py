"""The calls of each command that docs/permissions.md lists, and a check that a command makes no other one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.least_privilege.needs import ACTIONS, PARTS, PREFIXES

PAGE = (Path(__file__).parents[2] / "docs" / "permissions.md").read_text()
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


@contextmanager
def within_the_page(arguments: Iterable[str], clients: Callable[[], Iterable[Any]]) -> Iterator[None]:
    """Check that what runs here makes only the calls that the page lists for a command.

    Args:
        arguments: of the command; the first words that are one name it. Without a command, nothing is checked.
        clients: those that calls may be made with.
    """
    words = [each for each in arguments if not each.startswith("-")]
    names = (" ".join(words[:number]) for number in (3, 2, 1))
    command = next((name for name in names if name in OPERATORS), None)
    called: set[str] = set()

    def note(params: dict[str, Any], model: Any, **_: Any) -> None:
        service = model.service_model.service_name
        called.update(actions_of(service, model.name, params))

    noted = [*clients()]
    for each in noted:
        each.meta.events.register("provide-client-params", note)
    try:
        yield
    finally:
        for each in noted:
            each.meta.events.unregister("provide-client-params", note)
    if command is not None:
        more = called - OPERATORS[command] - EVERY_COMMANDS
        assert not more, f"{command} calls {', '.join(sorted(more))}, which docs/permissions.md does not list for it"
