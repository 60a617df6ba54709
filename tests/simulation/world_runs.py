"""Searches and schedules for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from tests.simulation import scheduling
from tests.simulation.exploring import explore, history
from tests.simulation.transcript import Program
from tests.simulation.worlds import Violation, World


def first_violation(make: Callable[[], World], faults: int, most_states: int = 300_000) -> tuple[str, str]:
    """The first guarantee that breaks in a small world, and the history up to it; or two empty texts.

    Raises:
        RuntimeError: there are more than `most_states`.
    """
    explored = explore(make(), faults, most_states)
    return (explored.violation.name, "\n".join(history(make(), explored))) if explored.violation else ("", "")


def breaks(draw: Callable[[Random], World], seeds: Iterable[int], name: str, times: int) -> bool:
    """Whether at least `times` of the random schedules break this guarantee first."""
    Program.merges = False
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
    Program.merges = False
    for seed in seeds:
        random = Random(seed)
        try:
            scheduling.run(draw(random), random)
        except Violation as violation:
            return violation.name, seed
    return "", -1
