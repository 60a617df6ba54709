"""Dead-letters messages with the reason and the history of their attempts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slotkeeper.aws import sqs as message_attributes
from slotkeeper.retry.message import Message, instant

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageAttributeValueTypeDef

MAX_MESSAGE_BYTES = 1_048_576  # of a message with its attributes (SQS quotas)
MAX_REASON_CHARACTERS = 2000
MAX_HISTORY_CHARACTERS = 8000


class DeadLetterQueue:
    """The queue of messages that are not retried any more. Each body can be sent to the work queue again unchanged.

    Args:
        redrivable: the maximum bytes of a message with its attributes that can be redriven: the work queue's
            MaximumMessageSize.
    """

    def __init__(self, sqs: SQSClient, queue_url: str, redrivable: int = MAX_MESSAGE_BYTES) -> None:
        self._sqs = sqs
        self._queue_url = queue_url
        self._redrivable = redrivable

    def send_invalid(self, body: str, message_id: str, reason: str) -> None:
        """Dead-letter a body that is not a valid message."""
        self._send(
            body,
            {
                "code": message_attributes.text("InvalidMessage", 100),
                "reason": message_attributes.text(reason, MAX_REASON_CHARACTERS),
                "source_message_id": message_attributes.text(message_id, 100),
            },
            MAX_MESSAGE_BYTES,
        )

    def send_unworked(self, message: Message, message_id: str, code: str, reason: str) -> None:
        """Dead-letter a message that was not worked on, unchanged."""
        self._send(
            message.source or message.to_json(),
            {
                "code": message_attributes.text(code, 100),
                "reason": message_attributes.text(reason, MAX_REASON_CHARACTERS),
                "idempotency_key": message_attributes.text(message.request_id, 128),
                "retry_count": message_attributes.number(len(message.retries)),
                "source_message_id": message_attributes.text(message_id, 100),
            },
            MAX_MESSAGE_BYTES,
        )

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
        tries = after.retries
        self._send(
            body,
            {
                "code": message_attributes.text(code, 100),
                "reason": message_attributes.text(reason, MAX_REASON_CHARACTERS),
                "idempotency_key": message_attributes.text(message.request_id, 128),
                "retry_count": message_attributes.number(len(tries)),
                "first_attempt_at": message_attributes.text(instant(tries[0]), 30),
                "last_attempt_at": message_attributes.text(instant(tries[-1]), 30),
                "history": message_attributes.text(_fitted(history), MAX_HISTORY_CHARACTERS),
            },
            self._redrivable,
        )

    def _send(self, body: str, attributes: dict[str, MessageAttributeValueTypeDef], largest: int) -> None:
        # If the body leaves too few bytes for all attributes, drop the least important ones first. The ledger has the
        # history too.
        for name in (
            "history",
            "last_attempt_at",
            "first_attempt_at",
            "retry_count",
            "idempotency_key",
            "source_message_id",
            "reason",
            "code",
        ):
            if message_attributes.size(body, attributes) <= largest:
                break
            attributes.pop(name, None)
        self._sqs.send_message(QueueUrl=self._queue_url, MessageBody=body, MessageAttributes=attributes)


def _fitted(history: Sequence[Mapping[str, Any]]) -> str:
    """Encode the history as JSON. If it is too long, drop the oldest entries except the first."""
    kept = [dict(entry) for entry in history]
    while len(text := json.dumps(kept)) > MAX_HISTORY_CHARACTERS and len(kept) > 2:
        del kept[1]
    return text
