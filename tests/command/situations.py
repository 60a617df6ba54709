"""The form of the table of situations: the state of a stack, an operator's question, and the right answer.

Each module `*_situations.py` of this folder has SITUATIONS: the situation in words -> its row. `test_situations.py`
runs all rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import typer.main

from slotkeeper_cli.app import app
from tests.command.operator_account import NOW, Operator
from tests.module_time import replace_time

Names = Mapping[str, str]
# Also those modules whose commands no test has run yet have a clock that `set_clock` replaces.
assert typer.main.get_command(app).commands  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Situation:
    """One row. Questions and answers may name `{values}` that `state` returns, such as an execution's name.

    Args:
        state: makes the state of the stack, which has the process `sample` with one slot.
        question: the arguments of the command, as in a shell.
        says: texts of the answer (stdout, then stderr), in this order.
        never: texts that the answer must not have.
        shows: values in the answer with --json, by path: {"requests.0.state": "waiting"}. Empty: not asked.
        at: the command's clock, in seconds since the epoch.
    """

    state: Callable[[Operator], Names | None]
    question: str
    says: tuple[str, ...]
    never: tuple[str, ...] = ()
    shows: Mapping[str, Any] = field(default_factory=dict)
    exit_code: int = 0
    at: float = NOW + 60


def value_at(data: Any, path: str) -> Any:
    """The value at a path of keys and numbers: `requests.0.state`."""
    for key in path.split("."):
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


def set_clock(monkeypatch: pytest.MonkeyPatch, at: float) -> None:
    """Set the clock of every module of the command that has one."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("slotkeeper_cli") and hasattr(module, "time") and hasattr(module.time, "monotonic"):
            replace_time(monkeypatch, module, time=lambda: at)
