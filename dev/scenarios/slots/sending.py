"""Uploading the parts and sending the requests, as a producer would: a burst, in order, each with its own id."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Any

from dev.scenarios.runner.command import CannotGoOn

from .work import PROCESS, Part, Request

BATCH = 10  # entries a SendMessageBatch takes ("Amazon SQS message quotas")


class SendFailed(CannotGoOn):
    """SQS refused entries; sending on would put later requests in front of them."""


@dataclass(frozen=True)
class Sent:
    """A request that SQS has taken. `sequence` is SQS's own order within the message group; `at` is epoch seconds."""

    request: Request
    sequence: int
    at: float


def upload(s3: Any, bucket: str, parts: Sequence[Part]) -> None:
    for part in parts:
        s3.put_object(Bucket=bucket, Key=part.key, Body=part.body, ContentType="text/csv")


def send(sqs: Any, queue_url: str, requests: Sequence[Request]) -> list[Sent]:
    """Sends all of them, ten a call. A call that is repeated after a lost answer changes nothing, since every entry
    carries its deduplication id. Raises SendFailed at the first batch that is not taken whole.
    """
    sent: list[Sent] = []
    for batch in batched(requests, BATCH, strict=False):
        entries = [
            {
                "Id": str(i),
                "MessageBody": json.dumps(request.body()),
                "MessageGroupId": PROCESS,
                "MessageDeduplicationId": request.request_id,
            }
            for i, request in enumerate(batch)
        ]
        answer = sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)
        refused = answer.get("Failed", [])
        if refused:
            named = ", ".join(
                f"{batch[int(e['Id'])].request_id} ({e['Code']}: {e.get('Message', '')})" for e in refused
            )
            raise SendFailed(f"SQS refused {len(refused)} of {len(batch)} requests: {named}; {len(sent)} were sent")
        taken = {int(entry["Id"]): int(entry["SequenceNumber"]) for entry in answer["Successful"]}
        now = time.time()
        sent += [Sent(request, taken[i], now) for i, request in enumerate(batch)]
    return sent
