"""Threads whose clocks differ race for the starts of a process with a rate, on DynamoDB Local."""

from __future__ import annotations

import pytest

from slotkeeper.slots import rate
from slotkeeper.slots.rate import Rate
from tests.deployed.races.client_processes import are_found
from tests.deployed.races.lease_races import LeaseCrowd

# In race seconds: some starts are refused although a slot is free.
PACE = Rate(2, 3, 2)
MIN_CYCLES, ROUNDS = 8, 20


def test_s11_in_no_time_begin_more_leases_than_the_rate_allows(lease_crowd: LeaseCrowd) -> None:
    for _ in range(ROUNDS):
        outcome = lease_crowd.race(10, 0.0, MIN_CYCLES, pace=PACE)
        assert not outcome.judge.faults, outcome.judge.summary()
        if min(outcome.figures.grants, outcome.figures.refusals, outcome.figures.lost_answers) > 0:
            return
    pytest.fail(f"none of {ROUNDS} races was contended, so nothing was checked; the last: {outcome.figures}")


def test_control_a_race_whose_writes_do_not_compare_the_next_start_has_the_fault(lease_crowd: LeaseCrowd) -> None:
    change = ("SAME_START", " AND next_start = :seen_start", " AND next_start >= :seen_start")

    def race() -> list[str]:
        return lease_crowd.race(10, 0.0, MIN_CYCLES, pace=PACE, pace_changes=(change,)).judge.faults

    assert rate.SAME_START.endswith(change[1])
    assert are_found(["move the next start"], ROUNDS, race)
