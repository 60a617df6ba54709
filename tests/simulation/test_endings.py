"""Requests that are skipped or too late: random schedules, and the controls of the small worlds that have them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from slotkeeper.slots import admission
from slotkeeper.slots.admission import Starter
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import Delivery, Request, parse_request
from slotkeeper.slots.skipped_requests import SkippedRequests
from tests.simulation import endings_world, scheduling
from tests.simulation.endings_world import EndingsWorld
from tests.simulation.slots_actors import DEAD_LETTERS
from tests.simulation.slots_state import Plan
from tests.simulation.small_worlds import SMALL
from tests.simulation.transcript import Program
from tests.simulation.world_runs import Control, first_violation

Patch = pytest.MonkeyPatch


def test_s9b_holds_in_random_schedules_in_which_requests_are_skipped_and_too_late() -> None:
    Program.merges = False
    ends: Counter[str] = Counter()
    for seed in range(50):
        random = Random(seed)
        world = endings_world.random_world(random)
        scheduling.run(world, random)
        dead = world.services["sqs"][DEAD_LETTERS]["messages"]
        ends += Counter(each["attributes"]["code"]["StringValue"] for each in dead)
        ends["Skipped"] += len(world.skipped)
    assert ends["Skipped"] >= 5
    assert ends["TooLate"] >= 5


def a_request_that_skips_waits(patch: Patch) -> None:
    def parse(delivery: Delivery) -> Request:
        return replace(parse_request(delivery), when_busy="wait")

    patch.setattr(admission, "parse_request", parse)


def no_note_is_read(patch: Patch) -> None:
    patch.setattr(SkippedRequests, "note_of", lambda *_: None)


def the_deadline_is_not_checked(patch: Patch) -> None:
    patch.setattr(Starter, "_too_late", Starter._reserve_and_start)


def hidden_as_without_a_deadline(patch: Patch) -> None:
    patch.setattr(admission, "_until_deadline", lambda _, seconds, __: seconds)


def the_reservation_stays_at_the_deadline(patch: Patch) -> None:
    patch.setattr(Slots, "cancel", lambda *_: False)


def the_registration_stays_at_the_deadline(patch: Patch) -> None:
    patch.setattr(Slots, "end_wait", lambda *_: False)


SKIPS, NEXT = SMALL["a request that skips, a caller"].make, SMALL["a deadline next to a lost answer"].make


def waits_until_its_deadline() -> EndingsWorld:
    plan = Plan(("a", "b"), deadlines="b", deadline=70, run_seconds=(100,), starters=1, event_steps=False)
    return EndingsWorld(plan)


CONTROLS = {
    "a_request_that_skips_waits": Control(a_request_that_skips_waits, SKIPS, 0, "S9b"),
    "no_note_is_read": Control(no_note_is_read, SKIPS, 1, "S9b"),
    "the_deadline_is_not_checked": Control(the_deadline_is_not_checked, NEXT, 1, "S9b"),
    "the_reservation_stays": Control(the_reservation_stays_at_the_deadline, NEXT, 1, "S3 S4"),
    "hidden_as_without_a_deadline": Control(hidden_as_without_a_deadline, waits_until_its_deadline, 0, "S9b"),
    "the_registration_stays": Control(the_registration_stays_at_the_deadline, waits_until_its_deadline, 0, "S3b"),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_without_its_guard_a_small_world_breaks(name: str, monkeypatch: Patch) -> None:
    CONTROLS[name].check(monkeypatch)


def test_the_world_of_the_controls_without_a_fault_holds() -> None:
    assert first_violation(waits_until_its_deadline, 0) == ("", "")
