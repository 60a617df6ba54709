"""`make check` runs the tests of this folder for a change in it."""

from __future__ import annotations

from dev.tools.check import targets_of
from dev.tools.function_folders import FUNCTIONS

FOLDER = "functions/worker"


def test_a_change_of_the_work_selects_the_fast_tests_of_the_work() -> None:
    selected = targets_of([f"{FOLDER}/src/work/splitting.py"])
    assert selected == sorted(f"{FOLDER}/tests/{path.name}" for path in (FUNCTIONS / "worker/tests").glob("test_*.py"))
    assert targets_of([f"{FOLDER}/tests/test_splitting.py"]) == [f"{FOLDER}/tests/test_splitting.py"]
