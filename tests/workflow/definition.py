"""The workflow's ASL file as a graph, which cfn-lint does not check."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "statemachines" / "slot_workflow.asl.json"
ENDS = {"Succeed", "Fail"}
END = ""  # instead of a next state: the execution has succeeded


@cache
def definition() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(FILE.read_text())
    return loaded


def states() -> dict[str, dict[str, Any]]:
    declared: dict[str, dict[str, Any]] = definition()["States"]
    return declared


def targets(state: dict[str, Any]) -> list[str]:
    """The states that can follow one: its Next, its Default, its choices and its catchers."""
    rules = state.get("Choices", []) + state.get("Catch", [])
    direct = [state[field] for field in ("Next", "Default") if field in state]
    return direct + [rule["Next"] for rule in rules]
