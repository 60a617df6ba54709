"""The plan: equal for equal seeds, with every kind of fault, and without new faults at its end."""

from __future__ import annotations

from collections import Counter

import pytest

from dev.scenarios.soak import soak_plan as plan
from dev.scenarios.soak.soak_plan import DECK, PROCESSES, burst, draw, limits_of


def test_the_same_seed_gives_the_same_schedule_and_another_one_another() -> None:
    assert draw(2.0, 7, 3) == draw(2.0, 7, 3)
    assert draw(2.0, 7, 3) != draw(2.0, 8, 3)


def test_each_process_has_its_limit() -> None:
    assert list(limits_of(3).values()) == [3, 2, 1]
    assert list(limits_of(1).values()) == [1, 1, 1]
    assert {send.process for send in draw(1.0, 1, 3).sends} == set(PROCESSES)


@pytest.mark.parametrize("seed", range(5))
def test_every_kind_of_fault_is_planned_for_a_run_of_minutes(seed: int) -> None:
    kinds = Counter(fault.kind for fault in draw(4.0, seed, 3).faults)
    assert set(kinds) == {*DECK, *plan.RESTARTED}
    assert (kinds["engine restarted"], kinds["engine killed"]) == (1, 2)


def test_a_short_run_has_its_engine_killed_in_the_middle() -> None:
    restarts = [fault for fault in draw(0.5, 1, 3).faults if fault.kind in plan.RESTARTED]
    assert [(fault.at, fault.fields["hard"]) for fault in restarts] == [(15.0, True)]


def test_requests_and_faults_are_planned_within_the_minutes() -> None:
    made = draw(3.0, 2, 3)
    assert all(0 <= send.at <= 180 for send in made.sends)
    assert all(0 <= fault.at <= 180 * plan.CALM for fault in made.faults)
    assert [fault.at for fault in made.faults] == sorted(fault.at for fault in made.faults)


def test_no_two_requests_have_one_id() -> None:
    made = [*draw(5.0, 1, 3).sends, *burst({"soak-a": 3, "soak-b": 2}, 4)]
    assert len({send.request_id for send in made}) == len(made)


def test_jobs_have_every_ending() -> None:
    endings = Counter(send.ending for send in draw(10.0, 1, 3).sends)
    assert set(endings) == {"succeed", "fail", "hang"}
    assert endings["succeed"] > 4 * (endings["fail"] + endings["hang"])


def test_a_changed_limit_differs_from_the_limit() -> None:
    made = draw(20.0, 1, 3)
    changes = [fault.fields for fault in made.faults if fault.kind == "limit changed"]
    assert all(change["limit"] != made.limits[change["process"]] for change in changes)
    lower = [change["limit"] < made.limits[change["process"]] for change in changes]
    assert set(lower) == {True, False}
