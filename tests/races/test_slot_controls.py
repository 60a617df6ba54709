"""Each condition of the slots taken out: the same races, by the same judge, are lost.

Of the two that ask for room, either alone would do while the count is right: so it takes a wrong count to tell.
"""

from __future__ import annotations

import pytest

from slotkeeper.slots.protocol import CANCEL_CONDITION, RELEASE_CONDITION, UNCHANGED_CONDITION
from tests.races.slot_clients import Change
from tests.races.slot_races import Crowd, Meddling, Race

ALWAYS = "attribute_not_exists(no_such_attribute)"
HELD = "attribute_exists(holders.#me)"
COUNTED, NAMED = "slots_in_use < slot_limit", "size(holders) < slot_limit"

LIMIT = 4
STEPS = 10  # of each thread
ROUNDS = 15  # nearly always the first or the second does


def reserve_without(part: str) -> Change:
    return without("RESERVE_CONDITION", part)


def without(constant: str, part: str, instead: str = ALWAYS) -> Change:
    """In this constant, `part` holds wherever `instead` does."""
    return constant, part, f"({part} OR {instead})"


def is_found(fault: str, crowd: Crowd, race: Race) -> bool:
    """Whether the judge says so of one of some races."""
    judged = (crowd.race(race, 0.0, STEPS).judge for _ in range(ROUNDS))
    return any(fault in fault_seen for judge in judged for fault_seen in judge.faults)


@pytest.mark.parametrize(
    ("change", "meddling", "fault"),
    [
        (reserve_without(f"{COUNTED} AND {NAMED}"), None, "no room"),
        (reserve_without(COUNTED), "count", "no room"),
        (reserve_without(NAMED), "count", "no room"),
        (reserve_without("paused = :false"), "pause", "paused True"),
        (reserve_without("attribute_not_exists(holders.#me)"), None, "slots_in_use was"),
        (without("CANCEL_CONDITION", CANCEL_CONDITION, HELD), None, "of which it was RESERVED"),
        (without("UNCHANGED_CONDITION", UNCHANGED_CONDITION, HELD), None, "the janitor says that it freed"),
        (("WAIT_CONDITION", "paused = :true", f"paused = :true OR {ALWAYS}"), None, "waits where there is room"),
        (without("WAIT_CONDITION", "waiting.#sequence < :sequence"), None, "an older delivery stands there"),
    ],
    ids=["room", "count", "holders", "paused", "mine", "cancel", "unchanged", "wait for room", "wait if newer"],
)
def test_control_without_its_condition_the_race_is_lost(
    crowd: Crowd, change: Change, meddling: Meddling | None, fault: str
) -> None:
    assert is_found(fault, crowd, Race(LIMIT, (meddling,) if meddling else (), [change]))


def test_f5_control_released_by_whoever_comes_the_race_is_lost(crowd: Crowd) -> None:
    assert is_found("slots_in_use was", crowd, Race(LIMIT, (), [without("RELEASE_CONDITION", RELEASE_CONDITION)]))


def test_f6_control_with_not_equal_instead_of_less_the_race_is_lost_when_the_limit_moves(crowd: Crowd) -> None:
    assert is_found("no room", crowd, Race(LIMIT, ("limit",), [("RESERVE_CONDITION", "<", "<>")]))


def test_control_whoever_reads_first_and_then_writes_loses_the_race(crowd: Crowd) -> None:
    assert is_found("no room", crowd, Race(LIMIT, reads_first=True))
