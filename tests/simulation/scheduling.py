"""Random schedules: a seed determines each next event and fault. After the last fault, all work must end.

A seed gives the same schedule after any other schedules.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.worlds import Choice, Violation, World

MOST_STEPS = 400  # in the part of a schedule that has faults
MOST_STEPS_TO_THE_END = 20_000


def run(world: World, random: Random) -> int:
    """Run a world to its end, with some faults; the number of steps.

    Raises:
        Violation: a guarantee does not hold.
    """
    faults = random.choice((0, 1, 1, 2, 3, 5))
    likely = random.choice((0.02, 0.1, 0.3))  # probability that a step is a fault, until there were `faults`
    slow = random.choice((0.0, 0.0, 0.02, 0.1))  # probability that time passes although an actor could continue
    steps = 0
    resumes_at = 0
    while steps < MOST_STEPS:
        choices = world.steps()
        if world.suspended_actor:
            choices = [choice for choice in choices if choice.subject != world.suspended_actor]
            if steps >= resumes_at:
                world.take(Choice("resume"))
                choices = choices or world.steps()  # before time passes
        if world.faults < faults and random.random() < likely:
            if random.random() < 0.15 and world.actors and not world.suspended_actor:
                resumes_at = steps + random.randrange(1, 60)
                world.take(Choice("suspend", random.choice(sorted(world.actors)), is_fault=True))
            else:
                choices = world.possible_faults() or choices
        elif slow and random.random() < slow:
            choices = world.slow_steps() or choices
        choices = choices or world.time_steps()
        if not choices:
            if not world.suspended_actor:
                break
            world.take(Choice("resume"))
            continue
        world.take(choices[0] if len(choices) == 1 else random.choice(choices))
        steps += 1
    return steps + _to_the_end(world, random)


def _to_the_end(world: World, random: Random) -> int:
    """Run a world without further faults until no event is left."""
    world.log("", "no further faults")
    world.take(Choice("resume"))
    for step in range(MOST_STEPS_TO_THE_END):
        choices = world.steps() or world.time_steps()
        if not choices:
            world.check_end()
            return step
        world.take(choices[0] if len(choices) == 1 else random.choice(choices))
    raise Violation("END", f"the schedule does not end: {world.summary()}")


def path(draw: Callable[[Random], World], seed: int) -> tuple[list[Choice], Violation | None]:
    """The choices of a schedule, and the violation at its end, if any."""
    random = Random(seed)
    world, choices = draw(random), []
    take = world.take

    def recording(choice: Choice) -> None:
        choices.append(choice)
        take(choice)

    world.take = recording  # type: ignore[method-assign]
    try:
        run(world, random)
    except Violation as violation:
        return choices, violation
    return choices, None
