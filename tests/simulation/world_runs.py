"""What tests do with worlds: visit every state, or make the schedules of some seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from tests.simulation import scheduling
from tests.simulation.exploring import explore, story
from tests.simulation.transcript import Program
from tests.simulation.worlds import Violation, World


def first_violation(make: Callable[[], World], faults: int, most_states: int = 300_000) -> tuple[str, str]:
    """The name of the property that breaks first in a small world, and the story of it; or two empty texts.

    Raises:
        RuntimeError: there are more states than this.
    """
    explored = explore(make(), faults, most_states)
    return (explored.violation.name, "\n".join(story(make(), explored))) if explored.violation else ("", "")


def breaks(draw: Callable[[Random], World], seeds: Iterable[int], name: str, times: int) -> bool:
    """Whether at least so many of the random schedules break this property first. No more are made than it takes."""
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
    """The name of the property that breaks first in random schedules, and the seed; or nothing and -1."""
    Program.merges = False
    for seed in seeds:
        random = Random(seed)
        try:
            scheduling.run(draw(random), random)
        except Violation as violation:
            return violation.name, seed
    return "", -1
