"""Searches and schedules for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest

from tests.simulation import scheduling
from tests.simulation.exploring import explore
from tests.simulation.shrinking import history
from tests.simulation.worlds import Violation, World


def first_violation(make: Callable[[], World], faults: int, most_states: int = 300_000) -> tuple[str, str]:
    """The first guarantee that breaks in a small world, and the history up to it; or two empty texts.

    Raises:
        RuntimeError: there are more than `most_states`.
    """
    explored = explore(make(), faults, most_states)
    return (explored.violation.name, "\n".join(history(make(), explored.path))) if explored.violation else ("", "")


Remove = Callable[[pytest.MonkeyPatch], None]


def set_to(owner: Any, name: str, value: Any) -> Remove:
    """Removes a guard by another value of an attribute."""
    return lambda patch: patch.setattr(owner, name, value)


def replaced(module: Any, name: str, old: str, new: str = "") -> Remove:
    """Removes a guard by another part of an expression."""

    def remove(patch: pytest.MonkeyPatch) -> None:
        assert old in getattr(module, name)
        patch.setattr(module, name, getattr(module, name).replace(old, new))

    return remove


def all_of(*removes: Remove) -> Remove:
    """Removes several guards."""

    def remove(patch: pytest.MonkeyPatch) -> None:
        for each in removes:
            each(patch)

    return remove


def breaks(draw: Callable[[Random], World], seeds: Iterable[int], name: str, times: int) -> bool:
    """Whether at least `times` of the random schedules break this guarantee first."""
    for seed in seeds:
        random = Random(seed)
        try:
            scheduling.run(draw(random), random)
        except Violation as violation:
            times -= violation.name == name
        if times <= 0:
            return True
    return False


def first_broken(draw: Callable[[Random], World], seeds: Iterable[int]) -> tuple[str, int]:
    """The first guarantee that breaks in random schedules, and the seed; or an empty text and -1."""
    for seed in seeds:
        random = Random(seed)
        try:
            scheduling.run(draw(random), random)
        except Violation as violation:
            return violation.name, seed
    return "", -1
