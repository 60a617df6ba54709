"""Messages delivered twice, late or redriven have one chain of attempts and one effect."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.retry.attempt import WorkDeadLettered, WorkSucceeded
from slotkeeper.retry.consumer import StillInProgress
from slotkeeper.retry.ledger import DEAD_LETTERED, SUCCEEDED, AlreadySettled
from tests.unit.worker_harness import LEASE, NOW, WorkerHarness


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
    dead = workplace.dead_letters[0]
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
    outcome = workplace.consume(other)
    assert isinstance(outcome, WorkDeadLettered)
    assert outcome.code == code(workplace) == "RequestIdReused"
    assert "another payload, which is WAITING at attempt 1" in outcome.reason
    assert (workplace.dead_letters[0].body, workplace.row()) == (other.body, before)
    workplace.live()
    assert workplace.effects == [("r", 2)]


@pytest.mark.parametrize(
    ("settle", "payload", "status", "performed"),
    [
        pytest.param(5, {"fails": 1, "retry_after": 0}, SUCCEEDED, 2, id="claim, policy, record, send, settle"),
        pytest.param(4, {"poison": "bad"}, DEAD_LETTERED, 2, id="f26, redriven: no policy is needed"),
    ],
)
def test_the_next_attempt_may_end_before_the_one_before_is_settled(
    workplace: WorkerHarness, settle: int, payload: dict[str, Any], status: str, performed: int
) -> None:
    def next_attempt() -> None:
        with workplace.unnoted():
            sent = workplace.queue[-1] if len(workplace.queue) > 1 else workplace.redrive(workplace.dead_letters[0])
            workplace.wait(1)
            workplace.consume(sent)

    workplace.put_policy('{"default": {"jitter": "none"}}')
    workplace.strike(settle, "before", next_attempt)
    workplace.consume(workplace.send(**payload))
    assert (workplace.calls[settle - 1], workplace.queue) == ("UpdateItem", [])
    assert (workplace.row()["status"], len(workplace.performed)) == (status, performed)


def test_a_worker_that_was_taken_over_before_it_settled_keeps_its_message(workplace: WorkerHarness) -> None:
    """The next attempt has not started. Only the worker that took over knows whether it is scheduled."""

    def take_over() -> None:
        with workplace.unnoted():
            workplace.wait(LEASE + 1)
            workplace.deliver(workplace.copy_in_flight())

    workplace.strike(5, "before", take_over)
    queued = workplace.send(fails=1)
    workplace.deliver(queued)
    assert "has taken over attempt 1 of 'r': its row is WAITING, attempt 1" in str(workplace.left[0])
    assert queued in workplace.queue
