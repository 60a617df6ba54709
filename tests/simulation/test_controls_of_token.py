"""Without one of its guards, a small world of the token lock breaks the guarantee."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from slotkeeper.token import Timing, TokenTable
from slotkeeper.token import item as token_item
from slotkeeper.token import refresh as token_search
from slotkeeper.token.item import TokenItem
from slotkeeper.token.refresh import TokenRefresh
from tests.simulation import token_state, token_world
from tests.simulation.token_state import DEATHS, FREEZES, NO_TOKEN, Plan
from tests.simulation.token_world import TokenWorld
from tests.simulation.world_runs import first_broken, first_violation

Patch = pytest.MonkeyPatch

ON_TIME = (0.0, 0.0, 0.0)


@pytest.mark.parametrize("how", list(token_state.POSTS_OF_A_FAULT))
def test_t1_is_broken_by_a_smaller_bound_of_posts(how: str, monkeypatch: Patch) -> None:
    monkeypatch.setitem(token_state.POSTS_OF_A_FAULT, how, token_state.POSTS_OF_A_FAULT[how] - 1)
    assert _broken(Plan(("live", "live"), clock_leads=ON_TIME[:2], fault_kinds=frozenset({how})), 1)[0] == "T1"


# Controls ----------------------------------------------------------------------------------------------------------


def _broken(plan: Plan, faults: int) -> tuple[str, str]:
    return first_violation(lambda: TokenWorld(plan, timeless=True), faults)


def _acquire_without(patch: Patch, part: str) -> None:
    """`acquire` without this part of its condition."""
    update = TokenTable._update

    def lax(self: TokenTable, name: str, change: str, condition: str, values: dict[str, Any]) -> tuple[bool, TokenItem]:
        lenient = condition.replace(part, "attribute_not_exists(nothing)")
        # DynamoDB refuses a value that is not used.
        used = {name: value for name, value in values.items() if name in lenient or name in change}
        return update(self, name, change, lenient, used)

    patch.setattr(TokenTable, "_update", lax)


def acquire_a_held_lock(patch: Patch) -> None:
    _acquire_without(patch, "attribute_not_exists(refresh_lock)")


def f29_acquire_for_any_stored_token(patch: Patch) -> None:
    _acquire_without(patch, "generation = :generation")


def f36_take_over_a_lock_other_than_the_one_read(patch: Patch) -> None:
    _acquire_without(patch, "refresh_lock.release_code = :code")


def f35_acquire_after_a_refusal(patch: Patch) -> None:
    _acquire_without(patch, "attribute_not_exists(refused_until)")


def f29_store_without_the_lock(patch: Patch) -> None:
    condition = "refresh_lock.release_code = :mine OR attribute_exists(token_name)"
    patch.setattr(token_item, "HELD_CONDITION", condition)


def use_a_token_that_was_not_stored(patch: Patch) -> None:
    store = TokenTable.store
    patch.setattr(TokenTable, "store", lambda *given: (True, store(*given)[1]))


def lease_shorter_than_the_post(patch: Patch) -> None:
    patch.setattr(Timing, "lease", property(lambda self: self.api / 2))


def f30_no_take_over(patch: Patch) -> None:
    take = TokenTable.acquire
    patch.setattr(
        TokenTable, "acquire", lambda self, name, seen, *lock: seen.lock is None and take(self, name, seen, *lock)
    )


def an_own_failure_refuses_all_instances(patch: Patch) -> None:
    def step_back(self: TokenRefresh, code: str, reason: str, _pause: float) -> None:
        self._refuse(code, reason, self._deps.timing.refusal)

    patch.setattr(TokenRefresh, "_unlock_after_own_failure", step_back)


def no_new_lock_after_a_slow_probe(patch: Patch) -> None:
    patch.setattr(token_search, "QUICK_PROBE_SHARE", inf)


NO_PROBE = Plan(probes=False)
DEATH = Plan(fault_kinds=DEATHS, probes=False)
FROZEN = Plan(("live", "live"), clock_leads=ON_TIME[:2], fault_kinds=FREEZES, probes=False)
OWN_FAILURE = Plan(fault_kinds=frozenset({token_state.OWN}), probes=False)
SLOW_PROBE = Plan(("live", "live"), clock_leads=ON_TIME[:2], slow_probes=True)
REFUSED = Plan(("none", "none"), clock_leads=ON_TIME[:2], fault_kinds=frozenset({token_state.REFUSE}), **NO_TOKEN)


@pytest.mark.parametrize(
    ("remove", "plan", "faults", "broken"),
    [
        (acquire_a_held_lock, NO_PROBE, 0, "T1"),
        (f29_acquire_for_any_stored_token, NO_PROBE, 0, "T1"),
        (f36_take_over_a_lock_other_than_the_one_read, DEATH, 1, "T1"),
        (f35_acquire_after_a_refusal, REFUSED, 1, "T1"),
        (f29_store_without_the_lock, FROZEN, 1, "T3"),
        (use_a_token_that_was_not_stored, FROZEN, 1, "T3"),
        (lease_shorter_than_the_post, NO_PROBE, 0, "T1"),
        (f30_no_take_over, DEATH, 1, "T2"),
        (an_own_failure_refuses_all_instances, OWN_FAILURE, 1, "T2"),
        (no_new_lock_after_a_slow_probe, SLOW_PROBE, 0, "T4"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_its_guard_a_small_token_world_breaks(
    remove: Callable[[Patch], None], plan: Plan, faults: int, broken: str, monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, history = _broken(plan, faults)
    assert name == broken, history


def test_without_its_guard_a_random_token_schedule_breaks(monkeypatch: Patch) -> None:
    f29_store_without_the_lock(monkeypatch)
    assert first_broken(token_world.random_world, range(500, 2000))[0] == "T3"
