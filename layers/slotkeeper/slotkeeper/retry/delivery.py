"""Delivers the next attempt by the queue's delay, EventBridge Scheduler or hops, or dead-letters the message.

    due within `max_delay` seconds     SQS, by DelaySeconds
    due later                          a one-time schedule, accurate to the minute, which sends the body to the queue
    due later, and the schedule is     hops: every 15 minutes the worker receives the message and sends it again, until
    refused, or the body is too large  its `not_before` has come

A retry may be scheduled twice, after a lost answer or when a second delivery carries out the same plan. The schedule's
name prevents a second schedule; of two messages, the ledger lets only one claim the attempt.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws import sqs as message_attributes
from slotkeeper.retry.message import Message, instant

if TYPE_CHECKING:
    from mypy_boto3_scheduler import EventBridgeSchedulerClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageAttributeValueTypeDef

MAX_DELAY_SECONDS = 900  # SQS API Reference, SendMessage, DelaySeconds
# A message can be hidden for at most 12 hours, counted from its receive (SQS guide, "Amazon SQS visibility timeout"),
# and SQS refuses more. One hour of these is left for the invocation.
MAX_VISIBILITY_SECONDS = 11 * 3600

# The maximum size of a schedule's input. AWS documents no number for SQS targets, so this is far below the sizes that
# are known to work. Larger messages take hops.
MAX_SCHEDULE_INPUT_BYTES = 131_072

# How long and how often Scheduler tries to deliver: its maxima (Scheduler API Reference, RetryPolicy). After that it
# sends the message to its dead-letter queue.
SCHEDULE_MAX_AGE_SECONDS = 86_400
SCHEDULE_MAX_RETRIES = 185

# A schedule is at least this many seconds in the future, because one in the past is refused or never fires.
# CreateSchedule with all its attempts may take 15 s (CLIENT_CONFIG in slotkeeper/retry/worker.py), and two clocks may
# differ.
MIN_SCHEDULE_AHEAD_SECONDS = 20

NOT_BEFORE_ATTRIBUTE = "not_before"
FIRST_RECEIVED_ATTRIBUTE = "first_received"

# Bytes below the queue's MaximumMessageSize that a request must leave unused. They are enough to send it again with the
# times of 500 attempts (13.5 KB), and to redrive it with the attributes of its dead-letter message (16.7 KB).
HEADROOM_BYTES = 31_744

MAX_MESSAGE_BYTES = 1_048_576  # of a message with its attributes (SQS quotas)
MAX_REASON_CHARACTERS = 2000
MAX_HISTORY_CHARACTERS = 8000
LEAST_IMPORTANT_FIRST = (
    "history",
    "last_attempt_at",
    "first_attempt_at",
    "retry_count",
    "idempotency_key",
    "source_message_id",
    "reason",
    "code",
)


class TooLarge(Exception):
    """The message of the next attempt does not fit the queue. The message states both sizes."""


@dataclass(frozen=True)
class ScheduleTarget:
    """The schedule group, role, target queue and dead-letter queue of one-time schedules.

    `key_arn`: the KMS key that encrypts their inputs, which are the requests; None for AWS's own key.
    """

    group: str
    role_arn: str
    queue_arn: str
    dead_letter_queue_arn: str
    key_arn: str | None = None


@dataclass(frozen=True)
class PlannedDelivery:
    """How the next attempt is delivered, and when it is due, in seconds since the epoch."""

    by: Literal["delay", "schedule", "hops"]
    due: float


@dataclass
class RetryQueue:
    """The work queue, for sending attempts to it.

    Args:
        max_delay: attempts that are due in more seconds than this use Scheduler. With 0 all do.
        max_message_bytes: the queue's MaximumMessageSize, in bytes.
        on_refused: receives the reason why Scheduler did not create a schedule.
    """

    sqs: SQSClient
    scheduler: EventBridgeSchedulerClient
    queue_url: str
    schedules: ScheduleTarget
    _: KW_ONLY
    max_delay: int = MAX_DELAY_SECONDS
    max_message_bytes: int = MAX_MESSAGE_BYTES
    on_refused: Callable[[str], None] = lambda _reason: None

    def __post_init__(self) -> None:
        if self.queue_url.endswith(".fifo"):
            raise ValueError(
                f"{self.queue_url} is a FIFO queue, whose messages cannot have their own delay (SQS API Reference, "
                "SendMessage, DelaySeconds), so no retry could be sent. Expected a standard queue. "
                "No message was handled"
            )
        if not 0 <= self.max_delay <= MAX_DELAY_SECONDS:
            raise ValueError(
                f"max_delay must be 0 to {MAX_DELAY_SECONDS} seconds, which is what SQS can delay, got {self.max_delay}"
            )

    @property
    def max_request_bytes(self) -> int:
        """The maximum bytes of a first attempt's body."""
        return self.max_message_bytes - min(HEADROOM_BYTES, self.max_message_bytes // 4)

    def schedule(self, message: Message, due: float, now: float) -> PlannedDelivery:
        """Send the message to the queue when it is due, or soon after. Duplicates are possible.

        Args:
            due, now: seconds since the epoch.

        Raises:
            TooLarge: the message is too large for the queue.
            ClientError, BotoCoreError: SQS refused the message, or the answer was lost.
        """
        body = message.to_json()
        if due - now > self.max_delay:
            at = math.ceil(max(due, now + MIN_SCHEDULE_AHEAD_SECONDS) / 60) * 60
            if self._schedule(message, body, at):
                return PlannedDelivery("schedule", at)
        if due - now > MAX_DELAY_SECONDS:
            self._send(message, body, MAX_DELAY_SECONDS, due)
            return PlannedDelivery("hops", due)
        self._send(message, body, max(0, math.ceil(due - now)))
        return PlannedDelivery("delay", due)

    def send_on(self, message: Message, not_before: float, now: float) -> None:
        """Send a message that is not due yet to the queue again, as its next hop. Raises as `schedule` does."""
        self._send(message, message.to_json(), min(MAX_DELAY_SECONDS, math.ceil(not_before - now)), not_before)

    def send_copy(self, message: Message, wait: float, first_received: float) -> None:
        """Send the same attempt to the queue again, after `wait` seconds, at most MAX_DELAY_SECONDS.

        Args:
            first_received: when the request was first received, epoch seconds; the copy keeps it.

        Raises as `schedule` does.
        """
        kept = {FIRST_RECEIVED_ATTRIBUTE: message_attributes.number(first_received)}
        self._send(message, message.to_json(), min(MAX_DELAY_SECONDS, math.ceil(wait)), more=kept)

    def backlog(self) -> int:
        """Return about how many messages are in the queue, hidden ones included; 0 if SQS does not answer."""
        try:
            counts = self.sqs.get_queue_attributes(
                QueueUrl=self.queue_url,
                AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
            )["Attributes"]
        except (ClientError, BotoCoreError):
            return 0
        return sum(map(int, counts.values()))

    def hide(self, receipt_handle: str, seconds: float) -> None:
        """Hide a received message for `seconds`, at most MAX_VISIBILITY_SECONDS.

        Errors of SQS are ignored: the message then comes back after the queue's visibility timeout.

        A late call may concern a message that another worker has received since. A standard queue accepts it (recorded
        by LocalStack's test test_terminate_visibility_timeout_after_receive), although the API Reference documents a
        refusal. Either is harmless, since only the ledger decides who works:

        - The message comes back while the other worker works. That delivery finds the lease, and makes no attempt.
        - The other worker dies, and the message comes back after `seconds`, which it would have waited anyway.
        """
        with suppress(ClientError, BotoCoreError):
            self.sqs.change_message_visibility(
                QueueUrl=self.queue_url,
                ReceiptHandle=receipt_handle,
                VisibilityTimeout=min(MAX_VISIBILITY_SECONDS, math.ceil(seconds)),
            )

    def send_now(self, message: Message) -> None:
        """Send the attempt to the queue without delay. An existing schedule of it stays. Raises as `schedule` does."""
        self._send(message, message.to_json(), 0)

    def scheduled_body(self, message: Message) -> str | None:
        """Read the body from the schedule of the message's attempt; None if no such schedule exists.

        Raises:
            ClientError, BotoCoreError: Scheduler did not answer.
        """
        try:
            schedule = self.scheduler.get_schedule(**self._schedule_of(message))
        except ClientError as error:
            if _code(error) != "ResourceNotFoundException":
                raise
            return None
        return schedule["Target"].get("Input")

    def delete_schedule(self, message: Message) -> bool:
        """Delete the schedule of the message's attempt; False if none exists. Raises as `scheduled_body` does."""
        try:
            self.scheduler.delete_schedule(**self._schedule_of(message))
        except ClientError as error:
            if _code(error) != "ResourceNotFoundException":
                raise
            return False
        return True

    def schedule_name(self, message: Message) -> str:
        """The name of the schedule of the message's attempt, whether or not it exists."""
        return schedule_name(message, self.schedules.queue_arn)

    def _schedule_of(self, message: Message) -> dict[str, str]:
        return {"Name": self.schedule_name(message), "GroupName": self.schedules.group}

    def _send(
        self,
        message: Message,
        body: str,
        delay: int,
        not_before: float | None = None,
        more: Mapping[str, MessageAttributeValueTypeDef] = MappingProxyType({}),
    ) -> None:
        # For operators and filters. The worker needs only the body and `not_before`: a schedule sends only the body.
        attributes: dict[str, MessageAttributeValueTypeDef] = {
            "idempotency_key": message_attributes.text(message.request_id, 128),
            "retry_count": message_attributes.number(len(message.retries)),
            **more,
        }
        if not_before is not None:
            attributes[NOT_BEFORE_ATTRIBUTE] = message_attributes.number(not_before)
        size = message_attributes.size(body, attributes)
        if size > self.max_message_bytes:
            raise TooLarge(
                f"the message of attempt {message.attempt} has {size} bytes with the times of the earlier attempts, "
                f"and the queue accepts at most {self.max_message_bytes}"
            )
        self.sqs.send_message(
            QueueUrl=self.queue_url, MessageBody=body, DelaySeconds=delay, MessageAttributes=attributes
        )

    def _schedule(self, message: Message, body: str, at: int) -> bool:
        """Create the attempt's schedule; False if Scheduler does not accept it."""
        # Scheduler replaces <aws.scheduler.execution-id> and similar texts in an input (Scheduler guide, "Adding
        # context attributes"). In JSON the first character can be escaped, which prevents that.
        text = body.replace("<aws.scheduler.", "\\u003caws.scheduler.")
        if len(text.encode()) > MAX_SCHEDULE_INPUT_BYTES:
            return False
        encrypted: dict[str, Any] = {"KmsKeyArn": self.schedules.key_arn} if self.schedules.key_arn else {}
        try:
            self.scheduler.create_schedule(
                **encrypted,
                Name=self.schedule_name(message),
                GroupName=self.schedules.group,
                ScheduleExpression=f"at({instant(at)[:19]})",  # UTC by default
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Description=f"Attempt {message.attempt} of a request",
                Target={
                    "Arn": self.schedules.queue_arn,
                    "RoleArn": self.schedules.role_arn,
                    "Input": text,
                    "DeadLetterConfig": {"Arn": self.schedules.dead_letter_queue_arn},
                    "RetryPolicy": {
                        "MaximumEventAgeInSeconds": SCHEDULE_MAX_AGE_SECONDS,
                        "MaximumRetryAttempts": SCHEDULE_MAX_RETRIES,
                    },
                },
            )
        except (ClientError, BotoCoreError) as error:
            if _code(error) == "ConflictException" and self._is_scheduled(message):
                return True  # an earlier call created it: its answer was lost, or its worker died
            # Without an answer the schedule may exist. Then two messages are delivered, and one claims the attempt.
            self.on_refused(str(error))
            return False
        return True

    def _is_scheduled(self, message: Message) -> bool:
        """Whether the attempt's schedule exists; also False if Scheduler does not answer.

        A ConflictException does not prove it: its documented meaning is any "inconsistent state" (Scheduler API
        Reference, CreateSchedule).
        """
        try:
            return self.scheduled_body(message) is not None
        except (ClientError, BotoCoreError):
            return False


def _code(error: ClientError | BotoCoreError) -> str:
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else ""


def schedule_name(message: Message, queue_arn: str) -> str:
    """The name of an attempt's schedule: unique per queue, request and attempt, at most 64 characters.

    The queue is part of it because two consumers may share a schedule group and have requests of the same id.
    """
    request = hashlib.sha256(f"{queue_arn} {message.request_id}".encode()).hexdigest()[:48]
    return f"{request}-{message.attempt}"


@dataclass
class DeadLetterQueue:
    """The queue of messages that are not retried any more. Each body can be sent to the work queue again unchanged.

    Args:
        redrivable: the maximum bytes of a message with its attributes that can be redriven: the work queue's
            MaximumMessageSize.
        on_sent: receives the key and the fields of each message after it was sent, and before the ledger records it: if
            the worker dies before that, the next delivery does both again. It must not raise.
    """

    sqs: SQSClient
    queue_url: str
    redrivable: int = MAX_MESSAGE_BYTES
    on_sent: Callable[[str, Mapping[str, object]], object] = lambda *_: None

    def send_invalid(self, body: str, message_id: str, reason: str) -> None:
        """Dead-letter a body that is not a valid message."""
        source = {"source_message_id": message_attributes.text(message_id, 100)}
        self._send(body, "InvalidMessage", reason, source, MAX_MESSAGE_BYTES)
        self.on_sent(message_id, {"code": "InvalidMessage", "reason": reason, "message_id": message_id})

    def send_unworked(self, message: Message, message_id: str, code: str, reason: str) -> None:
        """Dead-letter a message that was not worked on, unchanged."""
        more = {
            "idempotency_key": message_attributes.text(message.request_id, 128),
            "retry_count": message_attributes.number(len(message.retries)),
            "source_message_id": message_attributes.text(message_id, 100),
        }
        self._send(message.source or message.to_json(), code, reason, more, MAX_MESSAGE_BYTES)
        fields = {"request_id": message.request_id, "attempt": message.attempt, "message_id": message_id}
        self.on_sent(message_id, {**fields, "code": code, "reason": reason})

    def send(
        self, message: Message, started_at: float, code: str, reason: str, history: Sequence[Mapping[str, Any]]
    ) -> None:
        """Dead-letter a request that is not retried any more.

        The body is the message of the next attempt, so that a redrive is a new attempt under the same request_id.

        Args:
            message: the message of the failed attempt.
            started_at: when that attempt started, seconds since the epoch.
            history: the failed attempts, {attempt, at, error}.
        """
        after = message.after(started_at)
        body = after.to_json()
        if len(body.encode()) > MAX_MESSAGE_BYTES:
            # The body as it was received, which SQS has accepted before.
            body = message.source or message.to_json()
        more = {
            "idempotency_key": message_attributes.text(message.request_id, 128),
            "retry_count": message_attributes.number(len(after.retries)),
            "first_attempt_at": message_attributes.text(instant(after.retries[0]), 30),
            "last_attempt_at": message_attributes.text(instant(after.retries[-1]), 30),
            "history": message_attributes.text(_fitted(history), MAX_HISTORY_CHARACTERS),
        }
        self._send(body, code, reason, more, self.redrivable)
        fields = {"request_id": message.request_id, "attempt": message.attempt, "started_at": instant(after.retries[0])}
        self.on_sent(f"{message.request_id}/{message.attempt}", {**fields, "code": code, "reason": reason})

    def _send(
        self, body: str, code: str, reason: str, more: Mapping[str, MessageAttributeValueTypeDef], largest: int
    ) -> None:
        attributes = {
            "code": message_attributes.text(code, 100),
            "reason": message_attributes.text(reason, MAX_REASON_CHARACTERS),
            **more,
        }
        # If the body leaves too few bytes for all attributes, drop the least important ones first. The ledger has the
        # history too.
        for name in LEAST_IMPORTANT_FIRST:
            if message_attributes.size(body, attributes) <= largest:
                break
            attributes.pop(name, None)
        self.sqs.send_message(QueueUrl=self.queue_url, MessageBody=body, MessageAttributes=attributes)


def _fitted(history: Sequence[Mapping[str, Any]]) -> str:
    """Encode the history as JSON. If it is too long, drop the oldest entries except the first."""
    kept = [dict(entry) for entry in history]
    while len(text := json.dumps(kept)) > MAX_HISTORY_CHARACTERS and len(kept) > 2:
        del kept[1]
    return text
