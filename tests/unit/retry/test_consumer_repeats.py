"""Messages delivered twice, late or redriven have one chain of attempts and one effect."""

from __future__ import annotations

from slotkeeper.retry.attempt import WorkDeadLettered, WorkSucceeded
from slotkeeper.retry.ledger import SUCCEEDED, AlreadySettled
from tests.unit.worker_harness import WorkerHarness


def test_f24_a_message_that_a_producer_sent_twice_has_one_effect(workplace: WorkerHarness) -> None:
    workplace.send()
    workplace.send()
    workplace.live()
    assert workplace.performed == [("r", 1)]


def test_f26_a_redriven_message_is_the_next_attempt_and_its_copy_has_no_effect(
    workplace: WorkerHarness,
) -> None:
    workplace.put_policy('{"default": {"max_attempts": 2}}')
    original = workplace.send(fails=2)
    workplace.live()
    dead = workplace.dead_letter
    redriven = workplace.redrive(dead)
    copy = workplace.copy(redriven)
    assert redriven.message_id != original.message_id
    assert workplace.consume(redriven) == WorkSucceeded({"attempt": 3})
    assert workplace.consume(copy) == AlreadySettled(SUCCEEDED, 3)
    assert workplace.effects == [("r", 3)]


def test_another_payload_under_a_used_id_is_dead_lettered_unchanged_and_the_first_continues(
    workplace: WorkerHarness,
) -> None:
    workplace.consume(workplace.send(fails=1))
    before = workplace.row()
    other = workplace.send(another="payload")
    outcome = workplace.consumed(other, WorkDeadLettered)
    assert outcome.code == workplace.dead_letter.texts["code"] == "RequestIdReused"
    assert "another payload, which is WAITING at attempt 1" in outcome.reason
    assert (workplace.dead_letter.body, workplace.row()) == (other.body, before)
    workplace.live()
    assert workplace.effects == [("r", 2)]
