"""S11 holds in random schedules whose clocks differ. Without one of its guards, one of them breaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slotkeeper.slots import rate
from slotkeeper.slots.process import Process
from slotkeeper.slots.rate import Rate
from tests.simulation import slots_world
from tests.simulation.world_runs import breaks, first_broken

Patch = pytest.MonkeyPatch


def test_s11_and_all_others_hold_in_random_schedules_with_a_rate() -> None:
    assert first_broken(slots_world.random_world_with_rate, range(2000, 2060)) == ("", -1)


def no_check_before_the_write(patch: Patch) -> None:
    patch.setattr(Process, "is_due", lambda *_: True)


def a_write_without_a_read_ignores_the_rate(patch: Patch) -> None:
    patch.setattr(rate, "NO_RATE", "attribute_exists(process_name)")


def another_start_after_the_read_is_ignored(patch: Patch) -> None:
    patch.setattr(rate, "SAME_START", "rate = :rate AND next_start >= :seen_start")


def an_interval_that_is_too_short(patch: Patch) -> None:
    patch.setattr(Rate, "interval", property(lambda self: 800 * self.seconds // self.count))


@pytest.mark.parametrize(
    "remove",
    [
        no_check_before_the_write,
        a_write_without_a_read_ignores_the_rate,
        another_start_after_the_read_is_ignored,
        an_interval_that_is_too_short,
    ],
)
def test_without_a_guard_more_start_than_the_rate_allows(remove: Callable[[Patch], None], monkeypatch: Patch) -> None:
    remove(monkeypatch)
    assert breaks(slots_world.random_world_with_rate, range(400), "S11", 1)
