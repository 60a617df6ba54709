"""Every mutant still fits the code, is valid code itself, and names tests that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.guards.mutant_catalogue import NOWHERE, ROWS, chosen, load

ROOT = Path(__file__).parents[2]
MUTANTS = load()
NOT_QUICK = ("tests/deployed", "tests/deployed")


def test_every_mutant_still_fits_the_code_is_valid_and_uses_no_undefined_name(tmp_path: Path) -> None:
    """A NameError makes every test fail and proves nothing about them."""
    for mutant in MUTANTS:
        for name, text in mutant.mutated(ROOT).items():
            assert text != (ROOT / name).read_text(), mutant.name
            if name.endswith(".json"):
                json.loads(text)
            elif name.endswith(".yaml"):
                yaml.compose(text, Loader=yaml.CSafeLoader)
            else:
                (tmp_path / f"{mutant.name}.py").write_text(text)
    ruff = [str(Path(sys.executable).with_name("ruff")), "check", "--isolated", "--select=F821,F823", str(tmp_path)]
    ran = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_the_guards_of_every_mutant_are_quick_tests_that_exist() -> None:
    guards = {guard.partition("[")[0] for mutant in MUTANTS for guard in mutant.guards}
    assert {guard for guard in guards if guard.startswith(NOT_QUICK)} == set()
    files = {guard.partition("::")[0] for guard in guards}
    tests = {f"{file}::{test}" for file in files for test in re.findall(r"def (\w+)\(", (ROOT / file).read_text())}
    assert guards - tests == set()


def test_every_known_failure_has_a_mutant() -> None:
    put_back = {row for mutant in MUTANTS for row in mutant.rows}
    assert put_back == set(ROWS) - NOWHERE


def test_mutants_are_chosen_by_how_their_names_begin() -> None:
    assert {mutant.rows[0] for mutant in chosen(MUTANTS, ["f05-", "f06-"])} == {"F5", "F6"}
    assert chosen(MUTANTS, []) == MUTANTS
    with pytest.raises(LookupError, match="'f99'"):
        chosen(MUTANTS, ["f05", "f99"])


@pytest.mark.parametrize(
    "table",
    [
        'bug = ""\nguards = ["t.py"]',
        'bug = ""\nguards = []\nfile = "a"\nold = "b"\nnew = "c"',
        'bug = ""\nguard = ["t.py"]\nfile = "a"\nold = "b"\nnew = "c"',
        'bug = ""\nguards = ["t.py"]\nfile = "a"\nold = "b"',
    ],
    ids=["no change", "no guards", "a key misspelt", "no new text"],
)
def test_an_incomplete_mutant_is_refused_with_its_name(tmp_path: Path, table: str) -> None:
    (tmp_path / "slots.toml").write_text(f"[m]\n{table}\n")
    with pytest.raises(ValueError, match=r"slots\.toml: mutant 'm'"):
        load(tmp_path)
