"""The catalogue: known bugs, each as the change that puts it back, and the tests that keep it out.

A TOML file a flow. A mutant is a table whose name says the bug:

    [f05-release-without-condition]
    rows = ["F5"]        # of the list of known failures; none for what only the protocol's model has found
    bug = "..."          # one sentence: what happens, and who it happened to
    guards = ["..."]     # the tests that must go red, as pytest's own arguments
    [[f05-release-without-condition.change]]
    file = "..."         # from the project's root
    old = '''...'''      # stands in the file exactly once
    new = '''...'''

`nowhere.toml` names the rows that no change of our code could bring back, and why.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
NOWHERE = "nowhere.toml"
ROWS = tuple(f"F{number}" for number in range(1, 37))


class Stale(Exception):
    """A mutant does not fit the code any more; the text names it, the file and what to do."""


@dataclass(frozen=True)
class Change:
    """`old` becomes `new`."""

    file: str
    old: str
    new: str

    def applied_to(self, mutant: str, text: str) -> str:
        """Raises Stale unless `old` stands in the text exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise Stale(
                f"{mutant}: `old` must stand in {self.file} exactly once, and stands there {count} times. "
                f"Bring the catalogue up to date; it begins with {self.old.strip().splitlines()[0]!r}"
            )
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutant:
    """A known bug, ready to be put back."""

    name: str
    flow: str
    rows: tuple[str, ...]
    bug: str
    guards: tuple[str, ...]
    changes: tuple[Change, ...]

    def mutated(self, root: Path) -> dict[str, str]:
        """The text of each changed file, by its name. Raises Stale."""
        texts: dict[str, str] = {}
        for change in self.changes:
            try:
                before = texts[change.file] if change.file in texts else (root / change.file).read_text()
            except FileNotFoundError:
                raise Stale(f"{self.name}: there is no file {change.file}") from None
            texts[change.file] = change.applied_to(self.name, before)
        return texts


def load(folder: Path = FOLDER) -> list[Mutant]:
    """Every mutant of the folder's TOML files, in their order. Raises ValueError for a table that is none."""
    mutants: list[Mutant] = []
    for path in sorted(folder.glob("*.toml")):
        if path.name != NOWHERE:
            mutants += [_read(path.stem, name, table) for name, table in tomllib.loads(path.read_text()).items()]
    names = [mutant.name for mutant in mutants]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two mutants have the same name: {', '.join(sorted(twice))}")
    return mutants


def nowhere(folder: Path = FOLDER) -> dict[str, str]:
    """The rows without a mutant, and the reason of each."""
    reasons: dict[str, str] = tomllib.loads((folder / NOWHERE).read_text())
    return reasons


def chosen(mutants: Sequence[Mutant], wanted: Iterable[str]) -> list[Mutant]:
    """The mutants whose names begin with one of these, or all of them. Raises LookupError for a name of none."""
    wanted = list(wanted)
    for name in wanted:
        if not any(mutant.name.startswith(name) for mutant in mutants):
            raise LookupError(f"no mutant's name begins with {name!r}; --list shows all of them")
    return [mutant for mutant in mutants if not wanted or mutant.name.startswith(tuple(wanted))]


def _read(flow: str, name: str, table: dict[str, Any]) -> Mutant:
    try:
        changes = tuple(Change(**change) for change in table.pop("change"))
        rows, bug, guards = (table.pop(key) for key in ("rows", "bug", "guards"))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{flow}.toml: mutant {name!r} must have rows, bug, guards and changes: {error}") from None
    if table or not guards or not changes:
        raise ValueError(f"{flow}.toml: mutant {name!r} has no guards, no changes, or what is neither: {list(table)}")
    return Mutant(name, flow, tuple(rows), bug, tuple(guards), changes)
