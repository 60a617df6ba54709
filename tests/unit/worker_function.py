"""The worker's function with a stopped clock and work that the payload controls."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from slotkeeper.retry import Poison, Retryable, WorkRequest
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.boundary import Killed
from tests.unit.conftest import NOW
from tests.unit.work_messages import invocation, record


class WorkerFunction:
    """One container.

    Attributes:
        bus: has the events that it publishes.
        seconds: the time limit of the last work.
    """

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.worker = module._worker
        self.worker._perform = self._perform
        self.consumer = self.worker._consumer
        self.seconds = 0.0
        self.at(NOW)
        assert AwsAccount.current
        self.bus = AwsAccount.current.bus
        if self.worker._events:
            self.events = self.worker._events._events

    def at(self, now: float) -> None:
        for part in (self.consumer, self.consumer._deferrals, self.consumer.downstreams):
            if part:
                part.clock = lambda: now

    def handle(self, *records: dict[str, Any], left: float = 120.0) -> list[str]:
        """The ids of the messages that stay on the queue."""
        answer = self.module.handler({"Records": list(records)}, invocation(left))
        return [failed["itemIdentifier"] for failed in answer["batchItemFailures"]]

    def _perform(self, request: WorkRequest, seconds: float) -> Any:
        self.seconds = seconds
        payload = request.payload
        if "dies" in payload:
            raise Killed
        if "poison" in payload:
            raise Poison(payload["poison"])
        if "fails" in payload:
            raise Retryable(payload["fails"], retry_after=payload.get("retry_after"))
        if "breaks" in payload:
            raise KeyError(payload["breaks"])
        return {"manifest": "work/published/r.json"}


def work(request_id: str = "r", message_id: str = "m1", **payload: Any) -> dict[str, Any]:
    """The record of a request with this payload."""
    return record({"request_id": request_id, "payload": payload}, message_id)
