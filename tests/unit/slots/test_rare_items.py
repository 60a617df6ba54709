"""Items that no small world has: what a repair has written, and rows that change between a read and its write."""

from __future__ import annotations

import pytest

from slotkeeper.aws.dynamodb import number
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.grants import GrantMade
from slotkeeper.slots.lease_protocol import LeaseSteps, LeaseTerm
from slotkeeper.slots.outcomes import Outcomes
from slotkeeper.slots.plan import PlannedStart
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.request_table import Leaving
from slotkeeper.slots.returns import Requeued
from tests.simulation.account.boundary import before_write
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene, reserved

LIMIT = 3
FIRST = execution_name("p", "a", 1)


def test_a_process_whose_repair_has_set_paused_to_false_grants(scene: QueueScene) -> None:
    scene.change(paused={"BOOL": False})
    seen = scene.process
    assert scene.grants.grant(seen, [PlannedStart(FIRST, 1)], 0, NOW) == GrantMade(seen.grants + 1)


@pytest.mark.parametrize("reads_first", [False, True])
def test_a_process_whose_repair_has_set_paused_to_false_has_leases(reads_first: bool, scene: QueueScene) -> None:
    scene.change(paused={"BOOL": False}, target={"S": NO_TARGET})
    steps = LeaseSteps(scene.dynamodb, "slots")
    if reads_first:
        steps._read_first.add("p")
    steps.take("p", "me", 1, LeaseTerm(int(NOW) + 60, "own"), NOW)
    assert "me" in scene.process.holders


def test_a_request_with_a_holder_is_not_ended_for_want_of_a_target(scene: QueueScene) -> None:
    scene.queue("a")
    scene.change(target={"S": NO_TARGET}, holders={"M": {FIRST: {"M": reserved()}}})
    assert scene.requests.end_homeless("p", [Leaving(FIRST, "REJECTED", "LeasesOnly", "")], NOW, exists=True) == []


def test_an_end_that_is_recorded_again_before_a_redrive_is_published_first(scene: QueueScene) -> None:
    """A redriven execution fails between the read of the row and the transaction."""
    scene.queue("a")
    scene.end(FIRST, "FAILED")
    unpublished = {**scene.row(FIRST), "open": number(-NOW)}
    before_write(
        scene.dynamodb,
        lambda _: scene.dynamodb.put_item(TableName="requests", Item=unpublished),
        operation="TransactWriteItems",
    )
    assert not isinstance(scene.requeues.redrive("p", [FIRST], NOW)[FIRST], Requeued)


def test_a_queued_request_that_fails_or_returns_keeps_no_deadline(scene: QueueScene) -> None:
    """Its execution has closed before the mark of its start."""
    failed, returned = scene.queue("a", "b", start_before="2027-01-15T09:00:00Z")
    Outcomes(scene.dynamodb, "requests").failed("p", failed, NOW, "Aborted", "")
    scene.requeues.give_back("p", returned, NOW)
    assert not (scene.row(failed) | scene.row(returned)).keys() & {"place", "deadline"}


def test_a_request_of_a_removed_process_does_not_leave_with_a_new_item_of_it(scene: QueueScene) -> None:
    (name,) = scene.queue("a")
    scene.dynamodb.delete_item(TableName="slots", Key={"process_name": {"S": "p"}})
    assert scene.requests.leave("p", [Leaving(name, "CANCELLED", "Cancelled", "")], NOW) == []
    assert scene.item == {}
