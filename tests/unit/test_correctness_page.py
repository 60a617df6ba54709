"""The pages on correctness name existing failures, tests, mutants, definitions and commands."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.mutants.mutant_catalogue import NOWHERE, ROWS, load

ROOT = Path(__file__).parents[2]
ARGUMENT = ROOT / "docs" / "correctness.md"
PROOFS = ROOT / "tests" / "README.md"
TABLE = {
    row: cells for row, *cells in re.findall(r"^\| (F\d+) \| (.*?) \| (.*?) \| (.*?) \|$", PROOFS.read_text(), re.M)
}
CODE = "\n".join(
    path.read_text()
    for folder in ("layers", "statemachines", "functions", "tests")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".json") and path != Path(__file__)
)
MAKEFILE = (ROOT / "Makefile").read_text()
UNNUMBERED = "F11", "F14"  # their tests have no number in their names


def test_every_known_failure_has_its_row() -> None:
    assert tuple(TABLE) == ROWS


@pytest.mark.parametrize("row", ROWS)
def test_the_mutants_of_a_row_are_those_of_the_catalogue(row: str) -> None:
    names = re.findall(r"`(.*?)`", TABLE[row][2])
    theirs = {mutant.name for mutant in load() if row in mutant.rows}
    assert {name for name in theirs if not any(fnmatchcase(name, pattern) for pattern in names)} == set()
    assert [pattern for pattern in names if not any(fnmatchcase(name, pattern) for name in theirs)] == []
    assert bool(names) != (row in NOWHERE)


@pytest.mark.parametrize("row", [row for row in ROWS if row not in UNNUMBERED])
def test_the_folders_of_a_row_are_those_whose_tests_have_its_number(row: str) -> None:
    numbered = re.compile(rf'(def (\w+_)?|"){row.lower()}_')
    folders = {
        path.relative_to(ROOT / "tests").parts[0]
        for path in (ROOT / "tests").rglob("test_*.py")
        if numbered.search(path.read_text())
    }
    assert TABLE[row][1] == ", ".join(sorted(folders))


NAMES = re.findall(r"`([A-Za-z_]+(?:\.[A-Za-z_]+)*)`", ARGUMENT.read_text())


@pytest.mark.parametrize(
    "name", sorted({part for name in NAMES if not name.endswith(".py") for part in name.split(".")})
)
def test_each_name_on_the_page_of_guarantees_is_in_the_code(name: str) -> None:
    assert re.search(rf"(?:\b|_){name}(?:\b|(?<=_))", CODE)


@pytest.mark.parametrize("prefix", sorted(set(re.findall(r"`([a-z]\d+b?)_`", ARGUMENT.read_text()))))
def test_a_prefix_of_tests_is_that_of_a_test(prefix: str) -> None:
    assert re.search(rf'(def (\w+_)?|"){prefix}_', CODE)


@pytest.mark.parametrize("pattern", sorted(set(re.findall(r"`([a-z]\d+b?-\*)`", ARGUMENT.read_text()))))
def test_a_pattern_of_mutants_matches_one(pattern: str) -> None:
    assert any(fnmatchcase(mutant.name, pattern) for mutant in load())


@pytest.mark.parametrize("command", re.findall(r"^    make (.*)$", PROOFS.read_text(), re.MULTILINE))
def test_each_command_is_a_target_with_its_variables(command: str) -> None:
    target, *given = command.split()
    recipe = MAKEFILE.partition(f"\n{target}: setup")[2].partition("\n\n")[0]
    assert recipe
    assert [name for name in (each.partition("=")[0] for each in given) if f"$({name})" not in recipe] == []
