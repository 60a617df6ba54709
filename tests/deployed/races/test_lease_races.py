"""Threads race for leases on DynamoDB Local, with clocks that differ by up to the skew. Every write is checked.

Callers hold, extend, overrun and abandon leases, and remove expired ones. conftest describes longer races.
"""

from __future__ import annotations

import pytest

from slotkeeper.slots import lease_protocol
from tests.deployed.races.lease_judge import LeaseJudge
from tests.deployed.races.lease_race import LeaseCrowd

MIN_CYCLES = 8  # of each thread in a short race
ROUNDS = 20  # on a busy machine fewer races are contended
HELD = f"({lease_protocol.OWN_LEASE} OR attribute_exists(holders.#me))"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "limit" in metafunc.fixturenames:
        is_long = metafunc.config.getoption("seconds", None)
        metafunc.parametrize("limit", [1, 10, 100] if is_long else [1, 10])


def _race(request: pytest.FixtureRequest, crowd: LeaseCrowd, limit: int) -> LeaseJudge:
    """A short race, or a long one that prints its figures."""
    seconds = request.config.getoption("seconds", None)
    judge = crowd.race(limit, seconds or 0.0, 0 if seconds else MIN_CYCLES, heaviest=min(3, limit))
    if seconds:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n  leases, limit {limit}: {judge.figures}, {len(judge.faults)} faults")
    return judge


def test_s1c_s2_blocks_within_their_leases_never_exceed_the_limit(
    request: pytest.FixtureRequest, lease_crowd: LeaseCrowd, limit: int
) -> None:
    for _ in range(ROUNDS):
        judge = _race(request, lease_crowd, limit)
        assert not judge.faults, judge.summary()
        figures = judge.figures
        if min(figures.grants, figures.removals, figures.extensions, figures.lost_answers, figures.lost_leases) > 0:
            return
    pytest.fail(f"none of {ROUNDS} races was contended, so nothing was checked; the last: {figures}")


def test_control_a_race_of_leases_without_several_conditions_has_the_fault_of_each(lease_crowd: LeaseCrowd) -> None:
    """Each fault has one cause only, so one race shows them all."""
    changes = {
        "a late release": ("OWN_LEASE", lease_protocol.OWN_LEASE, HELD),
        "was moved back": ("ONLY_LATER", "<", "<>"),
        "before others may remove it": ("EXPIRE_CONDITION", "#until = :until", "#until >= :until"),
    }
    left = set(changes)
    for _ in range(ROUNDS):
        faults = lease_crowd.race(2, 0.0, MIN_CYCLES, changes=tuple(changes.values())).faults
        left -= {fault for fault in left if any(fault in each for each in faults)}
        if not left:
            return
    pytest.fail(f"not found in {ROUNDS} races: {left}")
