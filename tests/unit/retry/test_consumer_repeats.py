"""Messages delivered twice, late or redriven have one chain of attempts and one effect."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.retry import WorkRequest
from slotkeeper.retry.attempt import WorkDeadLettered, WorkSucceeded
from slotkeeper.retry.consumer import StillInProgress
from slotkeeper.retry.ledger import SUCCEEDED, WAITING, AlreadySettled
from tests.unit.worker_harness import INVOCATION, LEASE, NOW, WorkerHarness


def code(workplace: WorkerHarness) -> str:
    (dead_letter,) = workplace.dead_letters
    return str(dead_letter.attributes["code"]["StringValue"])


def test_a_repeated_delivery_during_the_work_stays_on_the_queue(workplace: WorkerHarness) -> None:
    queued = workplace.send(dies=1)
    workplace.deliver(queued)
    queued.visible_at = workplace.now = NOW + LEASE - 1
    before = workplace.row()
    with pytest.raises(StillInProgress):
        workplace.consume(queued)
    assert (workplace.queue, workplace.row(), workplace.performed) == ([queued], before, [("r", 1)])


def test_f24_a_redelivery_of_finished_work_is_dropped_without_a_second_effect(workplace: WorkerHarness) -> None:
    queued = workplace.send()
    workplace.consume(queued)
    assert workplace.consume(workplace.copy(queued)) == AlreadySettled(SUCCEEDED, 1)
    assert workplace.performed == [("r", 1)]


def test_f24_a_message_that_a_producer_sent_twice_has_one_effect(workplace: WorkerHarness) -> None:
    workplace.send()
    workplace.send()
    workplace.live()
    assert workplace.performed == [("r", 1)]


def test_f25_a_redelivered_original_whose_retry_has_fired_starts_no_second_chain(workplace: WorkerHarness) -> None:
    original = workplace.send(fails=2)
    workplace.consume(original)
    workplace.consume(workplace.queue[0])
    assert workplace.consume(workplace.copy(original)) == AlreadySettled(WAITING, 2)
    workplace.live()
    assert workplace.consume(workplace.copy(original)) == AlreadySettled(SUCCEEDED, 3)
    assert workplace.performed == [("r", 1), ("r", 2), ("r", 3)]


def test_f25_a_redelivered_original_whose_retry_still_waits_starts_no_second_chain(workplace: WorkerHarness) -> None:
    original = workplace.send(fails=1)
    workplace.consume(original)
    assert workplace.consume(workplace.copy(original)) == AlreadySettled(WAITING, 1)
    assert len(workplace.queue) == 1


def test_f25_a_retry_delivered_twice_stays_one_chain(workplace: WorkerHarness) -> None:
    workplace.consume(workplace.send(fails=3))
    workplace.copy(workplace.queue[0])
    workplace.live()
    assert workplace.performed == [("r", 1), ("r", 2), ("r", 3), ("r", 4)]
    assert workplace.effects == [("r", 4)]


def test_f26_a_redriven_message_is_the_next_attempt_and_its_copy_has_no_effect(
    workplace: WorkerHarness,
) -> None:
    workplace.put_policy('{"default": {"max_attempts": 2}}')
    original = workplace.send(fails=2)
    workplace.live()
    dead = workplace.dead_letters[0]
    redriven = workplace.redrive(dead)
    copy = workplace.copy(redriven)
    assert redriven.message_id != original.message_id
    assert workplace.consume(redriven) == WorkSucceeded({"attempt": 3})
    assert workplace.consume(copy) == AlreadySettled(SUCCEEDED, 3)
    assert workplace.effects == [("r", 3)]


def test_f26_a_redriven_message_that_fails_again_is_dead_lettered_again(workplace: WorkerHarness) -> None:
    workplace.put_policy('{"default": {"max_attempts": 1}}')
    workplace.send(fails=2)
    workplace.live()
    workplace.redrive(workplace.dead_letters[0])
    workplace.live()
    assert code(workplace) == "AttemptsExhausted"
    workplace.redrive(workplace.dead_letters[0])
    workplace.live()
    assert workplace.performed == [("r", 1), ("r", 2), ("r", 3)]
    assert workplace.effects == [("r", 3)]


def test_another_payload_under_a_used_id_is_dead_lettered_unchanged_and_the_first_continues(
    workplace: WorkerHarness,
) -> None:
    workplace.consume(workplace.send(fails=1))
    before = workplace.row()
    other = workplace.send(another="payload")
    outcome = workplace.consume(other)
    assert isinstance(outcome, WorkDeadLettered)
    assert outcome.code == code(workplace) == "RequestIdReused"
    assert "another payload, which is WAITING at attempt 1" in outcome.reason
    assert (workplace.dead_letters[0].body, workplace.row()) == (other.body, before)
    workplace.live()
    assert workplace.effects == [("r", 2)]


def test_a_worker_that_resumes_after_a_takeover_changes_no_row(workplace: WorkerHarness) -> None:
    queued = workplace.send(fails=1)
    perform = workplace.perform

    def pauses(request: WorkRequest, seconds: float) -> Any:
        workplace.perform = perform
        workplace.wait(INVOCATION + 6)
        with workplace.unnoted():
            workplace.consume(workplace.copy(queued))
        return workplace.perform(request, seconds)

    workplace.perform = pauses
    workplace.deliver(queued)
    assert "has taken over attempt" in str(workplace.left[0])
    assert workplace.row()["last_error"].startswith("Died")
    workplace.live()
    assert workplace.effects == [("r", 2)]
