"""The verdicts of the gate, over a tree of two files."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.guards import trial
from tests.guards.__main__ import main, run
from tests.guards.mutant_catalogue import Change, Mutant
from tests.guards.trial import Trials

CODE = "code_under_test.py"
ADMITS = """
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
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with one tracked file and three new ones, whose tests need no packages."""
    monkeypatch.setattr(trial, "PACKAGES", ())
    source = tmp_path / "source"
    (source / "tests").mkdir(parents=True)
    (source / CODE).write_text(ADMITS)
    (source / "tests" / "test_limit.py").write_text(TESTS)
    (source / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\n')
    (source / ".gitignore").write_text("build/\n__pycache__/\n")
    subprocess.run(["git", "init", "-q"], cwd=source, check=True)
    subprocess.run(["git", "add", CODE], cwd=source, check=True)
    return source


def verdicts(tree: Path, report: Path, *mutants: tuple[str, str, str]) -> tuple[int, str]:
    """The exit code, and the output with the report, of mutants with these names, `old` and `new`."""
    output = io.StringIO()
    tried = [Mutant(name, "slots", (), "a bug", (GUARD,), (Change(CODE, old, new),)) for name, old, new in mutants]
    code = run(Console(file=output, width=200), tried, 1, source=tree, report=report)
    return code, output.getvalue() + (report.read_text() if report.exists() else "")


def test_the_gate_fails_if_a_guard_does_not_catch_a_mutant(tree: Path, tmp_path: Path) -> None:
    code, shown = verdicts(
        tree,
        tmp_path / "report.md",
        ("m1", "<", "<="),
        ("m2", "<", "!= limit and held <"),
        ("m3", "held < limit", "held < limits"),
        ("m4", "return", "retrun"),
        ("m5", ">", "<"),
    )
    assert code == 1
    assert "| m1 | a bug | caught | tests.test_limit::test_the_limit_holds | assert not True" in shown
    assert "| m2 | a bug | survived |" in shown
    assert "| m3 | a bug | broken | tests.test_limit::test_the_limit_holds | NameError" in shown
    assert "| m4 | a bug | broken |" in shown
    assert "| m5 | a bug | stale |" in shown


def test_the_gate_passes_if_each_mutant_is_caught(tree: Path, tmp_path: Path) -> None:
    code, shown = verdicts(tree, tmp_path / "report.md", ("m1", "<", "<="))
    assert code == 0
    assert "1 of 1 known bugs were caught" in shown


def test_a_guard_that_fails_without_a_mutant_ends_the_run(tree: Path, tmp_path: Path) -> None:
    (tree / "tests" / "test_limit.py").write_text("")
    code, shown = verdicts(tree, tmp_path / "report.md", ("m1", "<", "<="))
    assert code == 1
    assert "The guards fail without any mutant" in shown


def test_guards_that_do_not_end_catch_nothing(tree: Path) -> None:
    (tree / CODE).write_text("while True: pass")
    with Trials(tree) as trials:
        assert trials.first_failure("m", [GUARD], seconds=1.0).message == "the tests did not end within 1 s"


def test_an_unknown_mutant_is_a_usage_error() -> None:
    refused = CliRunner().invoke(main, ["--only", "f99"])
    assert (refused.exit_code, "f99" in refused.output) == (2, True)
