"""Messages that are held back: hidden, or sent again before SQS dead-letters or deletes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.retry.attempt import WorkDeferred
from slotkeeper.retry.deferral import (
    MAX_SPREAD_SECONDS,
    RESEND_EVERY,
    RESEND_RECEIVES,
    Deferrals,
    WaitsForDownstream,
    first_received,
    spread_seconds,
    waiting_since,
)
from slotkeeper.retry.downstream.downstreams import Rejection
from slotkeeper.retry.message import Message
from tests.unit.work_messages import QueuedMessage

NOW, DAY = 1_800_000_000.0, 86_400.0
HELD = Rejection("mail", "breaker", NOW + 30, 2.0)


class Queue:
    """Records what is hidden and copied."""

    def __init__(self, waiting: int = 0) -> None:
        self.waiting = waiting
        self.counts = 0
        self.hidden: list[float] = []
        self.copies: list[tuple[Message, float, float]] = []

    def backlog(self) -> int:
        self.counts += 1
        return self.waiting

    def hide(self, _handle: str, seconds: float) -> None:
        self.hidden.append(seconds)

    def send_copy(self, message: Message, wait: float, first_received: float) -> None:
        self.copies.append((message, wait, first_received))


def hold_back(
    queue: Queue, message: Message, receives: int = 1, age: float = 0.0, held: Rejection = HELD, **attributes: str
) -> WorkDeferred | None:
    """The outcome; None if the message is hidden."""
    queued = QueuedMessage(
        "{}",
        0.0,
        "m",
        {name: {"DataType": "Number", "StringValue": value} for name, value in attributes.items()},
        receives,
        sent_at=NOW - age,
    )
    deferrals: Any = Deferrals(queue)  # type: ignore[arg-type]
    try:
        outcome: WorkDeferred = deferrals.hold_back(queued.record, message, held, NOW)
        return outcome
    except WaitsForDownstream:
        return None


MESSAGE = Message("r", {"a": 1}, (NOW - 60, NOW - 30), 1)


@pytest.mark.parametrize(
    "receives", [1, 2, RESEND_RECEIVES - 1, RESEND_RECEIVES + 1, RESEND_RECEIVES + RESEND_EVERY - 1]
)
def test_a_message_is_hidden_until_an_attempt_may_begin(receives: int) -> None:
    queue = Queue()
    assert hold_back(queue, MESSAGE, receives, age=9.9 * DAY) is None
    assert (queue.hidden, queue.copies) == ([30.0], [])


@pytest.mark.parametrize(
    ("receives", "age"), [(RESEND_RECEIVES, 0), (RESEND_RECEIVES + RESEND_EVERY, 0), (2, 10 * DAY)]
)
def test_a_message_is_sent_again_before_sqs_dead_letters_or_deletes_it(receives: int, age: float) -> None:
    queue = Queue()
    assert hold_back(queue, MESSAGE, receives, age) == WorkDeferred(NOW + 30)
    assert (queue.hidden, queue.copies) == ([], [(MESSAGE, 30.0, NOW - age)])


def test_a_message_is_sent_again_several_times_before_a_thousand_receives() -> None:
    """A copy may fail, so a single one would not do. RetryWork's maxReceiveCount is 1,000."""
    queue = Queue()
    for receives in range(1, 1000):
        hold_back(queue, MESSAGE, receives)
    assert len(queue.copies) == 4


def test_a_copy_of_a_copy_keeps_the_first_time() -> None:
    queue = Queue()
    hold_back(queue, MESSAGE, RESEND_RECEIVES, age=10, first_received=str(NOW - 5 * DAY))
    assert queue.copies == [(MESSAGE, 30.0, NOW - 5 * DAY)]


def test_a_message_whose_attempt_may_begin_now_is_hidden_for_a_second() -> None:
    queue = Queue()
    hold_back(queue, MESSAGE, held=replace(HELD, not_before=NOW - 5))
    assert queue.hidden == [1.0]


def test_messages_return_spread_over_time_in_proportion_to_the_backlog() -> None:
    queue = Queue(waiting=40)
    for number in range(200):
        hold_back(queue, replace(MESSAGE, request_id=f"r-{number}"))
    waits = sorted(queue.hidden)
    assert (30 <= waits[0] < 31, 49 < waits[-1] <= 50) == (True, True)  # 40 messages at 2 per second
    assert all(3 <= sum(30 + 2 * n <= wait < 32 + 2 * n for wait in waits) <= 40 for n in range(10))


def test_a_message_returns_at_another_time_after_each_receive() -> None:
    queue = Queue(waiting=40)
    for receives in range(1, 20):
        hold_back(queue, MESSAGE, receives)
    assert len(set(queue.hidden)) == 19


@given(st.integers(0, 10**6), st.floats(2.0, 5000.0), st.floats(5.0, 5000.0))
def test_the_spread_is_a_minute_at_most_unless_too_many_would_return_per_second(
    waiting: int, rate: float, most: float
) -> None:
    spread = spread_seconds(waiting, rate, most)
    assert spread <= waiting / min(rate, most)
    assert spread <= MAX_SPREAD_SECONDS * 1.000001 or spread == waiting / most


@pytest.mark.parametrize("rate", [2.0, 400.0])
def test_with_many_messages_as_many_return_as_the_containers_may_handle(rate: float) -> None:
    assert spread_seconds(100_000, rate, 15.0) == pytest.approx(100_000 / 15)


def test_a_container_counts_the_backlog_once_in_ten_seconds() -> None:
    queue = Queue(waiting=5)
    deferrals: Any = Deferrals(queue)  # type: ignore[arg-type]
    record = QueuedMessage("{}", 0.0, "m", {}, sent_at=NOW).record
    for now in (NOW, NOW + 1, NOW + 9.9, NOW + 10):
        with pytest.raises(WaitsForDownstream, match=r"^downstream 'mail': breaker; the message comes back in about"):
            deferrals.hold_back(record, MESSAGE, HELD, now)
    assert queue.counts == 2


@pytest.mark.parametrize("kept", ["", "soon", "nan", "inf", str(NOW + 1e9)])
def test_a_first_received_time_that_no_worker_can_have_set_is_ignored(kept: str) -> None:
    attributes = {"first_received": {"DataType": "Number", "StringValue": kept}}
    record = QueuedMessage("{}", 0.0, "m", attributes, sent_at=NOW).record
    assert (first_received(record), waiting_since(record, Message("r", {}), DAY)) == (NOW, NOW)


@pytest.mark.parametrize(
    ("retries", "received", "since"),
    [
        pytest.param((), NOW - 50, NOW - 50, id="never attempted"),
        pytest.param((NOW - 3600, NOW - 60), NOW - 50, NOW - 3600, id="a retry"),
        pytest.param((NOW - 9 * DAY,), NOW - 50, NOW - 50, id="redriven after nine days"),
        pytest.param((NOW - 9 * DAY,), NOW - 7 * DAY, NOW - 7 * DAY, id="redriven, and held back for eight days"),
    ],
)
def test_the_age_counts_from_the_first_attempt_or_from_the_redrive(
    retries: tuple[float, ...], received: float, since: float
) -> None:
    attributes = {"ApproximateFirstReceiveTimestamp": str(int(received * 1000)), "SentTimestamp": "0"}
    record = SQSRecord({"attributes": attributes, "messageAttributes": {}})
    assert waiting_since(record, Message("r", {}, retries), DAY) == since
