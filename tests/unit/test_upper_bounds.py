"""No test has an upper bound of real seconds, which a slow machine would exceed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [path for folder in ("tests", "functions") for path in (ROOT / folder).rglob("test_*.py")]
REAL_CLOCKS = {"monotonic", "perf_counter", "process_time", "time"}


def _is_elapsed(node: ast.expr) -> bool:
    """An expression such as `time.monotonic() - began`."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and isinstance(node.left, ast.Call)
        and isinstance(node.left.func, ast.Attribute)
        and node.left.func.attr in REAL_CLOCKS
        and ast.unparse(node.left.func.value) == "time"
    )


def _bounds_of(code: str) -> Iterator[int]:
    """The lines that compare elapsed real seconds with an upper bound."""
    tree = ast.parse(code)
    named = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_elapsed(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for compared in (node for node in ast.walk(tree) if isinstance(node, ast.Compare)):
        sides = [compared.left, *compared.comparators]
        for left, sign, right in zip(sides, compared.ops, compared.comparators, strict=False):
            below = {ast.Lt: left, ast.LtE: left, ast.Gt: right, ast.GtE: right}.get(type(sign))
            if below is not None and (_is_elapsed(below) or (isinstance(below, ast.Name) and below.id in named)):
                yield compared.lineno


def test_no_test_has_an_upper_bound_in_real_seconds() -> None:
    assert [f"{file}:{line}" for file in FILES for line in _bounds_of(file.read_text())] == []


@pytest.mark.parametrize(
    "bound", ["time.monotonic() - began < 5", "0.8 < time.time() - began < 3", "5 > time.monotonic() - a", "took <= 2"]
)
def test_an_upper_bound_is_found(bound: str) -> None:
    assert list(_bounds_of(f"took = time.perf_counter() - began\nassert {bound}"))


@pytest.mark.parametrize("bound", ["time.monotonic() - began >= 0.2", "waited > 3", "began <= time.time()"])
def test_a_lower_bound_and_an_order_are_none(bound: str) -> None:
    assert not list(_bounds_of(f"waited = time.monotonic() - began\nassert {bound}"))
