"""Outcomes of one delivery of a work message: succeeded, retried, dead-lettered or left; and its row in the ledger."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.retry import WorkRequest
from slotkeeper.retry.attempt import MAX_RESULT_CHARACTERS, WorkDeadLettered, WorkDeferred, WorkRetried, WorkSucceeded
from slotkeeper.retry.consumer import (
    QUICK_RETRY_RECEIVES,
    QUICK_RETRY_SECONDS,
    RESERVED_SECONDS,
    NoTimeLeft,
)
from slotkeeper.retry.delivery import PlannedDelivery
from slotkeeper.retry.ledger import DEAD_LETTERED, FAILED, SUCCEEDED, WAITING
from slotkeeper.retry.message import instant, parse_message
from slotkeeper.retry.policy import MAX_AGE_SECONDS, PolicyUnavailable
from tests.simulation.account.boundary import Killed, kill_before, refuse
from tests.unit.worker_harness import INVOCATION, NOW, VISIBILITY, WorkerHarness

PLAIN = json.dumps({"default": {"jitter": "none", "base_seconds": 30}})


def test_successful_work_is_recorded_with_its_result_and_the_message_is_deleted(workplace: WorkerHarness) -> None:
    assert workplace.consume(workplace.send(a=1)) == WorkSucceeded({"attempt": 1})
    row = workplace.row()
    assert (row["status"], row["result"]) == (SUCCEEDED, '{"attempt": 1}')
    assert (workplace.effects, workplace.queue, workplace.dead_letters) == ([("r", 1)], [], [])


def test_work_receives_its_request_and_its_time_limit(workplace: WorkerHarness) -> None:
    received: list[Any] = []
    workplace.perform = lambda *arguments: received.append(arguments)
    workplace.consume(
        workplace.send(body='{"request_id": "r", "payload": {"a": 1}, "retries": ["2027-01-15T08:00:00Z"]}')
    )
    assert received == [(WorkRequest("r", {"a": 1}, 2), 50)]


@pytest.mark.parametrize(("left", "seconds"), [(120.0, 50.0), (65.0, 50.0), (40.0, 25.0), (16.0, 1.0)])
def test_work_gets_the_remaining_time_minus_the_reserve(workplace: WorkerHarness, left: float, seconds: float) -> None:
    workplace.remaining = left
    workplace.consume(workplace.send())
    assert workplace.seconds == seconds


def test_nothing_starts_with_too_little_time_left(workplace: WorkerHarness) -> None:
    workplace.remaining = RESERVED_SECONDS + 0.9
    with pytest.raises(NoTimeLeft, match="16 s of the invocation are left, and 15 s are reserved"):
        workplace.consume(workplace.send())
    assert (workplace.calls, workplace.performed, len(workplace.queue)) == ([], [], 1)


def test_an_attempt_is_leased_for_longer_than_its_invocation_lasts(workplace: WorkerHarness) -> None:
    workplace.remaining = 80.5
    with pytest.raises(Killed):
        workplace.consume(workplace.send(dies=1))
    assert float(workplace.row()["lease_until"]) == NOW + 80.5 + 5


def test_failed_work_is_retried_after_the_delay_of_its_policy(workplace: WorkerHarness) -> None:
    workplace.put_policy(PLAIN)
    outcome = workplace.consume(workplace.send(fails=1))
    assert outcome == WorkRetried(PlannedDelivery("delay", NOW + 30), "not now")
    (queued,) = workplace.queue
    assert queued.visible_at == NOW + 30
    assert parse_message(queued.body).retries == (NOW,)
    row = workplace.row()
    assert (row["status"], row["next_attempt_at"]) == (WAITING, instant(NOW + 30))
    assert row["last_error"] == "not now"


def test_any_exception_of_the_work_is_a_failed_attempt(workplace: WorkerHarness) -> None:
    def fails(_request: WorkRequest, _seconds: float) -> None:
        raise KeyError("field")

    workplace.perform = fails
    outcome = workplace.consumed(workplace.send(), WorkRetried)
    assert outcome.reason == "KeyError: 'field'"
    assert isinstance(outcome.cause, KeyError)


@pytest.mark.parametrize(
    ("policy", "payload", "attempts"),
    [
        pytest.param('{"default": {"max_attempts": 3}}', {"fails": 99}, [1, 2, 3], id="fails"),
        pytest.param("{}", {"dies": 99}, [1, 2, 3, 4, 5], id="dies, by the built-in rule for Died"),
    ],
)
def test_r3_a_request_that_always_fails_is_dead_lettered_after_its_policys_attempts(
    workplace: WorkerHarness, policy: str, payload: dict[str, Any], attempts: list[int]
) -> None:
    workplace.put_policy(policy)
    workplace.send(**payload)
    workplace.live()
    assert [attempt for _, attempt in workplace.performed] == attempts
    texts = workplace.dead_letter.texts
    assert (texts["code"], texts["first_attempt_at"]) == ("AttemptsExhausted", instant(NOW))
    assert [entry["attempt"] for entry in json.loads(texts["history"])] == attempts


def test_an_invalid_message_is_dead_lettered_without_a_ledger_write(workplace: WorkerHarness) -> None:
    outcome = workplace.consumed(workplace.send(body="junk"), WorkDeadLettered)
    assert (outcome.code, workplace.dead_letter.texts["code"]) == ("InvalidMessage", "InvalidMessage")
    assert workplace.calls == ["SendMessage"]


FIFTY_ATTEMPTS = json.dumps({"default": {"jitter": "none", "max_attempts": 50}})
EIGHT_MADE = json.dumps({"request_id": "r", "payload": {"fails": 99}, "retries": ["2027-01-15T07:59:00Z"] * 7})


@pytest.mark.parametrize("trouble", ["ThrottlingException", "ParameterNotFound", "a typo"])
def test_a_container_without_a_policy_decides_nothing_about_a_failed_attempt(
    workplace: WorkerHarness, trouble: str
) -> None:
    """The built-in policy would dead-letter a request that the operator's policy retries."""
    if trouble == "a typo":
        workplace.put_policy('{"default": {"max_attempt": 50}}')
    else:
        refuse(workplace.ssm, "GetParameter", trouble)
    queued = workplace.send(body=EIGHT_MADE)
    assert workplace.deliver(queued) is None
    assert isinstance(workplace.left[0], PolicyUnavailable)
    assert (workplace.queue, workplace.dead_letters, workplace.row()["status"]) == ([queued], [], FAILED)
    assert queued.visible_at == NOW + QUICK_RETRY_SECONDS
    assert len(workplace.invalid_policies) == 1
    workplace.put_policy(FIFTY_ATTEMPTS)
    outcome = workplace.consumed(queued, WorkRetried)
    assert (outcome.reason, outcome.died) == ("not now", False)
    assert workplace.performed == [("r", 8)]
    assert parse_message(workplace.schedules()[0]["Target"]["Input"]).attempt == 9
    assert [entry["M"]["attempt"] for entry in workplace.row()["history"]] == [{"N": "8"}]


