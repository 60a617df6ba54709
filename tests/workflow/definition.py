"""The workflow's ASL file as a graph: what cfn-lint does not look into."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "statemachines" / "glue_workflow.asl.json"
ENDS = {"Succeed", "Fail"}
END = ""  # in the place of a next state: this one is the last, and the execution has succeeded


@cache
def definition() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(FILE.read_text())
    return loaded


def states() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = definition()["States"]
    return found


def targets(state: dict[str, Any]) -> list[str]:
    """The states that can follow one: its Next, its Default, its choices and its catchers."""
    rules = state.get("Choices", []) + state.get("Catch", [])
    direct = [state[field] for field in ("Next", "Default") if field in state]
    return direct + [rule["Next"] for rule in rules]


def expressions(value: Any) -> Iterator[str]:
    """Every JSONata expression in a part of the definition, without its {% %}."""
    if isinstance(value, str) and value.startswith("{%"):
        yield value.removeprefix("{%").removesuffix("%}").strip()
    elif isinstance(value, dict):
        for part in value.values():
            yield from expressions(part)
    elif isinstance(value, list):
        for part in value:
            yield from expressions(part)
