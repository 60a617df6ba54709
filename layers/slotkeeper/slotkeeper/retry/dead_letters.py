"""Setting a message aside with its story: what was wrong, when, and how often it was tried."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slotkeeper.aws import sqs as message_attributes
from slotkeeper.retry.message import Message, instant

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageAttributeValueTypeDef

MAX_MESSAGE_BYTES = 1_048_576  # bytes of a message with its attributes (SQS quotas)
MAX_REASON_CHARACTERS = 2000  # characters
MAX_HISTORY_CHARACTERS = 8000


class DeadLetterQueue:
    """The queue of the messages that nobody works on any more. The body is one that can be sent again as it is.

    Args:
        redrivable: the bytes that a message with its attributes may have to be moved back: the work queue's
            MaximumMessageSize.
    """

    def __init__(self, sqs: SQSClient, queue_url: str, redrivable: int = MAX_MESSAGE_BYTES) -> None:
        self._sqs = sqs
        self._queue_url = queue_url
        self._redrivable = redrivable

    def send_invalid(self, body: str, message_id: str, reason: str) -> None:
        """A body that is no message."""
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
        """A message that was not worked on, as it is."""
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
        """A request that is given up.

        The body is that of the attempt after the failed one, so that a redrive is a new attempt under the same key.

        Args:
            message: the failed attempt's, which began at `started_at`, in seconds since the epoch.
            history: the failed attempts, {attempt, at, error}.
        """
        after = message.after(started_at)
        body = after.to_json()
        if len(body.encode()) > MAX_MESSAGE_BYTES:
            # As it came, which SQS is known to take.
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
        # A queue of one's own may take messages that leave no room for the story; the ledger has it too. What is worth
        # least goes first.
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
    """As JSON, without the oldest entries but the first where all of them are too long."""
    kept = [dict(entry) for entry in history]
    while len(text := json.dumps(kept)) > MAX_HISTORY_CHARACTERS and len(kept) > 2:
        del kept[1]
    return text
