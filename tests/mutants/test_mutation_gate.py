"""The verdicts of the gate, over a tree of two files."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.mutants.__main__ import main, run
from tests.mutants.mutant_catalogue import Change, Mutant
from tests.mutants.trial import first_failure

CODE = """
def admits(held, limit):
    return held < limit
"""
TESTS = """
from code_under_test import admits


def test_the_limit_holds():
    assert not admits(3, 3)
"""
GUARD = "tests/test_limit.py::test_the_limit_holds"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A git repository with one tracked file and three new ones."""
    source = tmp_path / "source"
    (source / "tests").mkdir(parents=True)
    (source / "code_under_test.py").write_text(CODE)
    (source / "tests" / "test_limit.py").write_text(TESTS)
    (source / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\n')
    (source / ".gitignore").write_text("build/\n__pycache__/\n")
    subprocess.run(["git", "init", "-q"], cwd=source, check=True)
    subprocess.run(["git", "add", "code_under_test.py"], cwd=source, check=True)
    return source


@pytest.mark.parametrize(
    ("old", "new", "guard", "code", "verdict"),
    [
        ("<", "<=", GUARD, 0, "| caught | tests.test_limit::test_the_limit_holds | assert not True"),
        ("<", "!= limit and held <", GUARD, 1, "| survived |"),
        ("held < limit", "held < limits", GUARD, 1, "| broken | tests.test_limit::test_the_limit_holds | NameError"),
        ("return", "retrun", GUARD, 1, "| broken |"),
        ("<", "<=", "tests/test_limit.py::test_gone", 1, "The guards fail without any mutant"),
        (">", "<", GUARD, 1, "| stale |"),
    ],
    ids=["caught", "survived", "an undefined name", "invalid syntax", "no such guard", "stale"],
)
def test_the_gate_passes_only_if_a_guard_catches_the_mutant(
    tree: Path, tmp_path: Path, old: str, new: str, guard: str, code: int, verdict: str
) -> None:
    output, report = io.StringIO(), tmp_path / "report.md"
    mutant = Mutant("m", "slots", ("F6",), "a bug", (guard,), (Change("code_under_test.py", old, new),))
    assert run(Console(file=output, width=200), [mutant], 1, source=tree, report=report) == code
    assert verdict in output.getvalue() + (report.read_text() if report.exists() else "")


def test_guards_that_do_not_end_catch_nothing(tree: Path) -> None:
    (tree / "code_under_test.py").write_text("while True: pass")
    assert first_failure("m", [GUARD], tree, seconds=2.0).message == "the tests did not end within 2 s"


def test_an_unknown_mutant_is_a_usage_error() -> None:
    refused = CliRunner().invoke(main, ["--only", "f99"])
    assert (refused.exit_code, "f99" in refused.output) == (2, True)