def test_poison_needs_no_policy(workplace: WorkerHarness) -> None:
    refuse(workplace.ssm, "GetParameter", "ParameterNotFound", times=99)
    workplace.consume(workplace.send(poison="bad"))
    assert workplace.dead_letter.texts["code"] == "Poison"


@pytest.mark.parametrize("left", [RESERVED_SECONDS + 0.9, 3.0, 0.0])
def test_work_without_time_is_not_called_and_uses_up_no_attempt(workplace: WorkerHarness, left: float) -> None:
    def claim_slowly() -> None:
        workplace.remaining = left

    workplace.put_policy('{"default": {"max_attempts": 1}}')
    workplace.strike(1, "after", claim_slowly)
    outcome = workplace.consumed(workplace.send(), WorkRetried)
    assert not outcome.counted
    assert (
        outcome.reason == f"TooSlow: {left:.0f} s of the invocation were left after the claim; the work was not called"
    )
    assert workplace.performed == []
    message = parse_message(workplace.queue[0].body)
    assert (message.attempt, message.uncounted) == (2, 1)
    workplace.remaining = INVOCATION
    workplace.live()
    assert workplace.effects == [("r", 2)]


@pytest.mark.parametrize(("client", "operation"), [("ssm", "GetParameter"), ("dynamodb", "UpdateItem")])
def test_a_message_without_a_claim_or_policy_is_retried_soon_but_not_too_often(
    workplace: WorkerHarness, client: str, operation: str
) -> None:
    """SQS would dead-letter it after a thousand receives, without a reason."""
    refuse(getattr(workplace, client), operation, "ThrottlingException", times=99)
    queued = workplace.send(fails=1)
    waits = []
    for _ in range(QUICK_RETRY_RECEIVES + 2):
        workplace.deliver(queued)
        waits.append(queued.visible_at - workplace.now)
    assert waits == [QUICK_RETRY_SECONDS] * QUICK_RETRY_RECEIVES + [VISIBILITY] * 2


def test_a_failed_visibility_change_leaves_the_message_hidden_for_its_timeout(workplace: WorkerHarness) -> None:
    refuse(workplace.dynamodb, "UpdateItem", "ThrottlingException")
    refuse(workplace.sqs, "ChangeMessageVisibility", "AccessDenied")
    queued = workplace.send()
    workplace.deliver(queued)
    assert queued.visible_at == NOW + VISIBILITY


