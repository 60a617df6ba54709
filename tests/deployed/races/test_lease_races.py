"""Threads race for leases on DynamoDB Local, with clocks that differ by up to the skew. Every write is checked.

Callers hold, extend, overrun and abandon leases, and remove expired ones. conftest describes longer races.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from slotkeeper.slots import lease_protocol
from tests.deployed.races.client_processes import are_found
from tests.deployed.races.lease_races import LeaseCrowd, LeaseOutcome

MIN_CYCLES = 8  # of each thread in a short race
ROUNDS = 20  # on a busy machine fewer races are contended
HELD = f"({lease_protocol.OWN_LEASE} OR attribute_exists(holders.#me))"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "limit" in metafunc.fixturenames:
        is_long = metafunc.config.getoption("seconds", None)
        metafunc.parametrize("limit", [1, 10, 100] if is_long else [1, 10])


def _race(request: pytest.FixtureRequest, crowd: LeaseCrowd, limit: int, **how: Any) -> LeaseOutcome:
    """A short race, or a long one that prints its figures."""
    seconds = request.config.getoption("seconds", None)
    outcome = crowd.race(limit, seconds or 0.0, 0 if seconds else MIN_CYCLES, **how)
    if seconds:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n  leases, limit {limit}: {outcome.figures}, {len(outcome.judge.faults)} faults")
    return outcome


def test_s1c_s2_blocks_within_their_leases_never_exceed_the_limit(
    request: pytest.FixtureRequest, lease_crowd: LeaseCrowd, limit: int
) -> None:
    for _ in range(ROUNDS):
        outcome = _race(request, lease_crowd, limit, heaviest=min(3, limit))
        assert not outcome.judge.faults, outcome.judge.summary()
        figures = outcome.figures
        if min(figures.grants, figures.removals, figures.extensions, figures.lost_answers, figures.lost_leases) > 0:
            return
    pytest.fail(f"none of {ROUNDS} races was contended, so nothing was checked; the last: {outcome.figures}")


def test_control_a_race_of_leases_without_several_conditions_has_the_fault_of_each(lease_crowd: LeaseCrowd) -> None:
    """Each fault has one cause only, so one race shows them all."""
    faults = {
        "a late release": ("OWN_LEASE", lease_protocol.OWN_LEASE, HELD),
        "was moved back": ("ONLY_LATER", "<", "<>"),
    }
    assert _has_faults(faults, lease_crowd, changes=tuple(faults.values()))


def test_control_a_race_whose_leases_are_removed_although_they_have_changed_has_the_fault(
    lease_crowd: LeaseCrowd,
) -> None:
    change = ("EXPIRE_CONDITION", "holders.#n.#until = :until", "holders.#n.#until >= :until")
    assert _has_faults(["before others may remove it"], lease_crowd, grant_changes=(change,))


def test_control_a_race_whose_leases_are_removed_before_their_end_has_the_fault(lease_crowd: LeaseCrowd) -> None:
    assert _has_faults(["before others may remove it"], lease_crowd, skew=-3)


def _has_faults(faults: Collection[str], crowd: LeaseCrowd, **how: Any) -> bool:
    return are_found(faults, ROUNDS, lambda: crowd.race(2, 0.0, MIN_CYCLES, **how).judge.faults)
