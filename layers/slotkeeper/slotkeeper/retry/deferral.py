"""Messages whose attempt may not begin yet: they are hidden, or sent to the queue again, and spend no attempt."""

from __future__ import annotations

import math

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from slotkeeper.retry.attempt import WorkDeferred
from slotkeeper.retry.delivery import FIRST_RECEIVED_ATTRIBUTE, RetryQueue
from slotkeeper.retry.downstream.downstreams import Rejection
from slotkeeper.retry.message import Message, instant
from slotkeeper.retry.policy import share

# A hidden message of this age that is not due yet is sent again. SQS deletes it after at most 14 days (SQS quotas). The
# four days between are about nine deliveries.
RESEND_AGE_SECONDS = 10 * 86400
# SQS dead-letters a message without a reason after the queue's maxReceiveCount, 1,000 at most. A message that is held
# back is sent again before that. If deleting the original fails, every further receive would add a copy, so it is sent
# at some receives only.
RESEND_RECEIVES, RESEND_EVERY = 900, 30
# Messages that are held back return within this time after an attempt may begin, unless that is more than the
# containers may handle (Rejection.most_per_second). Longer, and no message would be visible while the limit grows.
MAX_SPREAD_SECONDS = 60.0
BACKLOG_SECONDS = 10.0  # for how long a container uses the same number of waiting messages


class NotYetDue(Exception):
    """The message is not due yet and was received before. It is hidden, if possible until it is due."""


class WaitsForDownstream(Exception):
    """The downstream may not be called now. The message is hidden and comes back."""


class Deferrals:
    """Defers messages of one queue."""

    def __init__(self, queue: RetryQueue) -> None:
        self._queue = queue
        self._backlog = 0
        self._counted_at = -math.inf

    def until_due(self, record: SQSRecord, message: Message, not_before: float, now: float) -> WorkDeferred:
        """Send a message that is not due yet to the queue again, or hide it.

        A message is sent again at its first receive, and the original is deleted. A second receive has one of two
        causes, and the worker cannot determine which:

        - It was sent, and only deleting the original failed. Sending it at each receive would multiply the copies.
        - Sending failed or the worker died, and this message is the only one that brings the attempt.

        So at later receives the message is hidden for as long as SQS allows. It is sent again only when SQS would soon
        delete it because of its age.

        Raises:
            NotYetDue: the message is hidden and must stay on the queue.
        """
        if _receives(record) > 1:
            self._queue.hide(record.receipt_handle, not_before - now)
            if _age(record, now) < RESEND_AGE_SECONDS:
                raise NotYetDue(f"the message is due at {instant(not_before)} and was received before; it is hidden")
        self._queue.send_on(message, not_before, now)
        return WorkDeferred(not_before)

    def hold_back(self, record: SQSRecord, message: Message, held: Rejection, now: float) -> WorkDeferred:
        """Hide a message until the downstream may be called, or send it again before SQS dead-letters or deletes it.

        Messages return spread over time, in proportion to the number that waits, so that a recovery is no stampede.

        Raises:
            WaitsForDownstream: the message is hidden and must stay on the queue.
        """
        receives = _receives(record)
        spread = spread_seconds(self._waiting(now), held.per_second, held.most_per_second)
        wait = max(0.0, held.not_before - now) + spread * share(message.request_id, receives)
        if (receives >= RESEND_RECEIVES and receives % RESEND_EVERY == 0) or _age(record, now) >= RESEND_AGE_SECONDS:
            self._queue.send_copy(message, wait, first_received(record))
            return WorkDeferred(now + wait)
        self._queue.hide(record.receipt_handle, max(1.0, wait))
        raise WaitsForDownstream(
            f"downstream {held.name!r}: {held.reason}; the message comes back in about {wait:.0f} s"
        )

    def _waiting(self, now: float) -> int:
        if now - self._counted_at >= BACKLOG_SECONDS:
            self._backlog, self._counted_at = self._queue.backlog(), now
        return self._backlog


def spread_seconds(waiting: int, per_second: float, most_per_second: float) -> float:
    """Over how many seconds the waiting messages return.

    Args:
        per_second: how many the downstream could take.
        most_per_second: how many the containers may handle. Each return is an invocation: without this bound, 100,000
            messages would keep every container busy during an outage, also for the messages of another downstream.
    """
    return waiting / min(max(per_second, waiting / MAX_SPREAD_SECONDS), most_per_second)


def waiting_since(record: SQSRecord, message: Message, max_age: float) -> float:
    """From when the age of a message that is held back counts, epoch seconds.

    It is the start of the request's first attempt, or, before any attempt, the first receive. A message that was older
    than `max_age` seconds when it was first received was redriven by an operator: it has its whole age again, because
    no other message of it is checked for its age.
    """
    received = first_received(record)
    first = message.retries[0] if message.retries else received
    return first if received - first <= max_age else received


def first_received(record: SQSRecord) -> float:
    """When the request was first received: the time in the message, or if it is not a copy, SQS's; epoch seconds.

    A time that is not before this message's own first receive was not set by a worker, and is ignored: with a time in
    the future, or NaN, the message would never be too old.
    """
    received = int(record.attributes.get("ApproximateFirstReceiveTimestamp", "") or _sent(record)) / 1000
    attribute = record.message_attributes[FIRST_RECEIVED_ATTRIBUTE]
    try:
        kept = float((attribute and attribute.get("stringValue")) or "")
    except ValueError:
        return received
    return kept if kept <= received else received


def _receives(record: SQSRecord) -> int:
    return int(record.attributes.approximate_receive_count)


def _sent(record: SQSRecord) -> int:
    return int(record.attributes.sent_timestamp)


def _age(record: SQSRecord, now: float) -> float:
    return now - _sent(record) / 1000