def not_before(due: float | str) -> Any:
    return {"not_before": {"DataType": "Number", "StringValue": str(due)}}


def test_an_early_message_is_deferred_without_work(workplace: WorkerHarness) -> None:
    assert workplace.consume(workplace.send(attributes=not_before(NOW + 2000))) == WorkDeferred(NOW + 2000)
    (queued,) = workplace.queue
    assert queued.visible_at == NOW + 900
    assert queued.attributes["not_before"] == {"DataType": "Number", "StringValue": "1800002000"}
    assert (workplace.calls, workplace.performed) == (["SendMessage"], [])
    workplace.live()
    assert (workplace.effects, workplace.now) == ([("r", 1)], NOW + 2000)


def test_an_early_message_is_deferred_once_if_it_cannot_be_deleted(workplace: WorkerHarness) -> None:
    """Otherwise each delivery would send another message, and their number would double with every hop."""
    queued = workplace.send(attributes=not_before(NOW + 2000))
    workplace.consume(queued)
    workplace.queue.append(queued)
    assert workplace.deliver(queued) is None
    assert (len(workplace.queue), queued.visible_at) == (2, NOW + 2000)
    workplace.live()
    assert workplace.performed == [("r", 1)]


@pytest.mark.parametrize("trouble", ["refused", "died"])
def test_r4_an_early_message_is_deferred_again_before_sqs_removes_it(workplace: WorkerHarness, trouble: str) -> None:
    """SQS deletes it after 14 days, and dead-letters it after a thousand receives. It is due in 20 days."""
    queued = workplace.send(attributes=not_before(NOW + 20 * 86400))
    if trouble == "refused":
        refuse(workplace.sqs, "SendMessage", "Throttling")
    else:
        kill_before(workplace.sqs, "SendMessage")
    outcomes = [workplace.deliver(queued)]
    while queued in workplace.queue:
        outcomes.append(workplace.deliver(queued))
    assert outcomes == [None] * (len(outcomes) - 1) + [WorkDeferred(NOW + 20 * 86400)]
    assert len(outcomes) < 30
    assert workplace.now < NOW + 14 * 86400
    (copy,) = workplace.queue
    assert copy.texts["not_before"] == str(int(NOW) + 20 * 86400)
    assert (workplace.performed, workplace.dead_letters) == ([], [])


@pytest.mark.parametrize(
    "due",
    ["0", "soon", "nan", "inf", "-inf", str(NOW - 1), str(NOW + 0.9), str(NOW * 1000), str(NOW + MAX_AGE_SECONDS + 1)],
)
def test_an_impossible_not_before_does_not_defer_the_message(workplace: WorkerHarness, due: str) -> None:
    workplace.consumed(workplace.send(attributes=not_before(due)), WorkSucceeded)


def test_a_request_without_space_for_its_history_is_dead_lettered_without_work(
    workplace: WorkerHarness,
) -> None:
    workplace.use(max_message_bytes=1024)
    body = workplace.send(filling="x" * 930).body
    workplace.live()
    dead_letter = workplace.dead_letter
    assert (dead_letter.texts["code"], dead_letter.body, workplace.performed) == ("TooLarge", body, [])
    assert dead_letter.texts["reason"] == (
        f"the body has {len(body)} bytes; a request may have at most 768. Put the payload into S3 and send its key"
    )


def test_a_retry_that_does_not_fit_the_queue_is_dead_lettered_with_its_size(workplace: WorkerHarness) -> None:
    """A sender wrote more attempts into the body than its reserve allows."""
    workplace.use(max_message_bytes=1024)
    workplace.put_policy('{"default": {"max_attempts": 100}}')
    body = json.dumps({"request_id": "r", "payload": {"fails": 40}, "retries": ["2027-01-15T07:59:00Z"] * 34})
    workplace.send(body=body)
    workplace.live()
    assert workplace.dead_letter.texts["code"] == "TooLarge"
    reason = workplace.dead_letter.texts["reason"]
    assert "attempt 38 has 1094 bytes" in reason
    assert reason.endswith("the queue accepts at most 1024, so it is not retried. The last error: not now")
    assert workplace.row()["status"] == DEAD_LETTERED


@pytest.mark.parametrize(
    ("result", "recorded"),
    [
        ({1, 2}, "is not JSON"),
        (float, "is not JSON"),
        ({"a": "x" * MAX_RESULT_CHARACTERS}, "characters, above 32768"),
    ],
)
def test_a_result_that_cannot_be_recorded_does_not_undo_the_work(
    workplace: WorkerHarness, result: Any, recorded: str
) -> None:
    workplace.perform = lambda _request, _seconds: result
    assert workplace.consume(workplace.send()) == WorkSucceeded(result)
    assert recorded in workplace.row()["result"]
