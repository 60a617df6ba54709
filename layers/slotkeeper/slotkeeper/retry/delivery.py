"""Where the next attempt waits: in the queue itself, or with EventBridge Scheduler.

    due within `beyond` seconds      SQS, by its DelaySeconds
    due later                        a one-time schedule, to the minute, which sends the body to the queue
    due later, and no schedule will  SQS in hops: the message comes back every quarter of an hour, and is sent on as it
    take it (too large, refused)     is until its `not_before` has come

A retry may be scheduled twice (a lost answer, a second delivery that carries out the same plan). A schedule's name
allows only one; of two messages the ledger lets one pass.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws import sqs as message_attributes
from slotkeeper.retry.message import Message, instant

if TYPE_CHECKING:
    from mypy_boto3_scheduler import EventBridgeSchedulerClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageAttributeValueTypeDef

MAX_DELAY_SECONDS = 900  # seconds; SQS API Reference, SendMessage, DelaySeconds
# Seconds. A message is hidden for 12 hours at most, counted from its receive (SQS guide, "Amazon SQS visibility
# timeout"), and SQS refuses more: an hour for the invocation.
MAX_VISIBILITY_SECONDS = 11 * 3600

# What a schedule carries to its target. Not documented as a number where SQS's mebibyte is, so far below what is known
# to work; what is refused goes by hops.
MAX_SCHEDULE_INPUT_BYTES = 131_072

# How long Scheduler tries to deliver, and how often: its own maxima (Scheduler API Reference, RetryPolicy). What it
# gives up after that goes to its dead-letter queue.
SCHEDULE_MAX_AGE_SECONDS = 86_400
SCHEDULE_MAX_RETRIES = 185

# Seconds from now within which no schedule is made. One in the past is refused, or never fires: CreateSchedule with all
# its attempts may take 15 s (CLIENT_CONFIG in slotkeeper/retry/worker.py), and two clocks may differ.
MIN_SCHEDULE_AHEAD_SECONDS = 20

NOT_BEFORE_ATTRIBUTE = "not_before"

# Bytes of a queue's largest message that a request must not use: whatever was accepted can then be sent again with the
# times of 500 attempts (13.5 KB), and redriven with a dead letter's attributes (16.7 KB).
HEADROOM_BYTES = 31_744


class TooLarge(Exception):
    """The message of the next attempt does not fit the queue; the text says by how much."""


@dataclass(frozen=True)
class ScheduleTarget:
    """Where and as whom one-time schedules are made: the group's name, and ARNs."""

    group: str
    role_arn: str
    queue_arn: str
    dead_letter_queue_arn: str


@dataclass(frozen=True)
class PlannedDelivery:
    """Who brings the next attempt, and when, in seconds since the epoch."""

    by: Literal["delay", "schedule", "hops"]
    due: float


