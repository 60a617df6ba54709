"""The three ways to deliver the next attempt: the delay of SQS, a one-time schedule, or hops through SQS."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.retry.delivery import (
    MAX_SCHEDULE_INPUT_BYTES,
    MIN_SCHEDULE_AHEAD_SECONDS,
    PlannedDelivery,
    TooLarge,
    schedule_name,
)
from slotkeeper.retry.message import Message, parse_message
from tests.simulation.account.boundary import lose_answer, refuse
from tests.unit.work_messages import due
from tests.unit.worker_harness import ARN, GROUP, LARGEST, NOW, ROLE, WorkerHarness

MESSAGE = Message("r", {"a": "é"}, (NOW,))
QUEUE = f"{ARN}work"


def at(seconds: float) -> float:
    return NOW + seconds


def of_size(size: int) -> Message:
    """A message with a body of that many bytes."""
    empty = Message("r", {"filling": ""}, (NOW,))
    return Message("r", {"filling": "x" * (size - len(empty.to_json()))}, (NOW,))


@pytest.mark.parametrize(
    ("seconds", "delay"),
    [(-(10**6), 0), (-0.5, 0), (0, 0), (0.001, 1), (1, 1), (29.2, 30), (899.5, 900), (900, 900)],
)
def test_a_retry_due_within_15_minutes_uses_the_queues_delay_and_is_never_early(
    workplace: WorkerHarness, seconds: float, delay: int
) -> None:
    assert workplace.retries.schedule(MESSAGE, at(seconds), NOW) == PlannedDelivery("delay", at(seconds))
    (queued,) = workplace.queue
    assert queued.visible_at == at(delay)
    assert parse_message(queued.body) == MESSAGE
    assert workplace.schedules() == []


BYTES = Message("r", {"filling": "é" * (MAX_SCHEDULE_INPUT_BYTES // 2)}, (NOW,))


@pytest.mark.parametrize(
    ("max_delay", "message", "seconds", "by"),
    [
        (0, MESSAGE, 1, "schedule"),
        (0, MESSAGE, 0, "delay"),
        (0, MESSAGE, -(10**6), "delay"),
        (60, MESSAGE, 60, "delay"),
        (60, MESSAGE, 60.5, "schedule"),
        (900, of_size(MAX_SCHEDULE_INPUT_BYTES), 5000, "schedule"),
        (900, of_size(MAX_SCHEDULE_INPUT_BYTES + 1), 5000, "hops"),
        (900, BYTES, 5000, "hops"),
    ],
    ids=lambda value: "" if isinstance(value, Message) else str(value),
)
def test_a_retry_is_delivered_by_its_wait_and_its_size(
    workplace: WorkerHarness, max_delay: int, message: Message, seconds: float, by: str
) -> None:
    workplace.use(max_delay=max_delay)
    assert workplace.retries.schedule(message, at(seconds), NOW).by == by
    assert workplace.refused_schedules == []


@pytest.mark.parametrize("max_delay", [-1, 901])
def test_a_maximum_delay_outside_the_limits_of_sqs_is_refused(workplace: WorkerHarness, max_delay: int) -> None:
    with pytest.raises(ValueError, match="max_delay must be 0 to 900 seconds"):
        workplace.use(max_delay=max_delay)


@given(now=st.floats(0, 4e9), seconds=st.floats(0.001, 31 * 86400))
def test_a_schedule_is_ahead_of_the_clock_and_never_early_nor_a_minute_late(
    workplace: WorkerHarness, now: float, seconds: float
) -> None:
    workplace.use(max_delay=0)
    workplace.now = now
    message = Message(f"{now} {seconds}", {})  # one schedule per example
    delivery = workplace.retries.schedule(message, now + seconds, now)
    schedule = workplace.aws.schedules[schedule_name(message, QUEUE)]
    wanted = max(now + MIN_SCHEDULE_AHEAD_SECONDS, now + seconds)
    assert wanted <= due(schedule) < wanted + 60
    assert delivery == PlannedDelivery("schedule", due(schedule))


@pytest.mark.parametrize(("now", "on"), [(39.9, 60), (40.0, 60), (40.1, 120), (59.5, 120)])
def test_a_minute_that_begins_within_20_s_is_skipped(workplace: WorkerHarness, now: float, on: float) -> None:
    """Scheduler never invokes a schedule whose minute has already started by its clock when the call arrives."""
    workplace.use(max_delay=0)
    workplace.retries.schedule(MESSAGE, at(now + 0.1), at(now))
    assert due(workplace.schedules()[0]) == at(on)


def test_a_schedule_has_all_required_settings(workplace: WorkerHarness) -> None:
    workplace.retries.schedule(MESSAGE, at(5000), NOW)
    (schedule,) = workplace.schedules()
    assert schedule["GroupName"] == GROUP
    assert schedule["ScheduleExpression"] == "at(2027-01-15T09:24:00)"
    assert schedule.get("ScheduleExpressionTimezone", "UTC") == "UTC"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert schedule["ActionAfterCompletion"] == "DELETE"
    assert schedule["Target"] == {
        "Arn": QUEUE,
        "RoleArn": ROLE,
        "Input": MESSAGE.to_json(),
        "DeadLetterConfig": {"Arn": f"{ARN}schedules-dead"},
        "RetryPolicy": {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185},
    }


def test_a_schedules_input_contains_no_scheduler_keyword(workplace: WorkerHarness) -> None:
    message = Message(
        "<aws.scheduler.schedule-arn>", {"<aws.scheduler.execution-id>": "\\<aws.scheduler.attempt-number>"}
    )
    workplace.retries.schedule(message, at(5000), NOW)
    text = workplace.schedules()[0]["Target"]["Input"]
    assert "<aws.scheduler." not in text
    assert parse_message(text) == message


@pytest.mark.parametrize("request_id", ["r", "x" * 128, "日本/語 \U0001f389", "../..", " "])
def test_a_schedules_name_is_valid_for_any_request_id(request_id: str) -> None:
    name = schedule_name(Message(request_id, {}, (NOW,) * 999), QUEUE)
    assert re.fullmatch(r"[0-9a-zA-Z-_.]{1,64}", name)


def test_each_attempt_has_one_unique_schedule_name() -> None:
    messages = [MESSAGE, MESSAGE.after(NOW), Message("R", {}, (NOW,)), Message("r-2", {}), Message("r", {})]
    assert len({schedule_name(message, QUEUE) for message in messages}) == len(messages)
    # A worker that finds its schedule's name taken treats its retry as scheduled, also one of another queue.
    assert schedule_name(MESSAGE, QUEUE) != schedule_name(MESSAGE, f"{ARN}another")
    assert schedule_name(MESSAGE, QUEUE) == schedule_name(Message("r", {"another": "payload"}, (NOW + 7,)), QUEUE)


def test_f25_a_retry_scheduled_twice_is_one_schedule(workplace: WorkerHarness) -> None:
    first = workplace.retries.schedule(MESSAGE, at(5000), NOW)
    assert workplace.retries.schedule(MESSAGE, at(5000), NOW + 700) == first
    assert len(workplace.schedules()) == 1
    assert (workplace.queue, workplace.refused_schedules) == ([], [])


@pytest.mark.parametrize("lookup", ["there is none", "Scheduler does not answer"])
def test_f25_a_conflict_without_a_readable_schedule_falls_back_to_hops(workplace: WorkerHarness, lookup: str) -> None:
    """ConflictException reports any "inconsistent state", not only a name that is taken."""
    refuse(workplace.scheduler, "CreateSchedule", "ConflictException")
    if lookup != "there is none":
        refuse(workplace.scheduler, "GetSchedule", "ThrottlingException")
    assert workplace.retries.schedule(MESSAGE, at(5000), NOW).by == "hops"
    assert (len(workplace.queue), len(workplace.refused_schedules)) == (1, 1)


@pytest.mark.parametrize(("max_delay", "seconds", "by"), [(900, 5000, "hops"), (60, 300, "delay")])
def test_a_refused_schedule_falls_back_to_the_queue_and_is_reported(
    workplace: WorkerHarness, max_delay: int, seconds: float, by: str
) -> None:
    workplace.use(max_delay=max_delay)
    refuse(workplace.scheduler, "CreateSchedule", "AccessDeniedException")
    assert workplace.retries.schedule(MESSAGE, at(seconds), NOW) == PlannedDelivery(by, at(seconds))
    assert len(workplace.queue) == 1
    assert "AccessDeniedException" in workplace.refused_schedules[0]


def test_a_schedule_with_an_unknown_outcome_falls_back_to_the_queue(workplace: WorkerHarness) -> None:
    lose_answer(workplace.scheduler, "CreateSchedule")
    assert workplace.retries.schedule(MESSAGE, at(5000), NOW).by == "hops"
    assert (len(workplace.queue), len(workplace.schedules()), len(workplace.refused_schedules)) == (1, 1, 1)


@pytest.mark.parametrize(("left", "delay"), [(5000, 900), (900.5, 900), (899.1, 900), (2.0, 2), (1.2, 2)])
def test_a_hop_is_deferred_unchanged_until_it_is_due(workplace: WorkerHarness, left: float, delay: int) -> None:
    workplace.retries.send_on(MESSAGE, at(left), NOW)
    (queued,) = workplace.queue
    assert queued.visible_at == at(delay)
    assert queued.texts["not_before"] == f"{at(left):.15g}"
    assert parse_message(queued.body) == MESSAGE


def test_a_queued_retry_has_its_key_and_retry_count_as_attributes(workplace: WorkerHarness) -> None:
    workplace.retries.schedule(Message("key \ufffe", {}, (NOW, NOW + 1)), at(10), NOW)
    assert workplace.queue[0].attributes == {
        "idempotency_key": {"DataType": "String", "StringValue": "key ?"},
        "retry_count": {"DataType": "Number", "StringValue": "2"},
    }


# Bytes of the attributes of a retry of "r": idempotency_key String r, retry_count Number 1.
ATTRIBUTES = 15 + 6 + 1 + 11 + 6 + 1


def test_a_message_too_large_for_the_queue_is_refused_with_its_size(workplace: WorkerHarness) -> None:
    with pytest.raises(TooLarge, match=f"attempt 2 has {LARGEST + 1} bytes .* the queue accepts at most {LARGEST}"):
        workplace.retries.schedule(of_size(LARGEST - ATTRIBUTES + 1), at(10), NOW)
    assert (workplace.queue, workplace.calls) == ([], [])
    assert workplace.retries.schedule(of_size(LARGEST - ATTRIBUTES), at(10), NOW).by == "delay"
