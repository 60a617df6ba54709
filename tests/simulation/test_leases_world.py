"""Leases next to queued requests, in small worlds and random schedules. Without each protection, one of them breaks.

A lead of a caller's clock stands for the time for which another caller's block has run: with 65 s, the other lease of
60 s has expired although its block still runs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slotkeeper.slots import lease_protocol, protocol
from slotkeeper.slots.lease_protocol import LeaseSteps
from slotkeeper.slots.process import Holder, Process
from tests.simulation import slots_world, small_worlds
from tests.simulation.slots_world import Plan, SlotsWorld
from tests.simulation.world_runs import first_broken, first_violation

Patch = pytest.MonkeyPatch
QUICK = [name for name, small in small_worlds.SMALL.items() if small.quick and name.startswith("leases")]


@pytest.mark.parametrize("name", QUICK)
def test_s1c_and_s1_to_s8_hold_in_every_state_with_leases(name: str) -> None:
    small = small_worlds.SMALL[name]
    assert first_violation(small.make, small.faults) == ("", "")


def a_release_without_the_code(patch: Patch) -> None:
    patch.setattr(lease_protocol, "OWN_LEASE", f"({lease_protocol.OWN_LEASE} OR attribute_exists(holders.#me))")


def an_extension_without_the_code(patch: Patch) -> None:
    patch.setattr(lease_protocol, "ONLY_LATER", f"{lease_protocol.ONLY_LATER} OR attribute_exists(holders.#me)")


def a_takeover_of_a_changed_lease(patch: Patch) -> None:
    patch.setattr(lease_protocol, "STILL_EXPIRED", f"({lease_protocol.STILL_EXPIRED} OR attribute_exists(holders))")


def a_lease_expires_at_its_end(patch: Patch) -> None:
    patch.setattr(Holder, "has_expired", lambda self, now: self.until is not None and now >= self.until)


def no_wake_after_a_release(patch: Patch) -> None:
    patch.setattr(LeaseSteps, "_wake", lambda *_: None)


def a_lease_overtakes_a_request(patch: Patch) -> None:
    patch.setattr(protocol, "NOT_REGISTERED", "attribute_exists(process_name)")
    patch.setattr(Process, "first", None)


@pytest.mark.parametrize(
    ("remove", "requests", "leases", "broken"),
    [
        (a_release_without_the_code, "", (0, 65, 0), "S1c"),
        (an_extension_without_the_code, "", (1, 66, 0), "S1c"),
        (a_takeover_of_a_changed_lease, "", (0, 65, 65), "S2"),
        (a_lease_expires_at_its_end, "", (0, 64), "S1c"),
        (no_wake_after_a_release, "a", (0,), "S6"),
        (a_lease_overtakes_a_request, "a", (0, 0), "S8"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_a_protection_of_leases_a_small_world_breaks(
    remove: Callable[[Patch], None], requests: str, leases: tuple[float, ...], broken: str, monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    plan = Plan(tuple(requests), 1, leases=leases, blocks=(30,), janitor_runs=0, starters=1, event_steps=False)
    name, history = first_violation(lambda: SlotsWorld(plan, timeless=True), 0, 60_000)
    assert name == broken, history


def test_blocks_that_run_are_counted_although_their_lease_was_removed(monkeypatch: Patch) -> None:
    """Without the check of each removal, the count of what works alone finds a removal that comes too early."""
    monkeypatch.setattr(SlotsWorld, "_writer", lambda _: None)
    plan = Plan((), 1, leases=(0, 64), blocks=(30,), janitor_runs=0, event_steps=False)
    assert first_violation(lambda: SlotsWorld(plan, timeless=True), 0) == ("", "")
    a_lease_expires_at_its_end(monkeypatch)
    small_worlds.forget()
    name, history = first_violation(lambda: SlotsWorld(plan, timeless=True), 0)
    assert (name, "the weight at work is 2, the limit 1" in history) == ("S1c", True), history


def no_removal_by_anyone(patch: Patch) -> None:
    patch.setattr(Process, "expired_leases", lambda *_: {})


@pytest.mark.parametrize(
    ("remove", "broken"),
    [
        (a_release_without_the_code, ("S1c",)),
        (no_removal_by_anyone, ("S4",)),
        (no_wake_after_a_release, ("S6",)),
        (a_lease_overtakes_a_request, ("S6", "S8")),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_a_protection_of_leases_a_random_schedule_breaks(
    remove: Callable[[Patch], None], broken: tuple[str, ...], monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, seed = first_broken(slots_world.random_world, range(5000))
    assert name in broken, f"seed {seed}"
