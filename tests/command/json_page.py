"""docs/json.md as a schema: what of a command's JSON the page does not have, or states with another type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
_KINDS = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "text",
    type(None): "null",
    list: "list",
    dict: "object",
}
_ELEMENT = "[]"

Path_ = tuple[str, ...]  # keys from the document's root; `[]` is an element of a list


@dataclass(frozen=True)
class Row:
    """A key of the page: its kinds, of a list also those of its elements, and the section that describes an object."""

    kinds: frozenset[str]
    elements: frozenset[str]
    shape: str


@dataclass(frozen=True)
class Section:
    """The keys of a command or shape. `names`: the command, and those that print the same."""

    names: tuple[str, ...]
    rows: dict[Path_, Row]

    def row(self, path: Path_) -> Row | None:
        """The row of a key; a name in braces is any key."""
        found = (row for key, row in self.rows.items() if len(key) == len(path) and all(map(_is, key, path)))
        return self.rows.get(path) or next(found, None)

    def has_below(self, path: Path_) -> bool:
        """Whether the section has keys in the object or list at a path."""
        return any(len(key) > len(path) and all(map(_is, key[: len(path)], path)) for key in self.rows)


def _is(named: str, key: str) -> bool:
    return named == key or (named.startswith("{") and key != _ELEMENT)


@cache
def sections() -> dict[str, Section]:
    """The sections of the page, by the names of commands and shapes."""
    found: dict[str, Section] = {}
    section = Section((), {})
    for line in "\n".join(re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)).splitlines():
        if line and not line.startswith(" "):
            section = Section(tuple(line.split(", ")), {})
            found |= dict.fromkeys(section.names, section)
        elif line:
            section.rows.update(_rows(line))
    return found


def _rows(line: str) -> Iterator[tuple[Path_, Row]]:
    """The keys of a line, such as `queue.first .next: queued?`."""
    keys, _, kind = line.partition(": ")
    row, before = _row(kind.strip()), ""
    for key in keys.split():
        before = before.rpartition(".")[0] + key if key.startswith(".") else key
        yield tuple(part for each in before.split(".") for part in re.findall(r"\[\]|[^\[]+", each)), row


def _row(text: str) -> Row:
    """A type, such as `text or [text]`."""
    kinds, elements, shape = set[str](), set[str](), ""
    for each in text.split(" or "):
        kind = each.strip("[]?")
        of = {"time": {"text"}, "number": {"number", "integer"}}.get(kind, {kind})
        if not of & {*_KINDS.values(), "any"}:
            of, shape = {"object"}, kind
        kinds |= ({"list"} if each.startswith("[") else of) | ({"null"} if each.endswith("?") else set())
        elements |= of
    return Row(frozenset(kinds), frozenset(elements), shape)


def unprinted(name: str, answers: Sequence[Any]) -> list[str]:
    """The keys of a section that none of these answers has."""
    printed = {path for each in answers for path in _paths(each, ())}
    wanted = sections()[name].rows
    return [
        ".".join(key) for key in wanted if not any(len(key) == len(of) and all(map(_is, key, of)) for of in printed)
    ]


def _paths(value: Any, path: Path_) -> Iterator[Path_]:
    yield path
    for key, each in _items(value):
        yield from _paths(each, (*path, key))


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return value.items()
    return [(_ELEMENT, each) for each in value] if isinstance(value, list) else ()


def command_of(arguments: Sequence[str]) -> str:
    """The command that arguments run; empty if the page has none of its name."""
    words = [word for word in arguments if not word.startswith("-")]
    names = (" ".join(words[at : at + length]) for at in range(len(words)) for length in (3, 2, 1))
    return next((name for name in names if name in sections()), "")


def undocumented(name: str, data: Any) -> list[str]:
    """The keys of an answer that the section of its command lacks."""
    return sorted(set(_differences(sections()[name], data, (), name)))


def _differences(section: Section, value: Any, path: Path_, shown: str) -> Iterator[str]:
    row, kind = section.row(path), _KINDS[type(value)]
    if row is not None and "any" in row.kinds:
        return
    if row is None and path and not section.has_below(path):
        in_list = path[-1] == _ELEMENT and (above := section.row(path[:-1]))
        if not in_list:
            yield f"{shown} ({kind}): not on the page"
            return
        row = Row(above.elements, frozenset(), above.shape)  # type: ignore[union-attr]
    if row is not None and kind not in row.kinds:
        yield f"{shown}: {kind} instead of {' or '.join(sorted(row.kinds))}"
    if row is not None and row.shape and kind == "object":
        section, path = sections()[row.shape], ()
    for key, each in _items(value):
        yield from _differences(section, each, (*path, key), f"{shown}.{key}")
