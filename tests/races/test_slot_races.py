"""Processes of threads race for slots on DynamoDB Local, whose conditional writes are atomic. Every write is checked.

Starters, workflows and janitors make all steps with the same executions, and lose some answers. conftest describes
longer races.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slotkeeper.slots.request import PRIORITIES
from tests.races.slot_races import Crowd, Outcome, Race

SHORT = 0.3  # seconds
MIN_STEPS = 8  # steps of each thread in a short race: a busy machine takes longer, and checks as much
ROUNDS = 25  # on a busy machine fewer races are contended
WEIGHTS = (1, 2, 3, 4, 5, 6)

RaceIt = Callable[[str, Race], Outcome]


@pytest.fixture(scope="module")
def race_it(request: pytest.FixtureRequest, crowd: Crowd) -> RaceIt:
    """Runs a race. A long one prints its figures."""
    seconds = request.config.getoption("seconds", None)

    def run(name: str, race: Race) -> Outcome:
        outcome = crowd.race(race, seconds or SHORT, 0 if seconds else MIN_STEPS)
        if seconds:
            with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
                print(f"\n  {name}: {outcome.figures}, {len(outcome.judge.faults)} faults")
        return outcome

    return run


def assert_no_fault(race_it: RaceIt, name: str, race: Race, is_contended: Callable[[Outcome], bool]) -> None:
    """Run races until one is contended. None may have a fault."""
    for _ in range(ROUNDS):
        outcome = race_it(name, race)
        assert not outcome.judge.faults, outcome.judge.summary()
        figures = outcome.figures
        if is_contended(outcome) and min(figures.grants, figures.refusals, figures.snapshots, figures.lost_answers) > 0:
            return
    pytest.fail(f"none of {ROUNDS} races was contended, so nothing was checked; the last was {outcome.figures}")


def was_above_limit(outcome: Outcome) -> bool:
    """Whether the limit was lowered below the weight in use."""
    return any(in_use > limit for in_use, limit in outcome.judge.curve)


@pytest.mark.parametrize("limit", [1, 10, 25])
def test_s1_s2_at_every_write_holders_are_counted_and_never_more_than_the_limit(race_it: RaceIt, limit: int) -> None:
    assert_no_fault(race_it, f"limit {limit}", Race(limit), lambda outcome: outcome.figures.most_holders == limit)


def test_f6_s1_no_request_is_admitted_above_a_moving_limit_or_in_a_pause(race_it: RaceIt) -> None:
    race = Race(10, ("limit", "pause"))
    assert_no_fault(race_it, "moving limit", race, was_above_limit)


def test_s1_with_a_wrong_count_no_request_is_admitted_if_count_or_holders_reach_the_limit(race_it: RaceIt) -> None:
    race = Race(4, ("count",))
    assert_no_fault(race_it, "wrong count", race, lambda outcome: outcome.figures.most_holders == race.limit)


def test_s1_s2_weights_are_counted_and_no_request_is_admitted_before_a_waiting_one_of_higher_priority(
    race_it: RaceIt,
) -> None:
    race = Race(7, priorities=PRIORITIES, weights=(0, *WEIGHTS), default_weight=2, most_holders=3)

    def is_contended(outcome: Outcome) -> bool:
        figures = outcome.figures
        is_full = (figures.most_in_use, figures.most_holders) == (race.limit, race.most_holders)
        return is_full and len(figures.granted) == len(PRIORITIES) and min(figures.registrations, figures.cleared) > 0

    assert_no_fault(race_it, "weights", race, is_contended)


def test_f6_s1_no_weight_is_admitted_above_a_moving_limit(race_it: RaceIt) -> None:
    race = Race(10, ("limit",), priorities=PRIORITIES, weights=WEIGHTS)
    assert_no_fault(
        race_it,
        "weights, moving limit",
        race,
        lambda outcome: was_above_limit(outcome) and outcome.figures.heaviest > 3 and outcome.figures.registrations > 0,
    )
