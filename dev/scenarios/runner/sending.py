"""Sending requests in batches. A batch with a refused entry ends the run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import batched
from typing import Any

from .scenario import CannotContinue

BATCH = 10  # entries of a SendMessageBatch ("Amazon SQS message quotas")


class SendFailed(CannotContinue):
    """SQS refused entries. If the run continued, later requests would come before them."""


def send(sqs: Any, queue_url: str, entries: Mapping[str, Mapping[str, Any]]) -> list[tuple[dict[str, Any], float]]:
    """Send entries by request id. SQS's answer to each, and the epoch seconds before its call. Raises SendFailed."""
    sent: list[tuple[dict[str, Any], float]] = []
    for batch in batched(entries.items(), BATCH, strict=False):
        at = time.time()
        listed = [{"Id": str(i), **entry} for i, (_, entry) in enumerate(batch)]
        answer = sqs.send_message_batch(QueueUrl=queue_url, Entries=listed)
        if refused := answer.get("Failed"):
            names = ", ".join(f"{batch[int(e['Id'])][0]} ({e['Code']}: {e.get('Message', '')})" for e in refused)
            raise SendFailed(f"SQS refused {len(refused)} of {len(batch)} requests: {names}; {len(sent)} were sent")
        sent += [(entry, at) for entry in sorted(answer["Successful"], key=lambda entry: int(entry["Id"]))]
    return sent
