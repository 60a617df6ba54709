"""Notifications of failed requests, to FailureTopic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient

    from slotkeeper.slots.rows import RequestRow

# A message may have 256 KB (SNS API Reference, Publish), of which the request has up to 64 KiB.
MAX_CAUSE_CHARACTERS = 8000
# ASCII, below 100 characters, with a process's name of up to 47 (as above, `Subject`).
_SUBJECT = "Slotkeeper: a request of {} failed"


class FailureNotices:
    """Publishes notifications."""

    def __init__(self, sns: SNSClient, topic_arn: str) -> None:
        self._sns = sns
        self._topic_arn = topic_arn

    def publish(self, row: RequestRow, reason: str, execution_arn: str) -> None:
        """Notify the topic's subscribers that a request has failed. Raises ClientError or BotoCoreError."""
        fields = {
            "reason": reason,
            "process": row.process,
            "request_id": row.request_id,
            "attempt": row.attempt,
            "execution": execution_arn,
            "error": row.code,
            "cause": row.cause[:MAX_CAUSE_CHARACTERS],
        }
        # The request is JSON already. To parse it could fail, if it is nested deeply.
        text = json.dumps(fields, ensure_ascii=False, indent=2).removesuffix("\n}")
        message = f'{text},\n  "request": {row.body or "null"}\n}}'
        self._sns.publish(TopicArn=self._topic_arn, Subject=_SUBJECT.format(row.process), Message=message)
