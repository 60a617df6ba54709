"""S3b in small worlds: as controls, the same worlds find the bug when a guard is removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from slotkeeper.slots import protocol
from slotkeeper.slots.janitor import Janitor
from slotkeeper.slots.process import Process
from slotkeeper.slots.queues import RequestQueue
from tests.simulation.slots_world import Plan, SlotsWorld
from tests.simulation.world_runs import first_violation

Patch = pytest.MonkeyPatch


def a_later_message_replaces_a_name(patch: Patch) -> None:
    patch.setattr(protocol, "NOTHING_VANISHED", "attribute_exists(process_name)")
    patch.setattr(Process, "vanished_before", lambda *_: None)


def an_overdue_request_is_lost(patch: Patch) -> None:
    patch.setattr(RequestQueue, "is_empty", lambda _: True)


def a_dead_letter_ends_only_a_registration(patch: Patch) -> None:
    ends = "attribute_exists(waiting.{0}.receipt_handle) AND " + protocol.OWN_NAME
    patch.setattr(protocol, "OWN_NAME", ends)


def the_janitor_notes_nothing(patch: Patch) -> None:
    patch.setattr(Janitor, "_note_lost", lambda *_: None)


@pytest.mark.parametrize(
    ("remove", "plan", "faults"),
    [
        (a_later_message_replaces_a_name, Plan(("a", "b", "c"), 1, removals=1), 0),
        (an_overdue_request_is_lost, Plan(("a", "b"), 1, janitor_ahead=True), 1),
        (a_dead_letter_ends_only_a_registration, Plan(("a", "b"), 1, cancels=("b",)), 1),
        (the_janitor_notes_nothing, Plan(("a", "b"), 1, removals=1), 0),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_a_guard_a_small_world_breaks_s3b(
    remove: Callable[[Patch], None], plan: Plan, faults: int, monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    settings = {"janitor_runs": 0, "starters": 1, "event_steps": False}
    name, history = first_violation(lambda: SlotsWorld(replace(plan, **settings), timeless=True), faults, 200_000)
    assert name == "S3b", history
