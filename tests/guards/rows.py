"""Guards that are no term of an expression, in a row each: how it is removed, and the world or test that must notice.

    Row("s6-no-ring", "A slot is released, and no dispatch follows.", state("Ring", silent), World(of(A, B), 0, "S6"))

A row that removes several protections states that each of them alone is enough.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from tests.simulation.world_runs import Remove
from tests.simulation.worlds import World as Simulated

Draw = Callable[[Random], Simulated]


class World(NamedTuple):
    """A small world in which a guarantee breaks; of several, separated by a space, one of which breaks first."""

    make: Callable[[], Simulated]
    faults: int
    broken: str


class Schedules(NamedTuple):
    """Random schedules, one of which breaks a guarantee first."""

    draw: Draw
    seeds: Iterable[int]
    broken: str


class Row(NamedTuple):
    """A guard.

    Attributes:
        name: begins with the number of a known failure (tests/README.md) or of a guarantee, if it belongs to one.
        bug: what happens without the guard.
        noticed: what must fail: a world, schedules, or a test.
        also: other known failures that it is an example of.
    """

    name: str
    bug: str
    remove: Remove
    noticed: World | Schedules | str
    also: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[str, ...]:
        """The known failures that it puts back."""
        named = re.match(r"f(\d\d)-", self.name)
        return (*([f"F{int(named[1])}"] if named else []), *self.also)


def counts_as_done(owner: Any, name: str) -> Remove:
    """A call is made, and its failure is ignored."""

    def remove(patch: Any) -> None:
        made = getattr(owner, name)
        patch.setattr(owner, name, lambda *given: made(*given) or True)

    return remove


def ignoring_errors(owner: Any, name: str, instead: Any = None) -> Remove:
    """A call is made, and each exception of it is ignored."""

    def remove(patch: Any) -> None:
        made = getattr(owner, name)

        def ignores(*given: Any, **named: Any) -> Any:
            try:
                return made(*given, **named)
            except Exception:
                return instead

        patch.setattr(owner, name, ignores)

    return remove
