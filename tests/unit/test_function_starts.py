"""A function's cold start: garbage collection is disabled until its end, and only calls of AWS are traced."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from dev.emulator.environment import ROOT

FUNCTIONS = sorted((ROOT / "functions").glob("*/app.py"))  # a function in `src` is yours to write
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
import slotkeeper.observability
assert "aws_xray_sdk.core" not in sys.modules
from slotkeeper.observability import tracer
assert not tracer.disabled
assert hasattr(BaseClient._make_api_call, "__wrapped__")
assert "sqlite3" not in sys.modules
"""


def _run(code: str, **variables: str) -> None:
    environment = {"PYTHONPATH": str(ROOT / "layers" / "slotkeeper"), **variables}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_garbage_collection_starts_after_the_cold_start_and_skips_its_objects() -> None:
    _run(GARBAGE)


def test_aws_calls_are_traced_no_other_library_is_loaded_and_the_package_alone_loads_no_x_ray() -> None:
    _run(TRACED, LAMBDA_TASK_ROOT="/var/task")  # without it, Powertools disables its tracer


@pytest.mark.parametrize("app", FUNCTIONS, ids=lambda path: path.parent.name)
def test_a_function_disables_garbage_collection_first_and_enables_it_last(app: Path) -> None:
    statements = [ast.unparse(statement) for statement in ast.parse(app.read_text()).body]
    _docstring, _future, first, *_, last = statements
    assert (first, last) == ("from slotkeeper import cold_start", "cold_start.over()")
