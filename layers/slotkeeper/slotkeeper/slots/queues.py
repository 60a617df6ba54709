"""RequestDeadLetterQueue, which keeps the messages that are no requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from slotkeeper.aws.sqs import number, text
from slotkeeper.slots.request import Delivery, without_token

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageAttributeValueTypeDef

MAX_REASON_CHARACTERS = 2000
# A message may have 1 MiB with its attributes (SQS API Reference, SendMessage), and a character up to four bytes.
MAX_BODY_CHARACTERS = 200_000


class RequestDeadLetterQueue:
    """The queue of messages that are no requests."""

    def __init__(self, sqs: SQSClient, queue_url: str) -> None:
        self._sqs = sqs
        self._queue_url = queue_url

    def add(self, delivery: Delivery, code: str, reason: str) -> None:
        """Send a message with the reason. The caller must delete the original afterwards.

        Its body has no task token, so that a redriven message answers no caller a second time. It has a message group
        of its own, since at most ten messages of a group can be read before one is deleted. The deduplication id is the
        message id, which is the same for a redelivery and different for a redriven message.
        """
        attributes: Mapping[str, MessageAttributeValueTypeDef] = {
            "code": text(code, 100),
            "reason": text(reason, MAX_REASON_CHARACTERS),
            "source_message_id": text(delivery.message_id, 100),
            "message_group": text(delivery.group_id, 128),
            "sent_at": number(int(delivery.sent_at)),
        }
        body = without_token(delivery.body)[:MAX_BODY_CHARACTERS]
        self._sqs.send_message(
            QueueUrl=self._queue_url,
            MessageBody=body,
            MessageAttributes=attributes,
            MessageGroupId=delivery.message_id,
            MessageDeduplicationId=delivery.message_id,
        )
