"""Exhaustive search: every state that a world can reach, with a bounded number of faults, each visited once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.worlds import Choice, Violation, World


@dataclass
class Explored:
    """What a search saw. `path`: the choices that led to the violation."""

    states: int = 0
    steps: int = 0
    ends: int = 0
    violation: Violation | None = None
    path: tuple[Choice, ...] = ()


def explore(
    start: World, faults: int, most_states: int = 50_000_000, progress: Callable[[Explored], None] | None = None
) -> Explored:
    """Depth first from `start`; stops at the first violation.

    Of the states that were seen only hashes are kept, 64 bits each: two of a million states share one, and one of them
    is left out, with a probability of one in 40 million.

    Raises:
        RuntimeError: there are more states than `most_states`: the search would not be exhaustive.
    """
    explored = Explored()
    seen = {hash(start.key())}
    # The way here as a linked list: (choice, the way before it).
    stack: list[tuple[World, tuple[Choice, object] | None]] = [(start, None)]
    while stack:
        world, way = stack.pop()
        explored.states += 1
        if progress is not None and explored.states % 20_000 == 0:
            progress(explored)
        if explored.states > most_states:
            raise RuntimeError(f"more than {most_states} states")
        choice: Choice | None = None
        try:
            choices = world.steps() or world.time_steps()
            if not choices:
                explored.ends += 1
                world.check_end()
            if world.faults < faults:
                choices = choices + world.mishaps()
            for choice in choices:
                following = world.copy()
                following.take(choice)
                explored.steps += 1
                key = hash(following.key())
                if key not in seen:
                    seen.add(key)
                    stack.append((following, (choice, way)))
        except Violation as violation:
            explored.violation = violation
            explored.path = (*_path(way), choice) if choice is not None else _path(way)
            return explored
    return explored


def _path(way: object) -> tuple[Choice, ...]:
    choices = []
    while way is not None:
        choice, way = way  # type: ignore[misc]
        choices.append(choice)
    return tuple(reversed(choices))


def story(world: World, explored: Explored) -> list[str]:
    """The way from `world` to the violation that was found, told."""
    lines = [world.summary()]
    world.tell = lines.append
    try:
        for choice in explored.path:
            world.take(choice)
            lines.append(f"{'':>22} {world.summary()}")
    except Violation:
        pass  # it is the last one
    return [*lines, f"broken: {explored.violation}"]
