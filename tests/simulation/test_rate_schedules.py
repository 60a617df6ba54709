"""S11 holds in random schedules whose clocks differ. Without one of its guards, one of them breaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slotkeeper.slots import grants, plan, rate
from slotkeeper.slots.rate import Rate
from tests.simulation import random_slots
from tests.simulation.world_runs import breaks, first_broken

Patch = pytest.MonkeyPatch


def test_s11_and_all_others_hold_in_random_schedules_with_a_rate() -> None:
    assert first_broken(random_slots.random_world_with_rate, range(2000, 2100)) == ("", -1)


def no_check_before_the_write(patch: Patch) -> None:
    patch.setattr(plan, "milliseconds", lambda _: 10**15)


def another_start_after_the_read_is_ignored(patch: Patch) -> None:
    for module in (rate, grants):
        patch.setattr(module, "SAME_START", "rate = :rate AND next_start >= :seen_start")
    patch.setattr(grants, "GRANT_CONDITION", grants.GRANT_CONDITION.replace("grants = :seen", "grants >= :seen"))


def an_interval_that_is_too_short(patch: Patch) -> None:
    patch.setattr(Rate, "interval", property(lambda self: 800 * self.seconds // self.count))


@pytest.mark.parametrize(
    "remove",
    [
        no_check_before_the_write,
        another_start_after_the_read_is_ignored,
        an_interval_that_is_too_short,
    ],
)
def test_without_a_guard_more_start_than_the_rate_allows(remove: Callable[[Patch], None], monkeypatch: Patch) -> None:
    remove(monkeypatch)
    assert breaks(random_slots.random_world_with_rate, range(400), "S11", 1)
