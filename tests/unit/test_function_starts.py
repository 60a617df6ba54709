"""How a function starts: nothing looks for garbage, which its calls collect as ever, and calls of AWS are traced."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from dev.emulator.environment import ROOT

FUNCTIONS = sorted((ROOT / "functions").glob("*/app.py"))
GARBAGE = """
import gc
from slotkeeper import cold_start
assert not gc.isenabled()
cold_start.over()
frozen = gc.get_freeze_count()
assert gc.isenabled() and frozen > 1000, frozen
cold_start.over()
assert gc.get_freeze_count() == frozen
"""
TRACED = """
import sys
from botocore.client import BaseClient
from slotkeeper.observability import tracer
assert not tracer.disabled
assert hasattr(BaseClient._make_api_call, "__wrapped__")
assert "sqlite3" not in sys.modules
"""


def _run(code: str, **variables: str) -> None:
    environment = {"PYTHONPATH": str(ROOT / "layers" / "slotkeeper"), **variables}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_garbage_is_collected_from_the_end_of_the_start_on_and_what_was_made_by_then_is_left_alone() -> None:
    _run(GARBAGE)


def test_calls_of_aws_are_traced_and_nothing_is_loaded_for_others() -> None:
    _run(TRACED, LAMBDA_TASK_ROOT="/var/task")  # elsewhere Powertools switches its tracer off


@pytest.mark.parametrize("app", FUNCTIONS, ids=lambda path: path.parent.name)
def test_a_function_begins_with_it_and_ends_it_when_all_is_made(app: Path) -> None:
    statements = [ast.unparse(statement) for statement in ast.parse(app.read_text()).body]
    _docstring, _future, first, *_, last = statements
    assert (first, last) == ("from slotkeeper import cold_start", "cold_start.over()")
