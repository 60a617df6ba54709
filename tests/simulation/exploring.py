"""Exhaustive search: visits every state that a world can reach with a bounded number of faults."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.worlds import Choice, Violation, World


@dataclass
class Explored:
    """The result of a search. `path`: the choices that led to the violation."""

    states: int = 0
    steps: int = 0
    ends: int = 0
    violation: Violation | None = None
    path: tuple[Choice, ...] = ()


def explore(start: World, faults: int, most_states: int = 50_000_000) -> Explored:
    """Search depth-first from `start` to the first violation.

    The search stores a hash of 64 bits of each state. With a million states, two of them share a hash, and one is
    missed, with a probability of one in 40 million.

    Raises:
        RuntimeError: there are more states than `most_states`: the search would not be exhaustive.
    """
    explored = Explored()
    seen = {hash(start.key())}
    # The path to each state as a linked list: (choice, path before it).
    stack: list[tuple[World, tuple[Choice, object] | None]] = [(start, None)]
    while stack:
        world, way = stack.pop()
        explored.states += 1
        if explored.states > most_states:
            raise RuntimeError(f"more than {most_states} states")
        choice: Choice | None = None
        try:
            choices = world.steps() or world.time_steps()
            if not choices:
                explored.ends += 1
                world.check_end()
            if world.faults < faults:
                choices = choices + world.possible_faults()
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
