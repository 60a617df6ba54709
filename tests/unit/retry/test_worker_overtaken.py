"""The next attempt starts before the previous one has recorded it as scheduled: no error, and no alarm."""

from __future__ import annotations

from slotkeeper.retry.attempt import WorkDeadLettered, WorkRetried
from slotkeeper.retry.ledger import DEAD_LETTERED, SUCCEEDED
from tests.unit.worker_harness import LEASE, WorkerHarness


def _before_it_is_noted(workplace: WorkerHarness, settle: int) -> None:
    """Deliver the first attempt's message just before the call that records it, the call number `settle`."""

    def next_attempt() -> None:
        with workplace.unnoted():
            sent = workplace.queue[-1] if len(workplace.queue) > 1 else workplace.redrive(workplace.dead_letters[0])
            workplace.wait(1)
            workplace.consume(sent)

    workplace.put_policy('{"default": {"jitter": "none"}}')
    workplace.strike(settle, "before", next_attempt)


def test_a_retry_delivered_before_it_is_recorded_leaves_no_message(workplace: WorkerHarness) -> None:
    _before_it_is_noted(workplace, 5)  # claim, policy, record, send, settle
    outcome = workplace.consume(workplace.send(fails=1, retry_after=0))
    assert isinstance(outcome, WorkRetried)
    assert workplace.calls[4] == "UpdateItem"
    assert (workplace.queue, workplace.row()["status"], workplace.effects) == ([], SUCCEEDED, [("r", 2)])


def test_f26_a_message_redriven_before_it_is_recorded_leaves_no_message(
    workplace: WorkerHarness,
) -> None:
    _before_it_is_noted(workplace, 4)  # no policy is needed
    outcome = workplace.consume(workplace.send(poison="no such thing"))
    assert isinstance(outcome, WorkDeadLettered)
    assert (workplace.queue, workplace.row()["status"]) == ([], DEAD_LETTERED)
    assert workplace.performed == [("r", 1), ("r", 2)]


def test_a_worker_taken_over_before_it_recorded_keeps_its_message(workplace: WorkerHarness) -> None:
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
