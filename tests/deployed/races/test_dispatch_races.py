"""Twelve dispatchers start the queue of one process at the same time, on DynamoDB Local, and operators cancel.

It refuses without the item, as some engines do, so each dispatcher reads it then.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dev.emulator.dynamodb_local import DynamoDbLocal
from tests.deployed.races.client_processes import are_found
from tests.deployed.races.client_threads import Change
from tests.deployed.races.dispatch_races import Dispatchers, DispatchOutcome, DispatchRace

PROCESSES, THREADS = 2, 6
ROUNDS = 20  # on a busy machine fewer races are contended; nearly always one of the first three is enough

_seeds = itertools.count(1)


@pytest.fixture(scope="module")
def dispatchers(dynamodb_local: DynamoDbLocal, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dispatchers]:
    with Dispatchers(dynamodb_local, PROCESSES, THREADS, tmp_path_factory.mktemp("dispatchers")) as running:
        yield running


def race_until_contended(dispatchers: Dispatchers, race: DispatchRace) -> DispatchOutcome:
    """Run races until in one of them each kind of write has met another one. None may have a fault."""
    for _ in range(ROUNDS):
        outcome = dispatchers.race(race, next(_seeds))
        assert not outcome.faults, "\n".join(outcome.faults[:20])
        met = [outcome.did.refused_grants, outcome.did.put_back]
        met += [len(outcome.did.cancelled), len(outcome.did.kept)] if race.cancels else []
        if all(met) and outcome.most_in_use >= race.limit:
            return outcome
    pytest.fail(f"none of {ROUNDS} races was contended, so nothing was checked; the last was {outcome}")


def test_s1_s2_s5_grants_are_within_the_limit_and_in_the_order_of_the_queue(dispatchers: Dispatchers) -> None:
    """At the end each request has run, since no thread ends before the queue is empty."""
    race = DispatchRace(limit=4)
    assert len(race_until_contended(dispatchers, race).did.confirmed) == race.requests


def test_s1_s3_s5_so_are_those_next_to_cancellations_and_a_moving_limit(dispatchers: Dispatchers) -> None:
    race_until_contended(dispatchers, DispatchRace(limit=4, cancels=0.3, limits=(2, 3, 4, 5)))


ALWAYS = "attribute_exists(grants)"
SEEN: Change = ("GRANT_CONDITION", "grants = :seen", f"(grants = :seen OR {ALWAYS})")
ROOM = "slots_in_use <= :counted AND size(holders) <= :room"
KEPT = "grants = if_not_exists(grants, :one)"
MANY = DispatchRace(limit=4)
CANCELLED = DispatchRace(limit=4, cancels=0.3)
THROTTLED = DispatchRace(limit=4, throttled=0.6)
STARTED = "was cancelled, and had a slot"


@pytest.mark.parametrize(
    ("race", "module", "changes", "fault"),
    [
        (MANY, "grants", [SEEN, ("GRANT_CONDITION", ROOM, f"({ROOM} OR {ALWAYS})")], "makes"),
        (
            DispatchRace(limit=4, limits=(1, 4)),
            "grants",
            [("GRANT_CONDITION", "slot_limit = :limit", f"(slot_limit = :limit OR {ALWAYS})")],
            "makes",
        ),
        (CANCELLED, "grants", [SEEN], STARTED),
        (THROTTLED, "grants", [SEEN], "before"),
        (THROTTLED, "grants", [("PUT_BACK_UPDATE", "grants = grants + :one", KEPT)], "before"),
        (CANCELLED, "request_table", [("LEAVE_CONDITION", "{absent}", f"({{absent}} OR {ALWAYS})")], STARTED),
        (CANCELLED, "request_table", [("LEAVE_PROCESS_UPDATE", "grants = grants + :one", KEPT)], STARTED),
    ],
    ids=["grants and room", "limit", "grants", "grants, order", "put back", "exit of a holder", "exit"],
)
def test_control_a_race_without_its_guard_has_the_fault(
    race: DispatchRace, module: str, changes: list[Change], fault: str, dispatchers: Dispatchers
) -> None:
    weakened = replace(race, changes={module: changes})
    assert are_found([fault], ROUNDS, lambda: dispatchers.race(weakened, next(_seeds)).faults)
