"""Negative controls: without each condition of the slot protocol, the judge finds a fault in the same races.

While the count is correct, one of the two conditions on free slots is enough. Their controls write wrong counts.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest

from slotkeeper.slots.protocol import (
    CANCEL_CONDITION,
    NO_DEFAULT_WEIGHT,
    NO_NEWER_REGISTRATION,
    NO_ROOM,
    NOT_REGISTERED,
    RELEASE_CONDITION,
    SAME_HANDLE,
    UNCHANGED_CONDITION,
)
from slotkeeper.slots.request import PRIORITIES
from tests.races.client_processes import are_found
from tests.races.client_threads import Change
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


def weighted(*changes: Change, disturbances: tuple[Disturbance, ...] = (), default_weight: int = 1) -> Race:
    """A race of all priorities, with weights 1 to 6 and the default weight."""
    return Race(7, disturbances, [*changes], False, PRIORITIES, (0, 1, 2, 3, 4, 5, 6), default_weight, most_holders=3)


def has_faults(faults: Collection[str], crowd: Crowd, race: Race, steps: int = STEPS) -> bool:
    """Whether the judge finds each of these faults in at most ROUNDS races."""
    return are_found(faults, ROUNDS, lambda: crowd.race(race, 0.0, steps).judge.faults)


@pytest.mark.parametrize(
    ("change", "disturbance", "fault"),
    [
        (without("ROOM_FOR_ONE", f"{COUNTED} AND {NAMED}"), None, "although none is free"),
        (without("ROOM_FOR_ONE", COUNTED), "count", "although none is free"),
        (without("ROOM_FOR_ONE", NAMED), "count", "although none is free"),
        (reserve_without("paused = :false"), "pause", "paused True"),
        (reserve_without("attribute_not_exists(holders.#me)"), None, "slots_in_use was"),
        (without("CANCEL_CONDITION", CANCEL_CONDITION, HELD), None, "of which it was RESERVED"),
        (without("UNCHANGED_CONDITION", UNCHANGED_CONDITION, HELD), None, "the janitor reports that it freed"),
        (without("NEWER_RECEIVE", "waiting.{0}.#sequence < :sequence"), None, "replaced by an older delivery"),
    ],
    ids=["free slot", "count", "holders", "paused", "own", "cancel", "unchanged", "wait if newer"],
)
def test_control_a_race_without_the_condition_has_the_fault(
    crowd: Crowd, change: Change, disturbance: Disturbance | None, fault: str
) -> None:
    assert has_faults([fault], crowd, Race(LIMIT, (disturbance,) if disturbance else (), [change]))


@pytest.mark.parametrize(
    ("race", "fault"),
    [
        (
            weighted(without("ROOM_FOR_WEIGHT", "slot_limit = :limit"), disturbances=("limit",)),
            "although none is free",
        ),
        (
            weighted(
                without(
                    "ROOM_FOR_WEIGHT",
                    "slots_in_use <= :counted AND size(holders) <= :room",
                    "slots_in_use < slot_limit AND size(holders) < slot_limit",
                )
            ),
            "although none is free",
        ),
        (weighted(("RELEASE_UPDATE", "if_not_exists(holders.#me.weight, :one)", ":one")), "slots_in_use was"),
        (weighted(without("NOT_REGISTERED", NOT_REGISTERED)), "takes a slot before"),
        (Race(LIMIT, changes=[without("NO_ROOM", NO_ROOM)]), "waits although a slot is free"),
    ],
    ids=["same limit", "room for the weight", "release by one", "higher priority", "wait if full"],
)
def test_control_a_race_of_weights_and_priorities_without_the_condition_has_the_fault(
    crowd: Crowd, race: Race, fault: str
) -> None:
    assert has_faults([fault], crowd, race)


def test_control_a_race_without_several_conditions_has_the_fault_of_each(crowd: Crowd) -> None:
    """Each fault has one cause only, so one race shows them all."""
    faults = {
        "but its request weighs 2": without("NO_DEFAULT_WEIGHT", NO_DEFAULT_WEIGHT),
        "without its tombstone": ("GRANTED_UPDATE", "waiting.{0}", "of_{0}"),
        "replaced by the grant of an older delivery": without("NO_NEWER_REGISTRATION", NO_NEWER_REGISTRATION),
        "replaced by an older tombstone": without("SAME_HANDLE", SAME_HANDLE, "attribute_exists(waiting)"),
        "although it holds a slot": without("WAIT_CONDITION", "attribute_not_exists(holders.#me)"),
        "holders, at most 3": without("ROOM_FOR_ONE", "size(holders) < :most"),
    }
    assert has_faults(faults, crowd, weighted(*faults.values(), default_weight=2), 2 * STEPS)


def test_f5_control_a_release_without_its_condition_frees_a_slot_twice(crowd: Crowd) -> None:
    assert has_faults(["slots_in_use was"], crowd, Race(LIMIT, (), [without("RELEASE_CONDITION", RELEASE_CONDITION)]))


def test_f6_control_with_not_equal_instead_of_less_a_moving_limit_is_exceeded(crowd: Crowd) -> None:
    assert has_faults(["although none is free"], crowd, Race(LIMIT, ("limit",), [("ROOM_FOR_ONE", "<", "<>")]))


def test_control_a_reserve_that_reads_and_then_writes_exceeds_the_limit(crowd: Crowd) -> None:
    assert has_faults(["although none is free"], crowd, Race(LIMIT, reads_first=True))
