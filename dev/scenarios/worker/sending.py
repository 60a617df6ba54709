"""Uploading the inputs and sending the requests, as producers would: evenly, all within ten seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Any

from dev.scenarios.runner.command import CannotGoOn

from .mix import Request

BATCH = 10  # entries a SendMessageBatch takes ("Amazon SQS message quotas")
WITHIN = 10.0  # seconds


class SendFailed(CannotGoOn):
    """SQS refused entries."""


@dataclass(frozen=True)
class Sent:
    """A request that SQS has taken, at `at` (epoch seconds, before the call)."""

    request: Request
    at: float


def upload(s3: Any, bucket: str, requests: Sequence[Request]) -> None:
    for request in requests:
        if request.content is not None:
            s3.put_object(Bucket=bucket, Key=request.key, Body=request.content, ContentType="application/x-ndjson")


def send(sqs: Any, queue_url: str, requests: Sequence[Request]) -> list[Sent]:
    """Ten a call, a second apart, or closer together if it would take longer than `WITHIN`. Raises SendFailed."""
    batches = list(batched(requests, BATCH, strict=False))
    apart = min(1.0, WITHIN / len(batches))
    began = time.monotonic()
    sent: list[Sent] = []
    for number, batch in enumerate(batches):
        time.sleep(max(0.0, began + number * apart - time.monotonic()))
        at = time.time()
        entries = [{"Id": str(i), "MessageBody": request.body} for i, request in enumerate(batch)]
        refused = sqs.send_message_batch(QueueUrl=queue_url, Entries=entries).get("Failed", [])
        if refused:
            named = ", ".join(
                f"{batch[int(e['Id'])].request_id} ({e['Code']}: {e.get('Message', '')})" for e in refused
            )
            raise SendFailed(f"SQS refused {len(refused)} of {len(batch)} requests: {named}; {len(sent)} were sent")
        sent += [Sent(request, at) for request in batch]
    return sent
