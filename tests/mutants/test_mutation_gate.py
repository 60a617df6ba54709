"""The verdicts of the gate, over a tree of two files."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner
from rich.console import Console

from tests.mutants import trial
from tests.mutants.__main__ import main, run
from tests.mutants.copies import copy_tree
from tests.mutants.mutant_catalogue import Change, Mutant
from tests.mutants.trial import judge
from tests.mutants.witness import _is_the_mutants_own

CODE = """
def admits(held, limit):
    return held < limit
"""
TESTS = """
from code_under_test import admits


def test_the_limit_holds():
    assert not admits(3, 3)


def test_a_free_slot_is_granted():
    assert admits(2, 3)
"""
REST = ["tests"]


@pytest.fixture(autouse=True)
def _no_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    """These trees have no properties, and loading the plugin takes half as long as pytest."""
    monkeypatch.setattr(trial, "HYPOTHESIS", ())


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


@pytest.fixture
def base(tree: Path, tmp_path: Path) -> Path:
    copy_tree(tree, tmp_path / "base")
    return tmp_path / "base"


def mutant(old: str, new: str, guard: str = "tests/test_limit.py::test_the_limit_holds", name: str = "m") -> Mutant:
    return Mutant(name, "slots", ("F6",), "a bug", (guard,), (Change("code_under_test.py", old, new),))


def test_a_mutant_that_a_guard_catches_is_caught_with_its_message(base: Path, tmp_path: Path) -> None:
    verdict = judge(mutant("<", "<="), base, tmp_path, REST)
    assert (verdict.status, verdict.by_guard) == ("caught", True)
    assert verdict.test == "tests/test_limit.py::test_the_limit_holds"
    assert verdict.message.startswith("AssertionError: assert not True")


def test_a_mutant_caught_by_another_test_is_reported_as_such(base: Path, tmp_path: Path) -> None:
    verdict = judge(mutant("held < limit", "False"), base, tmp_path, REST)
    assert (verdict.status, verdict.by_guard, verdict.test) == (
        "caught",
        False,
        "tests/test_limit.py::test_a_free_slot_is_granted",
    )


def test_a_mutant_that_does_not_apply_is_stale(base: Path, tmp_path: Path) -> None:
    verdict = judge(mutant("held > limit", "True"), base, tmp_path, REST)
    assert (verdict.status, "occurs 0 times" in verdict.message) == ("stale", True)


@pytest.mark.parametrize(
    ("old", "new"),
    [("held < limit", "held < limits"), ("return", "retrun")],
    ids=["an error in a test", "an error at import"],
)
def test_an_invalid_mutant_is_broken(base: Path, tmp_path: Path, old: str, new: str) -> None:
    assert judge(mutant(old, new), base, tmp_path, REST).status == "broken"


@pytest.mark.parametrize(
    ("source", "invalid"),
    [
        ("limits", True),
        ("import missing_module", True),
        ("from json import missing_name", True),
        ("retrun held < limit", True),
        ("(lambda held: held)(1, 2)", True),
        ("(lambda held: held)()", True),
        ("1 < '2'", False),
        ("[].pop()", False),
    ],
)
def test_an_error_of_invalid_code_is_not_a_verdict(source: str, invalid: bool) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of any type
        exec(source)
    assert _is_the_mutants_own(raised.value) == invalid


@pytest.mark.parametrize(("code", "invalid"), [("ValidationException", True), ("ThrottlingException", False)])
def test_an_expression_that_dynamodb_refuses_is_invalid_code(code: str, invalid: bool) -> None:
    assert _is_the_mutants_own(ClientError({"Error": {"Code": code}}, "UpdateItem")) == invalid


def test_a_guard_that_does_not_exist_catches_nothing(base: Path, tmp_path: Path) -> None:
    verdict = judge(mutant("<", "<=", guard="tests/test_limit.py::test_gone"), base, tmp_path, REST)
    assert verdict.status == "broken"
    assert "test_gone" in verdict.message


def test_a_test_that_fails_without_the_mutant_catches_nothing(base: Path, tmp_path: Path) -> None:
    (base / "tests" / "test_other.py").write_text("def test_red():\n    assert False\n")
    verdict = judge(mutant("held < limit", "limit > held"), base, tmp_path, REST)
    assert (verdict.status, verdict.message) == ("broken", "it fails without the mutant too")


def test_a_mutant_that_hangs_is_not_caught(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "GUARDS_SECONDS", 2.0)
    verdict = judge(mutant("    return held", "    import time\n    time.sleep(900)\n    return held"), base, tmp_path)
    assert (verdict.status, verdict.message) == ("hung", "the tests did not end within 2 s")


def test_a_copy_contains_tracked_and_new_files_but_no_ignored_files(tree: Path, tmp_path: Path) -> None:
    (tree / "build" / "made").mkdir(parents=True)
    (tree / "build" / "made" / "by_a_tool").touch()
    (tree / "code_under_test.py").write_text("changed")
    copy_tree(tree, tmp_path / "copy")
    assert (tmp_path / "copy" / "code_under_test.py").read_text() == "changed"
    assert (tmp_path / "copy" / "tests" / "test_limit.py").exists()
    assert not (tmp_path / "copy" / "build" / "made").exists()


@pytest.mark.parametrize(
    ("new", "code", "status"), [("<=", 0, "caught"), ("!= limit and held <", 1, "survived")], ids=["caught", "survived"]
)
def test_the_gate_fails_if_a_mutant_survives_and_reports_it(
    tree: Path, tmp_path: Path, new: str, code: int, status: str
) -> None:
    output = io.StringIO()
    folder = tmp_path / "build"
    assert run(Console(file=output, width=200), [mutant("<", new)], 1, source=tree, folder=folder, rest=REST) == code
    (judged,) = json.loads((folder / "report.json").read_text())["mutants"]
    assert judged["verdict"]["status"] == status
    assert f"| m | a bug | {status} |" in (folder / "report.md").read_text()
    assert f"{1 - code} of 1 known bugs" in output.getvalue()
    assert (folder / "m").exists() == (status != "caught")


def test_the_gate_stops_if_the_guards_fail_without_a_mutant(tree: Path, tmp_path: Path) -> None:
    (tree / "code_under_test.py").write_text(CODE.replace("<", "<="))
    output = io.StringIO()
    console = Console(file=output, width=200)
    assert run(console, [mutant("<=", "<")], 1, source=tree, folder=tmp_path / "build", rest=REST) == 1
    assert "fail without any mutant: tests/test_limit.py::test_the_limit_holds" in output.getvalue()


def test_the_mutants_can_be_listed() -> None:
    listed = CliRunner().invoke(main, ["--list", "--only", "f05-release"])
    assert (listed.exit_code, "f05-release-without-condition" in listed.output) == (0, True)


def test_an_unknown_mutant_is_a_usage_error() -> None:
    refused = CliRunner().invoke(main, ["--only", "f99"])
    assert (refused.exit_code, "f99" in refused.output) == (2, True)
