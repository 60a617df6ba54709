"""Negative controls: without each condition of the slot protocol, the judge finds a fault in the same races.

While the count is correct, one of the two conditions on free slots is enough. Their controls write wrong counts.
"""

from __future__ import annotations

import pytest

from slotkeeper.slots.protocol import CANCEL_CONDITION, RELEASE_CONDITION, UNCHANGED_CONDITION
from tests.races.slot_clients import Change
from tests.races.slot_races import Crowd, Disturbance, Race

ALWAYS = "attribute_not_exists(no_such_attribute)"
HELD = "attribute_exists(holders.#me)"
COUNTED, NAMED = "slots_in_use < slot_limit", "size(holders) < slot_limit"

LIMIT = 4
STEPS = 10  # of each thread
ROUNDS = 15  # nearly always the first or the second is enough


def reserve_without(part: str) -> Change:
    return without("RESERVE_CONDITION", part)


def without(constant: str, part: str, instead: str = ALWAYS) -> Change:
    """A change of a constant: `part` also holds where `instead` does."""
    return constant, part, f"({part} OR {instead})"


def is_found(fault: str, crowd: Crowd, race: Race) -> bool:
    """Whether the judge finds this fault in one of ROUNDS races."""
    judged = (crowd.race(race, 0.0, STEPS).judge for _ in range(ROUNDS))
    return any(fault in fault_seen for judge in judged for fault_seen in judge.faults)


@pytest.mark.parametrize(
    ("change", "disturbance", "fault"),
    [
        (reserve_without(f"{COUNTED} AND {NAMED}"), None, "without a free slot"),
        (reserve_without(COUNTED), "count", "without a free slot"),
        (reserve_without(NAMED), "count", "without a free slot"),
        (reserve_without("paused = :false"), "pause", "paused True"),
        (reserve_without("attribute_not_exists(holders.#me)"), None, "slots_in_use was"),
        (without("CANCEL_CONDITION", CANCEL_CONDITION, HELD), None, "of which it was RESERVED"),
        (without("UNCHANGED_CONDITION", UNCHANGED_CONDITION, HELD), None, "the janitor reports that it freed"),
        (("WAIT_CONDITION", "paused = :true", f"paused = :true OR {ALWAYS}"), None, "waits although a slot is free"),
        (without("WAIT_CONDITION", "waiting.#sequence < :sequence"), None, "replaced by an older delivery"),
    ],
    ids=["free slot", "count", "holders", "paused", "own", "cancel", "unchanged", "wait if full", "wait if newer"],
)
def test_control_a_race_without_the_condition_has_the_fault(
    crowd: Crowd, change: Change, disturbance: Disturbance | None, fault: str
) -> None:
    assert is_found(fault, crowd, Race(LIMIT, (disturbance,) if disturbance else (), [change]))


def test_f5_control_a_release_without_its_condition_frees_a_slot_twice(crowd: Crowd) -> None:
    assert is_found("slots_in_use was", crowd, Race(LIMIT, (), [without("RELEASE_CONDITION", RELEASE_CONDITION)]))


def test_f6_control_with_not_equal_instead_of_less_a_moving_limit_is_exceeded(crowd: Crowd) -> None:
    assert is_found("without a free slot", crowd, Race(LIMIT, ("limit",), [("RESERVE_CONDITION", "<", "<>")]))


def test_control_a_reserve_that_reads_and_then_writes_exceeds_the_limit(crowd: Crowd) -> None:
    assert is_found("without a free slot", crowd, Race(LIMIT, reads_first=True))
