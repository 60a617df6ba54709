"""Ways to remove a guard: another piece of code in a function, another state of the workflow, another template.

Each names a place and what it contains. If the place is gone or contains something else, it raises Gone.
More of them, such as `set_to` and `replaced`, are in tests/simulation/world_runs.py.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import textwrap
from collections.abc import Callable
from functools import cached_property
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.simulation.world_runs import Remove
from tests.template.parsing import parsed_template
from tests.workflow.definition import states
from tests.workflow.interpreter import STATES, State

Patch = pytest.MonkeyPatch
ROOT = Path(__file__).parents[2]


class Gone(Exception):
    """The place that a row changes does not exist any more."""


def code(function: Any, old: str, new: str = "pass") -> Remove:
    """Another expression, or other statements, in a function. `old` occurs in it once; layout does not matter."""

    def remove(patch: Patch) -> None:
        real = _function(function)
        tree = ast.parse(textwrap.dedent(inspect.getsource(real)))
        known = _names(tree) | real.__globals__.keys() | vars(builtins).keys() | set(real.__code__.co_freevars)
        made = ast.parse(textwrap.dedent(new))
        if unknown := _names(made, ast.Load) - _names(made, ast.Store) - known:
            raise Gone(f"{real.__qualname__} does not know {', '.join(unknown)}: update the row")
        definition = tree.body[0]
        assert isinstance(definition, ast.FunctionDef)
        definition.decorator_list = []
        if real.__code__.co_freevars:  # such as __class__ for super()
            outer = ast.parse(f"def outer({', '.join(real.__code__.co_freevars)}): pass")
            outer.body[0].body = tree.body  # type: ignore[attr-defined]
            tree = outer
        patch.setattr(real, "__code__", _code_of(real.__name__, _edited(tree, old, new, real.__qualname__)))

    return remove


def _names(tree: ast.AST, use: type[ast.expr_context] = ast.expr_context) -> set[str]:
    """The names of variables that code reads or sets, and of its parameters."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, use)}
    return names | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _function(given: Any) -> FunctionType:
    if isinstance(given, property):
        given = given.fget
    if isinstance(given, cached_property):
        given = given.func
    found = inspect.unwrap(getattr(given, "__func__", given))
    assert isinstance(found, FunctionType)
    return found


def _code_of(name: str, tree: ast.AST) -> CodeType:
    """The code of the function of this name in a module with it alone, or in the only function of such a module."""
    within: Any = compile(ast.fix_missing_locations(tree), "<edited>", "exec")  # type: ignore[call-overload]
    while within.co_name != name:
        within = next(each for each in within.co_consts if isinstance(each, CodeType))
    found: CodeType = within
    return found


def file(path: str, old: str, new: str = "pass") -> Remove:
    """The same in a file that a test loads itself, such as the app.py of a function."""
    assert (ROOT / path).exists(), f"{path} does not exist"

    def remove(patch: Patch) -> None:
        get_code = SourceFileLoader.get_code
        tree = _edited(ast.parse((ROOT / path).read_text()), old, new, path)
        changed = compile(ast.fix_missing_locations(tree), path, "exec")

        def edited(self: SourceFileLoader, name: str) -> CodeType | None:
            return changed if Path(self.path) == ROOT / path else get_code(self, name)

        patch.setattr(SourceFileLoader, "get_code", edited)

    return remove


class _Edit(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self.places = 0
        self._old, self._new = ast.parse(textwrap.dedent(old)).body, textwrap.dedent(new)
        first = self._old[0]
        self._expression = first.value if len(self._old) == 1 and isinstance(first, ast.Expr) else None
        self._is_statement = self._expression is None or self._new.startswith(("pass", "return"))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        node = super().generic_visit(node)
        if not self._is_statement and self._expression and ast.dump(node) == ast.dump(self._expression):
            self.places += 1
            return ast.parse(self._new, mode="eval").body
        for name in ("body", "orelse", "finalbody") if self._is_statement else ():
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, self._block(block))
        return node

    def _block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        size, wanted = len(self._old), [ast.dump(each) for each in self._old]
        for at in range(len(block) - size + 1):
            if [ast.dump(each) for each in block[at : at + size]] == wanted:
                self.places += 1
                return [*block[:at], *ast.parse(self._new).body, *block[at + size :]]
        return block


def _edited[T: ast.AST](tree: T, old: str, new: str, place: str) -> T:
    edit = _Edit(old, new)
    edit.visit(tree)
    if edit.places != 1:
        raise Gone(f"{place} has {edit.places} places with `{old.strip()}` instead of one: update the row")
    return tree


def state(name: str, change: Callable[[dict[str, Any]], Any]) -> Remove:
    """Another definition of a state of the workflow, for the simulation and for the tests of the definition."""

    def remove(patch: Patch) -> None:
        if name not in states():
            raise Gone(f"the workflow has no state {name}: update the row")
        fields, before = states()[name], copy.deepcopy(states()[name])
        changed = copy.deepcopy(before)
        change(changed)
        if changed == before:
            raise Gone(f"the change of {name} changes nothing: update the row")
        for field in before.keys() - changed.keys():
            patch.delitem(fields, field)
        for field, value in changed.items():
            patch.setitem(fields, field, value)
        patch.setitem(STATES, name, State(fields))

    return remove


def text(old: str, new: str = "") -> Callable[[dict[str, Any]], None]:
    """A change of a state: another part of one of its expressions."""

    def change(fields: dict[str, Any]) -> None:
        places = [place for place in _texts(fields) if old in place[0][place[1]]]
        if len(places) != 1:
            raise Gone(f"{len(places)} texts of the state contain {old!r}, instead of one: update the row")
        ((container, key),) = places
        container[key] = container[key].replace(old, new)

    return change


def _texts(node: Any) -> Any:
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if isinstance(value, str):
            yield node, key
        yield from _texts(value)


def template(path: str, old: Any, new: Any) -> Remove:
    """Another value in the template, at a path with dots."""

    def remove(patch: Patch) -> None:
        node: Any = parsed_template()
        *parts, last = path.split(".")
        try:
            for part in parts:
                node = node[int(part) if isinstance(node, list) else part]
            found = node[last]
        except (KeyError, IndexError) as error:
            raise Gone(f"the template has no {path}: update the row") from error
        if found != old:
            raise Gone(f"{path} of the template is {found!r}, not {old!r}: update the row")
        patch.setitem(node, last, new)

    return remove
