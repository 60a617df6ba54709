"""Every mutant still fits the code, is valid code itself, and names tests that exist."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.mutants.mutant_catalogue import NOWHERE, ROWS, Mutant, chosen, load

ROOT = Path(__file__).parents[2]
MUTANTS = load()
NAMES = [mutant.name for mutant in MUTANTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=NAMES)
def test_a_mutant_still_fits_the_code_and_is_valid(mutant: Mutant) -> None:
    for name, text in mutant.mutated(ROOT).items():
        assert text != (ROOT / name).read_text()
        if name.endswith(".json"):
            json.loads(text)
        elif name.endswith(".yaml"):
            yaml.compose(text, Loader=yaml.CSafeLoader)
        else:
            compile(text, name, "exec")


def test_no_mutant_uses_an_undefined_name(tmp_path: Path) -> None:
    """A NameError makes every test fail and proves nothing about them."""
    for mutant in MUTANTS:
        for name, text in mutant.mutated(ROOT).items():
            if name.endswith(".py"):
                (tmp_path / f"{mutant.name}.py").write_text(text)
    ruff = [str(Path(sys.executable).with_name("ruff")), "check", "--isolated", "--select=F821,F823", str(tmp_path)]
    ran = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("mutant", MUTANTS, ids=NAMES)
def test_a_mutants_guards_are_quick_tests_that_exist(mutant: Mutant) -> None:
    for guard in mutant.guards:
        file, _, test = guard.partition("::")
        assert not file.startswith(("tests/e2e", "tests/engine"))
        assert f"def {test.partition('[')[0]}(" in (ROOT / file).read_text()


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
