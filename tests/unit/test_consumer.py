"""One delivery of a work message: worked on, booked again, set aside or left, and what the ledger says then."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.retry import Request, Retryable
from slotkeeper.retry.attempt import RESULT_LENGTH, DeadLettered, NotDue, Retrying, Succeeded
from slotkeeper.retry.booking import Booked
from slotkeeper.retry.consumer import RESERVE, NoTimeLeft
from slotkeeper.retry.ledger import DEAD_LETTERED, FAILED, RUNNING, SUCCEEDED, WAITING
from slotkeeper.retry.message import instant, parse_message
from slotkeeper.retry.policy import LONGEST_AGE
from tests.support.boundary import Killed, kill_before, refuse
from tests.unit.working import NOW, When, Workplace

PLAIN = json.dumps({"default": {"jitter": "none", "base_seconds": 30}})


class RateLimited(Retryable):
    pass


def code(workplace: Workplace) -> str:
    (letter,) = workplace.dead_letters
    return str(letter.attributes["code"]["StringValue"])


def test_work_that_succeeds_is_noted_with_its_result_and_the_message_is_gone(workplace: Workplace) -> None:
    assert workplace.consume(workplace.send(a=1)) == Succeeded({"attempt": 1})
    row = workplace.row()
    assert (row["status"], row["result"]) == (SUCCEEDED, '{"attempt": 1}')
    assert (workplace.effects, workplace.queue, workplace.dead_letters) == ([("r", 1)], [], [])


def test_work_is_told_its_request_and_how_long_it_may_take(workplace: Workplace) -> None:
    told: list[Any] = []
    workplace.perform = lambda *arguments: told.append(arguments)
    workplace.consume(
        workplace.send(body='{"request_id": "r", "payload": {"a": 1}, "retries": ["2027-01-15T08:00:00Z"]}')
    )
    assert told == [(Request("r", {"a": 1}, 2), 50)]


@pytest.mark.parametrize(("left", "seconds"), [(120.0, 50.0), (65.0, 50.0), (40.0, 25.0), (16.0, 1.0)])
def test_work_gets_what_the_invocation_has_left_but_for_its_end(
    workplace: Workplace, left: float, seconds: float
) -> None:
    workplace.remaining = left
    workplace.consume(workplace.send())
    assert workplace.seconds == seconds


def test_with_too_little_left_nothing_is_begun(workplace: Workplace) -> None:
    workplace.remaining = RESERVE + 0.9
    with pytest.raises(NoTimeLeft, match="16 s are left of the invocation, and 15 s are kept for its end"):
        workplace.consume(workplace.send())
    assert (workplace.calls, workplace.performed, len(workplace.queue)) == ([], [], 1)


def test_an_attempt_is_leased_for_longer_than_its_invocation_lasts(workplace: Workplace) -> None:
    workplace.remaining = 80.5
    with pytest.raises(Killed):
        workplace.consume(workplace.send(dies=1))
    assert float(workplace.row()["lease_until"]) == NOW + 80.5 + 5


def test_work_that_fails_comes_back_when_its_policy_says(workplace: Workplace) -> None:
    workplace.put_policy(PLAIN)
    outcome = workplace.consume(workplace.send(fails=1))
    assert outcome == Retrying(Booked("delay", NOW + 30), "not now")
    (letter,) = workplace.queue
    assert letter.visible_at == NOW + 30
    assert parse_message(letter.body).retries == (NOW,)
    row = workplace.row()
    assert (row["status"], row["next_attempt_at"]) == (WAITING, instant(NOW + 30))
    assert row["last_error"] == "not now"


def test_work_may_fail_of_anything(workplace: Workplace) -> None:
    def fails(_request: Request, _seconds: float) -> None:
        raise KeyError("field")

    workplace.perform = fails
    outcome = workplace.consume(workplace.send())
    assert isinstance(outcome, Retrying)
    assert outcome.reason == "KeyError: 'field'"
    assert isinstance(outcome.cause, KeyError)


def test_a_downstreams_retry_after_wins(workplace: Workplace) -> None:
    outcome = workplace.consume(workplace.send(fails=1, retry_after=77))
    assert isinstance(outcome, Retrying)
    assert outcome.booked.due == NOW + 77


def test_a_failure_that_does_not_count_is_carried_as_one(workplace: Workplace) -> None:
    def limited(_request: Request, _seconds: float) -> None:
        raise RateLimited("later")

    workplace.perform = limited
    workplace.consume(workplace.send())
    workplace.consume(workplace.queue[0])
    message = parse_message(workplace.queue[0].body)
    assert (message.attempt, message.uncounted) == (3, 2)


def test_r3_poison_leaves_at_once_with_its_story(workplace: Workplace) -> None:
    outcome = workplace.consume(workplace.send(poison="no such object"))
    assert outcome == DeadLettered("Poison", "no such object")
    assert (code(workplace), workplace.row()["status"], workplace.queue) == ("Poison", DEAD_LETTERED, [])


def test_r3_what_always_fails_leaves_within_its_policys_attempts(workplace: Workplace) -> None:
    workplace.put_policy('{"default": {"max_attempts": 3}}')
    workplace.send(fails=99)
    workplace.live()
    assert workplace.performed == [("r", 1), ("r", 2), ("r", 3)]
    assert code(workplace) == "AttemptsExhausted"
    letter = workplace.dead_letters[0]
    assert [entry["attempt"] for entry in json.loads(letter.attributes["history"]["StringValue"])] == [1, 2, 3]
    assert letter.attributes["first_attempt_at"]["StringValue"] == instant(NOW)


def test_r3_what_would_come_too_late_leaves(workplace: Workplace) -> None:
    workplace.consume(workplace.send(fails=1, retry_after=86_401))
    assert code(workplace) == "TooOld"


def test_what_is_no_message_leaves_at_once_and_the_ledger_never_hears_of_it(workplace: Workplace) -> None:
    outcome = workplace.consume(workplace.send(body="junk"))
    assert isinstance(outcome, DeadLettered)
    assert (outcome.code, code(workplace)) == ("InvalidMessage", "InvalidMessage")
    assert workplace.calls == ["SendMessage"]


def test_a_policy_that_is_not_there_is_the_built_in_one(workplace: Workplace) -> None:
    refuse(workplace.ssm, "GetParameter", "ParameterNotFound")
    assert isinstance(workplace.consume(workplace.send(fails=1)), Retrying)
    assert "ParameterNotFound" in workplace.invalid_policies[0]


def test_a_policy_that_is_none_is_the_built_in_one(workplace: Workplace) -> None:
    workplace.put_policy('{"default": {"max_attempts": 0}}')
    workplace.send(fails=99)
    workplace.live()
    assert len(workplace.performed) == 8
    assert "max_attempts" in workplace.invalid_policies[0]


def test_an_attempt_that_died_is_not_made_again_but_counts(workplace: Workplace) -> None:
    letter = workplace.send(dies=1)
    workplace.deliver(letter)
    outcome = workplace.consume(letter)
    assert isinstance(outcome, Retrying)
    assert outcome.died
    assert outcome.reason.startswith("Died: nobody noted how the attempt ended")
    assert workplace.performed == [("r", 1)]
    assert parse_message(workplace.queue[0].body).retries == (NOW,)


def test_an_attempt_that_dies_every_time_is_set_aside(workplace: Workplace) -> None:
    workplace.send(dies=99)
    workplace.live()
    assert code(workplace) == "AttemptsExhausted"
    assert [attempt for _, attempt in workplace.performed] == [1, 2, 3, 4, 5]  # the built-in rule for Died


def test_a_decision_is_seen_through_by_another_delivery_and_not_made_anew(workplace: Workplace) -> None:
    workplace.put_policy(PLAIN)
    letter = workplace.send(fails=1)
    refuse(workplace.sqs, "SendMessage", "Throttling")
    with pytest.raises(ClientError, match="Throttling"):
        workplace.consume(letter)
    assert workplace.row()["status"] == FAILED
    workplace.put_policy('{"default": {"max_attempts": 1}}')
    workplace.use()
    outcome = workplace.consume(letter)
    assert outcome == Retrying(Booked("delay", NOW + 30), "not now")
    assert workplace.queue[0].visible_at == workplace.now  # its time has passed meanwhile
    assert workplace.performed == [("r", 1)]


@pytest.mark.parametrize(("when", "status"), [("before", RUNNING), ("after", FAILED)])
def test_nothing_is_booked_before_the_decision_is_noted(workplace: Workplace, when: When, status: str) -> None:
    letter = workplace.send(fails=1)
    workplace.strike(3, when, _dies)  # claim, policy, record
    workplace.deliver(letter)
    assert (workplace.deaths, workplace.queue, workplace.row()["status"]) == (1, [letter], status)


def _dies() -> None:
    raise Killed


def test_f25_a_retry_is_booked_before_its_message_is_given_up(workplace: Workplace) -> None:
    letter = workplace.send(fails=1)
    refuse(workplace.sqs, "SendMessage", "Throttling")
    workplace.deliver(letter)
    assert workplace.queue == [letter]
    workplace.live()
    assert workplace.effects == [("r", 2)]


def test_f25_a_dead_letter_is_sent_before_its_message_is_given_up(workplace: Workplace) -> None:
    letter = workplace.send(poison="bad")
    refuse(workplace.sqs, "SendMessage", "Throttling")
    workplace.deliver(letter)
    assert (workplace.queue, workplace.dead_letters) == ([letter], [])
    workplace.live()
    assert code(workplace) == "Poison"


def test_the_time_that_a_slow_claim_took_is_not_given_to_the_work(workplace: Workplace) -> None:
    def claim_slowly() -> None:
        workplace.remaining = 40

    workplace.strike(1, "after", claim_slowly)
    workplace.consume(workplace.send())
    assert workplace.seconds == 40 - RESERVE


def test_a_message_before_its_time_is_sent_on_and_not_worked_on(workplace: Workplace) -> None:
    due: Any = {"not_before": {"DataType": "Number", "StringValue": str(NOW + 2000)}}
    assert workplace.consume(workplace.send(attributes=due)) == NotDue(NOW + 2000)
    (letter,) = workplace.queue
    assert letter.visible_at == NOW + 900
    assert letter.attributes["not_before"] == {"DataType": "Number", "StringValue": "1800002000"}
    assert (workplace.calls, workplace.performed) == (["SendMessage"], [])
    workplace.live()
    assert (workplace.effects, workplace.now) == ([("r", 1)], NOW + 2000)


def test_a_message_before_its_time_is_sent_on_once_where_nothing_can_be_deleted(workplace: Workplace) -> None:
    """Else each of its deliveries made another one, which are twice as many with every hop."""
    due: Any = {"not_before": {"DataType": "Number", "StringValue": str(NOW + 2000)}}
    letter = workplace.send(attributes=due)
    workplace.consume(letter)
    workplace.queue.append(letter)
    assert [workplace.deliver(letter) for _ in range(2)] == [None, None]
    assert len(workplace.queue) == 2
    workplace.live()
    assert workplace.performed == [("r", 1)]


def test_a_message_before_its_time_whose_worker_died_over_it_stays_until_it_is_due(workplace: Workplace) -> None:
    due: Any = {"not_before": {"DataType": "Number", "StringValue": str(NOW + 2000)}}
    letter = workplace.send(attributes=due)
    kill_before(workplace.sqs, "SendMessage")
    workplace.deliver(letter)
    workplace.live()
    assert workplace.effects == [("r", 1)]
    assert NOW + 2000 <= workplace.now < NOW + 2000 + 720


@pytest.mark.parametrize(
    "told",
    ["0", "soon", "nan", "inf", "-inf", str(NOW - 1), str(NOW + 0.9), str(NOW * 1000), str(NOW + LONGEST_AGE + 1)],
)
def test_what_is_no_time_that_a_booking_could_have_set_keeps_nobody_waiting(workplace: Workplace, told: str) -> None:
    due = {"not_before": {"DataType": "Number", "StringValue": told}}
    assert isinstance(workplace.consume(workplace.send(attributes=due)), Succeeded)


def test_a_retry_that_no_schedule_takes_comes_in_hops_when_it_is_due(workplace: Workplace) -> None:
    refuse(workplace.scheduler, "CreateSchedule", "ThrottlingException")
    workplace.send(fails=1, retry_after=5000)
    workplace.live()
    assert (workplace.effects, workplace.now) == ([("r", 2)], NOW + 5000)


def test_a_request_without_room_for_its_story_is_set_aside_unworked_with_a_clear_reason(workplace: Workplace) -> None:
    workplace.use(largest=1024)
    body = workplace.send(filling="x" * 930).body
    workplace.live()
    letter = workplace.dead_letters[0]
    assert (code(workplace), letter.body, workplace.performed) == ("TooLarge", body, [])
    reason = letter.attributes["reason"]["StringValue"]
    assert reason == (
        f"the body has {len(body)} bytes, and a request may have 768; put its payload into S3, and send the key"
    )


def test_a_retry_that_does_not_fit_the_queue_is_set_aside_with_a_clear_reason(workplace: Workplace) -> None:
    """A body that somebody has sent with more attempts than there is room for."""
    workplace.use(largest=1024)
    workplace.put_policy('{"default": {"max_attempts": 100}}')
    body = json.dumps({"request_id": "r", "payload": {"fails": 40}, "retries": ["2027-01-15T07:59:00Z"] * 34})
    workplace.send(body=body)
    workplace.live()
    assert code(workplace) == "TooLarge"
    reason = workplace.dead_letters[0].attributes["reason"]["StringValue"]
    assert "attempt 38 is 1094 bytes" in reason
    assert reason.endswith("the queue takes 1024, so it was not tried again after not now")
    assert workplace.row()["status"] == DEAD_LETTERED


@pytest.mark.parametrize("length", [1_048_576 - 100, 1_048_576])
@pytest.mark.parametrize("payload", [{"fails": 1}, {"poison": "bad"}, {"dies": 1}])
def test_f25_a_message_of_a_mebibyte_always_leaves_the_queue(
    workplace: Workplace, length: int, payload: dict[str, Any]
) -> None:
    """Where a queue takes as much as SQS does, so that nothing is left for the story."""
    workplace.use(largest=1_048_576)
    empty = json.dumps({"request_id": "r", "payload": {**payload, "filling": ""}})
    workplace.send(body=empty.replace('"filling": ""', f'"filling": "{"x" * (length - len(empty))}"'))
    workplace.live()
    assert len(workplace.dead_letters) + len(workplace.effects) >= 1


@pytest.mark.parametrize("result", [{1, 2}, float, {"a": object()}, b"bytes"])
def test_a_result_that_is_no_json_does_not_undo_the_work(workplace: Workplace, result: Any) -> None:
    workplace.perform = lambda _request, _seconds: result
    assert workplace.consume(workplace.send()) == Succeeded(result)
    assert "is not JSON" in workplace.row()["result"]


def test_a_result_that_is_too_long_does_not_undo_the_work(workplace: Workplace) -> None:
    workplace.perform = lambda _request, _seconds: {"a": "x" * RESULT_LENGTH}
    workplace.consume(workplace.send())
    assert "characters, above 32768" in workplace.row()["result"]


def test_without_idempotency_nothing_is_worked_on(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_IDEMPOTENCY_DISABLED", "true")
    with (
        pytest.warns(match="Disabling idempotency"),
        pytest.raises(RuntimeError, match="POWERTOOLS_IDEMPOTENCY_DISABLED"),
    ):
        workplace.consume(workplace.send())
    assert (workplace.performed, len(workplace.queue)) == ([], 1)
