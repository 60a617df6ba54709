"""One batch of requests, taken whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .scenario import CannotGoOn

BATCH = 10  # entries a SendMessageBatch takes ("Amazon SQS message quotas")


class SendFailed(CannotGoOn):
    """SQS refused entries; to continue would put later requests in front of them."""


def send_batch(sqs: Any, queue_url: str, entries: Mapping[str, Mapping[str, Any]], sent: int) -> list[dict[str, Any]]:
    """Send the entries by request id, after `sent` others; SQS's answers in their order. Raises SendFailed."""
    listed = [{"Id": str(i), **entry} for i, entry in enumerate(entries.values())]
    answer = sqs.send_message_batch(QueueUrl=queue_url, Entries=listed)
    if refused := answer.get("Failed"):
        ids = list(entries)
        names = ", ".join(f"{ids[int(e['Id'])]} ({e['Code']}: {e.get('Message', '')})" for e in refused)
        raise SendFailed(f"SQS refused {len(refused)} of {len(ids)} requests: {names}; {sent} were sent")
    return sorted(answer["Successful"], key=lambda entry: int(entry["Id"]))
