"""T1 to T4 hold in every order of events, and what guards them is needed: without it the same worlds find the bug."""

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
from tests.simulation import small_worlds, token_world
from tests.simulation.token_world import DEATHS, NO_TOKEN, STANDING_STILL, Plan, TokenWorld
from tests.simulation.transcript import Program
from tests.simulation.world_runs import first_broken, first_violation

Patch = pytest.MonkeyPatch
QUICK = [name for name, small in small_worlds.SMALL.items() if small.quick and name.startswith("token")]
ON_TIME = (0.0, 0.0, 0.0)


@pytest.mark.parametrize("name", QUICK)
def test_t1_to_t4_hold_in_every_state_of(name: str) -> None:
    small = small_worlds.SMALL[name]
    assert first_violation(small.make, small.faults) == ("", "")


def test_t1_to_t4_hold_in_random_schedules() -> None:
    assert first_broken(token_world.drawn, range(200)) == ("", -1)


def test_token_histories_that_are_taken_for_one_go_on_alike(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Program, "merged", [])
    small = small_worlds.SMALL["token, 3 clients, clocks apart, one dies"]
    first_violation(small.make, small.faults)
    assert Program.merged
    for history, known in Program.merged[:: max(1, len(Program.merged) // 300)]:
        assert history.behaves_as(known), (history.answers, known.answers)


@pytest.mark.parametrize("how", list(token_world.POSTS_OF_A_FAULT))
def test_t1_no_smaller_bound_would_hold(how: str, monkeypatch: Patch) -> None:
    monkeypatch.setitem(token_world.POSTS_OF_A_FAULT, how, token_world.POSTS_OF_A_FAULT[how] - 1)
    assert _broken(Plan(("live", "live"), aheads=ON_TIME[:2], hows=frozenset({how})), 1)[0] == "T1"


# Controls ----------------------------------------------------------------------------------------------------------


def _broken(plan: Plan, faults: int) -> tuple[str, str]:
    return first_violation(lambda: TokenWorld(plan, timeless=True), faults)


def _take_without(part: str, instead: str = "attribute_not_exists(nothing)") -> Callable[[Patch], None]:
    """Another condition of `take`."""
    update = TokenTable._update

    def lax(self: TokenTable, name: str, change: str, condition: str, values: dict[str, Any]) -> tuple[bool, TokenItem]:
        lenient = condition.replace(part, instead)
        # DynamoDB refuses a value that is not used.
        used = {name: value for name, value in values.items() if name in lenient or name in change}
        return update(self, name, change, lenient, used)

    return lambda patch: patch.setattr(TokenTable, "_update", lax)


def take_a_lock_that_is_held(patch: Patch) -> None:
    _take_without("attribute_not_exists(refresh_lock)")(patch)


def f29_take_whatever_token_is_stored(patch: Patch) -> None:
    _take_without("generation = :generation")(patch)


def f36_take_over_another_lock_than_the_one_seen(patch: Patch) -> None:
    _take_without("refresh_lock.release_code = :code")(patch)


def f35_ask_again_after_a_refusal(patch: Patch) -> None:
    _take_without("attribute_not_exists(refused_until)")(patch)


def f29_store_without_ones_own_lock(patch: Patch) -> None:
    condition = "refresh_lock.release_code = :mine OR attribute_exists(token_name)"
    patch.setattr(token_item, "HELD_CONDITION", condition)


def use_a_token_that_was_not_stored(patch: Patch) -> None:
    store = TokenTable.store
    patch.setattr(TokenTable, "store", lambda *given: (True, store(*given)[1]))


def lease_shorter_than_the_post(patch: Patch) -> None:
    patch.setattr(Timing, "lease", property(lambda self: self.api / 2))


def f30_nobody_takes_over(patch: Patch) -> None:
    take = TokenTable.acquire
    patch.setattr(
        TokenTable, "acquire", lambda self, name, seen, *lock: seen.lock is None and take(self, name, seen, *lock)
    )


def a_failure_of_ones_own_refuses_everybody(patch: Patch) -> None:
    def step_back(self: TokenRefresh, code: str, reason: str, _pause: float) -> None:
        self._refuse(code, reason, self._deps.timing.refusal)

    patch.setattr(TokenRefresh, "_unlock_after_own_failure", step_back)


def no_lock_anew_after_a_slow_probe(patch: Patch) -> None:
    patch.setattr(token_search, "QUICK_PROBE_SHARE", inf)


UNASKED = Plan(probes=False)
DEATH = Plan(hows=DEATHS, probes=False)
STILL = Plan(("live", "live"), aheads=ON_TIME[:2], hows=STANDING_STILL, probes=False)
OWN_FAILURE = Plan(hows=frozenset({token_world.OWN}), probes=False)
SLOW_PROBE = Plan(("live", "live"), aheads=ON_TIME[:2], slow_probes=True)
REFUSED = Plan(("none", "none"), aheads=ON_TIME[:2], hows=frozenset({token_world.REFUSE}), **NO_TOKEN)


@pytest.mark.parametrize(
    ("remove", "plan", "faults", "broken"),
    [
        (take_a_lock_that_is_held, UNASKED, 0, "T1"),
        (f29_take_whatever_token_is_stored, UNASKED, 0, "T1"),
        (f36_take_over_another_lock_than_the_one_seen, DEATH, 1, "T1"),
        (f35_ask_again_after_a_refusal, REFUSED, 1, "T1"),
        (f29_store_without_ones_own_lock, STILL, 1, "T3"),
        (use_a_token_that_was_not_stored, STILL, 1, "T3"),
        (lease_shorter_than_the_post, UNASKED, 0, "T1"),
        (f30_nobody_takes_over, DEATH, 1, "T2"),
        (a_failure_of_ones_own_refuses_everybody, OWN_FAILURE, 1, "T2"),
        (no_lock_anew_after_a_slow_probe, SLOW_PROBE, 0, "T4"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_its_guard_a_small_token_world_breaks(
    remove: Callable[[Patch], None], plan: Plan, faults: int, broken: str, monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, story = _broken(plan, faults)
    assert name == broken, story
    assert story.splitlines()[-1].startswith(f"broken: {broken}")


@pytest.mark.parametrize(
    ("remove", "broken"),
    [
        (take_a_lock_that_is_held, ("T1",)),
        (f29_take_whatever_token_is_stored, ("T1",)),
        (f29_store_without_ones_own_lock, ("T3",)),
        (use_a_token_that_was_not_stored, ("T3",)),
        (lease_shorter_than_the_post, ("T1",)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_its_guard_a_random_token_schedule_breaks(
    remove: Callable[[Patch], None], broken: tuple[str, ...], monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, seed = first_broken(token_world.drawn, range(2000))
    assert name in broken, f"seed {seed}"
