"""Without one of its guards, a small world of retries breaks the guarantee."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.retry import delivery, ledger, operations
from slotkeeper.retry.consumer import Consumer
from slotkeeper.retry.delivery import DeadLetterQueue, PlannedDelivery, RetryQueue
from slotkeeper.retry.ledger import Ledger
from slotkeeper.retry.operations import RetryCancelled, RetryOperations
from slotkeeper.retry.policy import BUILT_IN, Policy, PolicyParameter, PolicyUnavailable
from slotkeeper.retry.worker import RetryingWorker
from tests.simulation import retry_world
from tests.simulation.retry_world import Plan, RetryWorld, fixed_policy
from tests.simulation.world_runs import first_broken, first_violation

Patch = pytest.MonkeyPatch

OTHER_PAYLOAD = ("a", '{"other": "payload"}')
SUCCEEDS = Plan((("a", "{}"),))
FAILS_ONCE = Plan((("a", '{"fails": 1}'),))
SENT_TWICE = Plan(FAILS_ONCE.requests * 2)
POISON = Plan((("a", '{"poison": "no such thing"}'),))
IMMEDIATELY = (("a", '{"fails": 1, "retry_after": 0}'),)
BY_SCHEDULER = (("a", '{"fails": 1, "retry_after": 1980}'),)


# Conditions that always hold. They use every value, since DynamoDB refuses unused ones.
UNLEASED = ledger.CLAIM_CONDITION.replace("lease_until < :clock", "lease_until <> :clock")
ANY_SEEN, ANY_MINE = "(claim = :seen OR claim <> :seen)", "(claim = :mine OR claim <> :mine)"


def f24_an_attempt_is_claimed_twice(patch: Patch) -> None:
    patch.setattr(ledger, "CLAIM_CONDITION", UNLEASED.replace("attempts < ", "attempts <= "))


def f25_an_earlier_attempt_is_claimed_after_a_later_one(patch: Patch) -> None:
    patch.setattr(ledger, "CLAIM_CONDITION", UNLEASED.replace("attempts < ", "attempts <> "))


def f24_succeeded_work_is_claimed(patch: Patch) -> None:
    patch.setattr(ledger, "CLAIM_CONDITION", UNLEASED.replace("#status <> :succeeded AND ", ""))


def f24_two_workers_take_over(patch: Patch) -> None:
    patch.setattr(ledger, "TAKE_OVER_CONDITION", ledger.TAKE_OVER_CONDITION.replace("claim = :seen", ANY_SEEN))


def a_lost_claim_settles(patch: Patch) -> None:
    patch.setattr(ledger, "HELD_CONDITION", ledger.HELD_CONDITION.replace("claim = :mine", ANY_MINE))


def a_lost_claim_settles_and_succeeded_work_is_claimed(patch: Patch) -> None:
    """Either guard alone prevents the bug."""
    a_lost_claim_settles(patch)
    f24_succeeded_work_is_claimed(patch)


def f24_a_live_lease_is_taken_over(patch: Patch) -> None:
    parse = ledger._parse
    patch.setattr(ledger, "_parse", lambda *arguments: dataclasses.replace(parse(*arguments), lease_until=0.0))


def f24_a_dead_attempt_begins_again(patch: Patch) -> None:
    take_over = Ledger._take_over

    def alive(self: Any, *arguments: Any) -> Any:
        claim = take_over(self, *arguments)
        return dataclasses.replace(claim, died=False) if isinstance(claim, ledger.Claimed) else claim

    patch.setattr(Ledger, "_take_over", alive)


class _Unrecorded(tuple[Any, ...]):
    """A history that is not in the ledger yet, and the function that records it."""

    record_now: Callable[[], Any]


def f25_recorded_after_it_is_carried_out(patch: Patch) -> None:
    record, carry_out = Ledger.record, Consumer._carry_out

    def only_returns(self: Any, message: Any, claim: Any, plan: Any, error: str, error_type: str) -> Any:
        entry = {"attempt": message.attempt, "at": ledger.instant(claim.started_at), "error": error}
        history = _Unrecorded((*claim.history, entry))
        history.record_now = lambda: record(self, message, claim, plan, error, error_type)
        return history

    def then_records(self: Any, message: Any, claim: Any, plan: Any, history: Any, *cause: Any) -> Any:
        outcome = carry_out(self, message, claim, plan, history, *cause)
        if isinstance(history, _Unrecorded):
            history.record_now()
        return outcome

    patch.setattr(Ledger, "record", only_returns)
    patch.setattr(Consumer, "_carry_out", then_records)


def f25_deleted_before_it_is_scheduled(patch: Patch) -> None:
    schedule = RetryQueue.schedule

    def ignores_errors(self: Any, message: Any, due: float, now: float) -> PlannedDelivery:
        try:
            return schedule(self, message, due, now)
        except Exception:
            return PlannedDelivery("delay", due)

    patch.setattr(RetryQueue, "schedule", ignores_errors)


def f25_deleted_before_it_is_dead_lettered(patch: Patch) -> None:
    send = DeadLetterQueue.send

    def ignores_errors(*arguments: Any) -> None:
        try:
            send(*arguments)
        except Exception:
            return

    patch.setattr(DeadLetterQueue, "send", ignores_errors)


def f25_deleted_after_any_exception(patch: Patch) -> None:
    consume = RetryingWorker._consume

    def ignores_errors(*arguments: Any, **named: Any) -> None:
        try:
            consume(*arguments, **named)
        except Exception:
            return

    patch.setattr(RetryingWorker, "_consume", ignores_errors)


def f25_one_schedule_for_all_attempts(patch: Patch) -> None:
    patch.setattr(delivery, "schedule_name", lambda message, _queue: message.request_id)


def another_payload_is_taken_for_a_repeat(patch: Patch) -> None:
    patch.setattr(ledger.Message, "payload_hash", "the same")


def a_dead_letter_without_its_history(patch: Patch) -> None:
    send = DeadLetterQueue.send
    patch.setattr(DeadLetterQueue, "send", lambda *arguments: send(*arguments[:-1], ()))


def an_attempt_that_began_is_cancelled(patch: Patch) -> None:
    """Either half of the condition alone prevents the bug."""
    patch.setattr(ledger, "WAITING_CONDITION", "attempts >= :before AND (#status = :waiting OR #status <> :waiting)")


def a_schedule_is_deleted_before_its_message_is_sent(patch: Patch) -> None:
    send_now = RetryQueue.send_now

    def deletes_first(self: Any, message: Any) -> None:
        self.delete_schedule(message)
        send_now(self, message)

    patch.setattr(RetryQueue, "send_now", deletes_first)


def a_cancel_only_deletes_the_schedule(patch: Patch) -> None:
    def cancel(self: Any, request_id: str, why: str) -> RetryCancelled:
        attempt = operations._the_attempt(request_id, 2)
        return RetryCancelled(2, self._queue.delete_schedule(attempt))

    patch.setattr(RetryOperations, "cancel", cancel)


def a_cancel_is_settled_before_its_dead_letter(patch: Patch) -> None:
    update = ledger.CANCEL_UPDATE.replace("#status = :failed", "#status = :dead_lettered")
    patch.setattr(ledger, "CANCEL_UPDATE", update)


def decided_by_the_built_in_policy(patch: Patch) -> None:
    latest = PolicyParameter.latest

    def falls_back(self: Any) -> Policy:
        try:
            return latest(self)
        except PolicyUnavailable:
            return BUILT_IN

    patch.setattr(PolicyParameter, "latest", falls_back)


@pytest.mark.parametrize(
    ("remove", "plan", "faults", "broken"),
    [
        (f24_an_attempt_is_claimed_twice, SENT_TWICE, 0, "R2"),
        (f25_an_earlier_attempt_is_claimed_after_a_later_one, Plan((("a", '{"fails": 9}'),), copies=1), 0, "R2"),
        (f24_a_live_lease_is_taken_over, SENT_TWICE, 0, "R2"),
        (f24_two_workers_take_over, Plan(POISON.requests * 2), 1, "R2"),
        (a_lost_claim_settles_and_succeeded_work_is_claimed, SUCCEEDS, 1, "R2"),
        (f24_a_dead_attempt_begins_again, FAILS_ONCE, 1, "R2"),
        (f25_recorded_after_it_is_carried_out, FAILS_ONCE, 1, "R2"),
        (f25_deleted_before_it_is_scheduled, FAILS_ONCE, 1, "R1"),
        (f25_deleted_before_it_is_dead_lettered, POISON, 1, "R1"),
        (f25_deleted_after_any_exception, FAILS_ONCE, 1, "R1"),
        (
            f25_one_schedule_for_all_attempts,
            Plan((("a", '{"fails": 2, "retry_after": 1980}'),), fixed_policy(60, 3), 3),
            0,
            "R1",
        ),
        (another_payload_is_taken_for_a_repeat, Plan((*FAILS_ONCE.requests, OTHER_PAYLOAD)), 0, "R1"),
        (a_dead_letter_without_its_history, POISON, 0, "R4"),
        (an_attempt_that_began_is_cancelled, Plan(IMMEDIATELY, commands=("cancel",)), 0, "R2"),
        (a_schedule_is_deleted_before_its_message_is_sent, Plan(BY_SCHEDULER, commands=("run_now",)), 1, "R1"),
        (a_cancel_only_deletes_the_schedule, Plan(BY_SCHEDULER, commands=("cancel",)), 0, "R1"),
        (decided_by_the_built_in_policy, Plan((("a", '{"fails": 9}'),), reads_policy=True), 1, "R3"),
        (a_cancel_is_settled_before_its_dead_letter, Plan(FAILS_ONCE.requests, commands=("cancel",)), 0, "R1"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_its_guard_a_small_world_of_retries_breaks(
    remove: Callable[[Patch], None], plan: Plan, faults: int, broken: str, monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, history = first_violation(lambda: RetryWorld(plan), faults)
    assert name == broken, history


def test_without_its_guard_a_random_schedule_of_retries_breaks(monkeypatch: Patch) -> None:
    f24_an_attempt_is_claimed_twice(monkeypatch)
    assert first_broken(retry_world.random_world, range(2000))[0] == "R2"
