"""EndingQueue, for its senders: a message for each end that the function of endings must publish.

EventBridge sends it the status events of executions. The starter and operators send it the ends without an execution,
and messages that are no requests, because only that function answers callers (endings.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slotkeeper.slots.request import Delivery, token_of

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

# Names of one message: 80 characters each, far below the maximum of a message.
MAX_EXECUTIONS = 100


class EndingQueue:
    """Sends to EndingQueue. Each method raises ClientError or BotoCoreError."""

    def __init__(self, sqs: SQSClient, queue_url: str) -> None:
        self._sqs = sqs
        self._queue_url = queue_url

    def publish(self, process: str, executions: Sequence[str]) -> None:
        """Let the ends of these requests be published. The janitor repeats a message that was not sent."""
        for start in range(0, len(executions), MAX_EXECUTIONS):
            self._send({"process": process, "executions": list(executions[start : start + MAX_EXECUTIONS])})

    def publish_all(self, process: str) -> None:
        """Let all ends of a process be published that are not: no run of the janitor visits one that was removed."""
        self._send({"process": process})

    def refused(self, delivery: Delivery, code: str, reason: str) -> None:
        """Let the end of a message that is no request be published."""
        fields = {"message_id": delivery.message_id, "group_id": delivery.group_id, "code": code, "reason": reason}
        token = token_of(delivery.body)
        self._send({"refused": fields | ({"task_token": token} if token else {})})

    def _send(self, fields: dict[str, Any]) -> None:
        self._sqs.send_message(QueueUrl=self._queue_url, MessageBody=json.dumps(fields))
