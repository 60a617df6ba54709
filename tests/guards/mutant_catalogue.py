"""The catalogue of known bugs: the change that reintroduces each one, and the tests that catch it.

Each flow has a TOML file. A mutant is a table named after the bug:

    [f05-release-without-condition]
    bug = "..."          # one sentence: what happens, and which project it happened to
    guards = ["..."]     # the tests that must fail, as arguments of pytest
    rows = ["F17"]       # other known failures that it is an example of than the F5 in its name; optional
    file = "..."         # relative to the project's root
    old = '''...'''      # occurs in the file exactly once
    new = '''...'''

Several changes are an array of tables, `[[f05-release-without-condition.change]]`, with file, old and new each.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
FUNCTIONS = FOLDER.parents[1] / "functions"
ROWS = tuple(f"F{number}" for number in range(1, 37))
# An engine of the race tests that is not atomic is no code of this project. Races run on DynamoDB Local, and each has a
# control without the condition, which must admit too many.
NOWHERE = {"F14"}


class Stale(Exception):
    """A mutant no longer applies to the code. The text names the mutant, the file and what to do."""


@dataclass(frozen=True)
class Change:
    """`old` becomes `new`."""

    file: str
    old: str
    new: str

    def applied_to(self, mutant: str, text: str) -> str:
        """Raises Stale unless `old` occurs in the text exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise Stale(
                f"{mutant}: `old` must occur in {self.file} exactly once, but occurs {count} times. "
                f"Update the catalogue; `old` starts with {self.old.strip().splitlines()[0]!r}"
            )
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutant:
    """A known bug and the changes that reintroduce it."""

    name: str
    flow: str
    rows: tuple[str, ...]
    bug: str
    guards: tuple[str, ...]
    changes: tuple[Change, ...]

    def mutated(self, root: Path) -> dict[str, str]:
        """The text of each changed file, by name. Raises Stale."""
        texts: dict[str, str] = {}
        for change in self.changes:
            try:
                before = texts[change.file] if change.file in texts else (root / change.file).read_text()
            except FileNotFoundError:
                raise Stale(f"{self.name}: {change.file} does not exist; update the catalogue") from None
            texts[change.file] = change.applied_to(self.name, before)
        return texts


def load(folder: Path = FOLDER) -> list[Mutant]:
    """Every mutant of the folder's TOML files, in order, and by default of functions/<function>/tests/mutants.toml.

    Raises ValueError for an incomplete table.
    """
    mutants: list[Mutant] = []
    files = {path: path.stem for path in sorted(folder.glob("*.toml"))}
    if folder == FOLDER:
        files |= {path: path.parents[1].name for path in sorted(FUNCTIONS.glob("*/tests/mutants.toml"))}
    for path, flow in files.items():
        mutants += [_read(flow, name, table) for name, table in tomllib.loads(path.read_text()).items()]
    names = [mutant.name for mutant in mutants]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two mutants have the same name: {', '.join(sorted(twice))}; rename one")
    return mutants


def chosen(mutants: Sequence[Mutant], wanted: Iterable[str]) -> list[Mutant]:
    """Select the mutants whose names start with one of these; all without a name. Raises LookupError."""
    wanted = list(wanted)
    for name in wanted:
        if not any(mutant.name.startswith(name) for mutant in mutants):
            raise LookupError(f"no mutant's name starts with {name!r}; list them with --list")
    return [mutant for mutant in mutants if not wanted or mutant.name.startswith(tuple(wanted))]


def _read(flow: str, name: str, table: dict[str, Any]) -> Mutant:
    named = re.match(r"f(\d\d)-", name)
    rows = (*([f"F{int(named[1])}"] if named else []), *table.pop("rows", ()))
    try:
        changes = table.pop("change", None) or [{field: table.pop(field) for field in ("file", "old", "new")}]
        bug, guards = (table.pop(key) for key in ("bug", "guards"))
        mutant = Mutant(name, flow, rows, bug, tuple(guards), tuple(Change(**change) for change in changes))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{flow}.toml: mutant {name!r} must have bug, guards and changes: {error}") from None
    if table or not guards:
        raise ValueError(f"{flow}.toml: mutant {name!r} has no guards, or unknown keys {list(table)}")
    return mutant
