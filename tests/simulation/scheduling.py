"""Random schedules: who goes next, and what goes wrong, drawn from a seed; then no more faults, and everything ends.

The same seed is the same schedule, whatever else has run before it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.transcript import let_go
from tests.simulation.worlds import Choice, Violation, World

MOST_STEPS = 400  # of a schedule, before its faults are over
MOST_STEPS_TO_THE_END = 20_000


def run(world: World, random: Random) -> int:
    """Runs a world to its end, with some faults on the way; how many steps it took.

    Raises:
        Violation: a property did not hold.
    """
    faults = random.choice((0, 1, 1, 2, 3, 5))
    likely = random.choice((0.02, 0.1, 0.3))  # that a step is a fault, as long as there may be more of them
    slow = random.choice((0.0, 0.0, 0.02, 0.1))  # that time passes although there is something to do
    steps = 0
    thaws = 0
    while steps < MOST_STEPS:
        choices = world.steps()
        if world.stands_still:
            choices = [choice for choice in choices if choice.who != world.stands_still]
            if steps >= thaws:
                world.go_on()
        if world.faults < faults and random.random() < likely:
            if random.random() < 0.15 and world.actors and not world.stands_still:
                thaws = steps + random.randrange(1, 60)
                world.hold_up(random.choice(sorted(world.actors)))
            else:
                choices = world.mishaps() or choices
        elif slow and random.random() < slow:
            choices = world.slowness() or choices
        choices = choices or world.time_steps()
        if not choices:
            if not world.stands_still:
                break
            world.go_on()
            continue
        world.take(choices[0] if len(choices) == 1 else random.choice(choices))
        steps += 1
    steps += _to_the_end(world, random)
    let_go()
    return steps


def _to_the_end(world: World, random: Random) -> int:
    """Runs a world on without faults until nothing is left to happen."""
    world.say("", "no more faults from here on")
    world.go_on()
    for step in range(MOST_STEPS_TO_THE_END):
        choices = world.steps() or world.time_steps()
        if not choices:
            world.check_end()
            return step
        world.take(choices[0] if len(choices) == 1 else random.choice(choices))
    raise Violation("END", f"it does not end: {world.summary()}")


def replay(world: World, random: Random, tell: Callable[[str], None]) -> None:
    """Runs a schedule again and tells its story, a line for each event and the state after it.

    Raises:
        Violation: as `run`.
    """
    world.tell = tell
    lines = [world.summary()]
    tell(f"{'':>28} {lines[0]}")
    taken = world.take

    def take(choice: Choice) -> None:
        taken(choice)
        if world.summary() != lines[-1]:
            lines.append(world.summary())
            tell(f"{'':>28} {lines[-1]}")

    world.take = take  # type: ignore[method-assign]
    run(world, random)
