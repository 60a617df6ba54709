"""The worlds: those that random schedules are made in, and the small ones that are explored to their end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.simulation import frozen, slots_actors, slots_world, transcript, workflow, worlds
from tests.simulation.slots_world import Plan, SlotsWorld
from tests.simulation.worlds import World


class Small(NamedTuple):
    """A world whose every state is visited.

    Attributes:
        faults: how many there may be on any way through it.
        quick: few enough states for `make test`.
    """

    make: Callable[[], World]
    faults: int
    quick: bool


def _slots(requests: str, limit: int, rounds: int, standing_still: bool) -> Callable[[], World]:
    plan = Plan(tuple(requests), limit=limit, rounds=rounds, standing_still=standing_still)
    return lambda: SlotsWorld(plan, timeless=True)


DRAWN: dict[str, Callable[[Random], World]] = {"slots": slots_world.drawn}

SMALL: dict[str, Small] = {
    "1 request, 1 slot, janitor at any time": Small(_slots("a", 1, 1, True), 1, True),
    "3 requests, 1 slot, no fault": Small(_slots("abc", 1, 0, False), 0, True),
    "3 requests, 2 slots, no fault": Small(_slots("abc", 2, 0, False), 0, True),
    "2 requests, 1 slot, janitor beside those who stand still": Small(_slots("ab", 1, 0, True), 1, False),
    "3 requests, 1 slot": Small(_slots("abc", 1, 0, False), 1, False),
    "3 requests, 2 slots": Small(_slots("abc", 2, 0, False), 1, False),
}

_FORGET: list[Callable[[], None]] = [
    frozen.forget,
    worlds.forget,
    workflow.forget,
    slots_world.forget,
    slots_actors.starter.forget,
    slots_actors.janitor_round.forget,
    slots_actors.janitor_visit.forget,
]
MOST_RECORDS = 1_500_000  # some 2 GB with what hangs on them


def forget() -> None:
    """Drops all that is known of actors and services: for other code, or for memory."""
    transcript.let_go()
    for each in _FORGET:
        each()


def forget_if_much() -> None:
    """Bounds memory between two schedules."""
    if frozen.known() > MOST_RECORDS:
        forget()