class RetryQueue:
    """The queue, as the code that schedules attempts uses it.

    Args:
        max_delay: attempts due in more seconds than this go by Scheduler; 0 sends all of them that way.
        max_message_bytes: the queue's MaximumMessageSize, in bytes.
        on_refused: told why Scheduler did not take a schedule.
    """

    def __init__(
        self,
        sqs: SQSClient,
        scheduler: EventBridgeSchedulerClient,
        queue_url: str,
        schedules: ScheduleTarget,
        *,
        max_delay: int = MAX_DELAY_SECONDS,
        max_message_bytes: int = 1_048_576,
        on_refused: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        if not 0 <= max_delay <= MAX_DELAY_SECONDS:
            raise ValueError(
                f"max_delay must be 0 to {MAX_DELAY_SECONDS} seconds, which is what SQS can delay, got {max_delay}"
            )
        self._sqs = sqs
        self._scheduler = scheduler
        self._queue_url = queue_url
        self._schedules = schedules
        self._max_delay = max_delay
        self._max_message_bytes = max_message_bytes
        self._on_refused = on_refused

    @property
    def max_request_bytes(self) -> int:
        """How many bytes the body of a first attempt may have."""
        return self._max_message_bytes - min(HEADROOM_BYTES, self._max_message_bytes // 4)

    def schedule(self, message: Message, due: float, now: float) -> PlannedDelivery:
        """Sees to it that the message is on the queue when it is due, or soon after; once if all goes well.

        Raises:
            TooLarge: no way is large enough for it.
            ClientError, BotoCoreError: SQS did not take it, or nobody knows whether it did.
        """
        body = message.to_json()
        if due - now > self._max_delay:
            at = math.ceil(max(due, now + MIN_SCHEDULE_AHEAD_SECONDS) / 60) * 60
            if self._schedule(message, body, at):
                return PlannedDelivery("schedule", at)
        if due - now > MAX_DELAY_SECONDS:
            self._send(message, body, MAX_DELAY_SECONDS, due)
            return PlannedDelivery("hops", due)
        self._send(message, body, max(0, math.ceil(due - now)))
        return PlannedDelivery("delay", due)

    def send_on(self, message: Message, not_before: float, now: float) -> None:
        """One more hop of a message that has come before its time. Raises as `book` does."""
        self._send(message, message.to_json(), min(MAX_DELAY_SECONDS, math.ceil(not_before - now)), not_before)

    def hide(self, receipt_handle: str, seconds: float) -> None:
        """Has a received message come back in so many seconds, at most MAX_VISIBILITY_SECONDS.

        It raises nothing: without it the message comes back after the queue's visibility timeout.
        """
        with suppress(ClientError, BotoCoreError):
            self._sqs.change_message_visibility(
                QueueUrl=self._queue_url,
                ReceiptHandle=receipt_handle,
                VisibilityTimeout=min(MAX_VISIBILITY_SECONDS, math.ceil(seconds)),
            )

    def send_now(self, message: Message) -> None:
        """The attempt at once, wherever else it waits. Raises as `book` does."""
        self._send(message, message.to_json(), 0)

    def scheduled_body(self, message: Message) -> str | None:
        """The body that the schedule of the message's attempt is to send; None if there is no such schedule.

        Raises:
            ClientError, BotoCoreError: Scheduler did not answer.
        """
        try:
            schedule = self._scheduler.get_schedule(**self._schedule_of(message))
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
            return None
        return schedule["Target"].get("Input")

    def delete_schedule(self, message: Message) -> bool:
        """Deletes the schedule of the message's attempt; False if there is none. Raises as `scheduled` does."""
        try:
            self._scheduler.delete_schedule(**self._schedule_of(message))
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
            return False
        return True

    def schedule_name(self, message: Message) -> str:
        """The name of the schedule that brings the message's attempt, if one does."""
        return schedule_name(message, self._schedules.queue_arn)

    def _schedule_of(self, message: Message) -> dict[str, str]:
        return {"Name": self.schedule_name(message), "GroupName": self._schedules.group}

    def _send(self, message: Message, body: str, delay: int, not_before: float | None = None) -> None:
        # For whoever filters or looks. The body alone is what counts: a schedule carries nothing else.
        attributes: dict[str, MessageAttributeValueTypeDef] = {
            "idempotency_key": message_attributes.text(message.request_id, 128),
            "retry_count": message_attributes.number(len(message.retries)),
        }
        if not_before is not None:
            attributes[NOT_BEFORE_ATTRIBUTE] = message_attributes.number(not_before)
        size = message_attributes.size(body, attributes)
        if size > self._max_message_bytes:
            raise TooLarge(
                f"attempt {message.attempt} is {size} bytes with the times of the attempts before, "
                f"and the queue takes {self._max_message_bytes}"
            )
        self._sqs.send_message(
            QueueUrl=self._queue_url, MessageBody=body, DelaySeconds=delay, MessageAttributes=attributes
        )

    def _schedule(self, message: Message, body: str, at: int) -> bool:
        """Makes the attempt's schedule; False if it has to go another way."""
        # Scheduler puts values of its own where a payload says <aws.scheduler.execution-id> and the like (its guide,
        # "Adding context attributes"). JSON has another way to say the same.
        text = body.replace("<aws.scheduler.", "\\u003caws.scheduler.")
        if len(text.encode()) > MAX_SCHEDULE_INPUT_BYTES:
            return False
        try:
            self._scheduler.create_schedule(
                Name=self.schedule_name(message),
                GroupName=self._schedules.group,
                ScheduleExpression=f"at({instant(at)[:19]})",  # UTC, unless a time zone is given
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Description=f"Attempt {message.attempt} of a request",
                Target={
                    "Arn": self._schedules.queue_arn,
                    "RoleArn": self._schedules.role_arn,
                    "Input": text,
                    "DeadLetterConfig": {"Arn": self._schedules.dead_letter_queue_arn},
                    "RetryPolicy": {
                        "MaximumEventAgeInSeconds": SCHEDULE_MAX_AGE_SECONDS,
                        "MaximumRetryAttempts": SCHEDULE_MAX_RETRIES,
                    },
                },
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConflictException" and self._is_scheduled(message):
                return True  # only its answer, or its worker, was lost
            self._on_refused(str(error))
            return False
        except BotoCoreError as error:
            # It may have been made all the same. Then two messages come, and the ledger lets one pass.
            self._on_refused(str(error))
            return False
        return True

    def _is_scheduled(self, message: Message) -> bool:
        """Whether the attempt's schedule exists; False too if Scheduler does not answer.

        A conflict alone does not prove it: the code stands for any "inconsistent state" (Scheduler API Reference,
        CreateSchedule).
        """
        try:
            return self.scheduled_body(message) is not None
        except (ClientError, BotoCoreError):
            return False


def schedule_name(message: Message, queue_arn: str) -> str:
    """The name of the schedule that brings an attempt: one name an attempt, of 64 characters at most.

    Two consumers may share a group, and may have requests of the same id: neither must take the other's schedule for
    its own.
    """
    whose = hashlib.sha256(f"{queue_arn} {message.request_id}".encode()).hexdigest()[:48]
    return f"{whose}-{message.attempt}"
