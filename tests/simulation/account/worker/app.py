"""The worker of tests that are independent of the shipped work: the handler of slotkeeper.retry's docstring.

The payload sets the outcome: `poison` and `fails` are reasons, `retry_after` seconds.
"""

from __future__ import annotations

from typing import Any

from slotkeeper.retry import Poison, Retryable, RetryingWorker, WorkRequest


def perform(request: WorkRequest, remaining_seconds: float) -> dict[str, Any]:
    payload = request.payload
    if "poison" in payload:
        raise Poison(payload["poison"])
    if "fails" in payload:
        raise Retryable(payload["fails"], retry_after=payload.get("retry_after"))
    return {"attempt": request.attempt}


_worker = RetryingWorker.from_environment(perform)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return _worker.handle(event, context)
