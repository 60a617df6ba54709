"""A shorter path to a violation: choices are left out as long as the same guarantee breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.worlds import Choice, Violation, World

MOST_REPEATS = 400  # of a path, to bound the time
MOST_STEPS_AFTER = 500  # the path, until no event is left


def shrink(make: Callable[[], World], path: Sequence[Choice], name: str) -> tuple[Choice, ...]:
    """A path to a violation of the guarantee `name`, from which no part can be left out that was tried.

    Parts of half the path are left out first, then smaller ones, in the end single choices.
    """
    shortest = repeat(make(), path, name) or tuple(path)
    size, repeats = max(1, len(shortest) // 2), 0
    while repeats < MOST_REPEATS:
        at, before = 0, len(shortest)
        while at < len(shortest) and repeats < MOST_REPEATS:
            repeats += 1
            shorter = repeat(make(), (*shortest[:at], *shortest[at + size :]), name)
            if shorter is not None and len(shorter) < len(shortest):
                shortest = shorter
            else:
                at += size
        if size == 1 and len(shortest) == before:
            break
        size = max(1, size // 2)
    return shortest


def repeat(world: World, path: Sequence[Choice], name: str) -> tuple[Choice, ...] | None:
    """The choices up to a violation of the guarantee; None if none follows.

    A choice that is not possible is left out. After the path the first possible event happens, until none is left.
    """
    taken: list[Choice] = []

    def take(choice: Choice) -> None:
        taken.append(choice)
        world.take(choice)

    try:
        for choice in path:
            if choice in world.possible():
                take(choice)
        for _ in range(MOST_STEPS_AFTER):
            choices = world.steps() or world.time_steps()
            if not choices:
                world.check_end()
                return None
            take(choices[0])
    except Violation as violation:
        return tuple(taken) if violation.name == name else None
    return None


def history(world: World, path: Sequence[Choice]) -> list[str]:
    """The events of a path and the states after them, as lines, up to a violation."""
    lines = [f"{'':>28} {world.summary()}"]
    world.emit = lines.append
    try:
        for choice in path:
            before = world.summary()
            world.take(choice)
            if world.summary() != before:
                lines.append(f"{'':>28} {world.summary()}")
        if not (world.steps() or world.time_steps()):
            world.check_end()
    except Violation as violation:
        lines.append(f"broken: {violation}")
    return lines


def shrunk_history(make: Callable[[], World], path: Sequence[Choice], name: str) -> list[str]:
    """The history of a shorter path to the same violation."""
    shorter = shrink(make, path, name)
    return [f"{len(shorter)} of {len(path)} events lead to the same violation:", *history(make(), shorter)]
