"""The pages on correctness name existing failures, tests, guards, definitions and commands."""

from __future__ import annotations

import re
from collections import defaultdict
from fnmatch import fnmatchcase
from pathlib import Path

from tests.guards.all_rows import FAILURES, MUTATIONS, NOWHERE, ROWS

ROOT = Path(__file__).parents[2]
ARGUMENT = (ROOT / "docs" / "correctness.md").read_text()
PROOFS = (ROOT / "tests" / "README.md").read_text()
TABLE = {row: cells for row, *cells in re.findall(r"^\| (F\d+) \| (.*?) \| (.*?) \| (.*?) \|$", PROOFS, re.M)}
TEXTS = {
    path.relative_to(ROOT): path.read_text()
    for folder in ("layers", "statemachines", "functions", "tests")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".json") and path != Path(__file__)
}
WORDS = "\n".join({word for text in TEXTS.values() for word in re.findall(r"\w+", text)})
MAKEFILE = (ROOT / "Makefile").read_text()
UNNUMBERED = "F11", "F14"  # their tests have no number in their names


def _numbers(text: str) -> set[str]:
    """The numbers of failures and guarantees in the names of tests and of their parameters: f1, s1b, ..."""
    names = re.findall(r'(?:def |")(\w+_)', text)
    return {number for name in names for number in re.findall(r"(?<![^\W_])([a-z]\d+b?)(?=_)", name)}


def test_every_known_failure_has_its_row() -> None:
    assert tuple(TABLE) == FAILURES


def test_the_guards_of_a_row_are_those_of_the_catalogue() -> None:
    for row in FAILURES:
        patterns = re.findall(r"`(.*?)`", TABLE[row][2])
        theirs = {each.name for each in ROWS if row in each.failures} | {MUTATIONS.get(row, "")} - {""}
        assert {name for name in theirs if not any(fnmatchcase(name, pattern) for pattern in patterns)} == set(), row
        assert [each for each in patterns if not any(fnmatchcase(name, each) for name in theirs)] == [], row
        assert bool(patterns) != (row in NOWHERE), row


def test_the_folders_of_a_row_are_those_whose_tests_have_its_number() -> None:
    folders = defaultdict(set)
    for path, text in TEXTS.items():
        if path.full_match("tests/**/test_*.py"):
            for number in _numbers(text):
                folders[number.upper()].add(path.parts[1])
    named = {row: TABLE[row][1] for row in FAILURES if row not in UNNUMBERED}
    assert named == {row: ", ".join(sorted(folders[row])) for row in named}


def test_each_name_on_the_page_of_guarantees_is_in_the_code() -> None:
    names = re.findall(r"`([A-Za-z_]+(?:\.[A-Za-z_]+)*)`", ARGUMENT)
    parts = {part for name in names if not name.endswith(".py") for part in name.split(".")}
    assert {part for part in parts if not re.search(rf"(?:\b|_){part}(?:\b|(?<=_))", WORDS)} == set()


def test_each_prefix_of_tests_and_each_pattern_of_guards_has_one() -> None:
    numbers = {number for text in TEXTS.values() for number in _numbers(text)}
    prefixes = set(re.findall(r"`([a-z]\d+b?)_`", ARGUMENT))
    assert prefixes
    assert prefixes - numbers == set()
    patterns = re.findall(r"`([a-z]\d+b?-\*)`", ARGUMENT)
    assert patterns
    assert [each for each in patterns if not any(fnmatchcase(row.name, each) for row in ROWS)] == []


def test_each_command_is_a_target_with_its_variables() -> None:
    for command in re.findall(r"^    make (.*)$", PROOFS, re.MULTILINE):
        target, *given = command.split()
        recipe = MAKEFILE.partition(f"\n{target}: setup")[2].partition("\n\n")[0]
        assert recipe, command
        assert [name for name in (each.partition("=")[0] for each in given) if f"$({name})" not in recipe] == []
