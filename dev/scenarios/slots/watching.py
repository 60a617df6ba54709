"""Watching the run from outside: what an onlooker sees, and when it is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import records


@dataclass(frozen=True)
class Snapshot:
    """What an onlooker sees. `waiting` counts RequestQueue whole: visible, hidden and delayed messages."""

    elapsed: float
    requests: int
    limit: int
    slots_in_use: int
    waiting: int
    running: int
    succeeded: int
    failed: int
    dead_lettered: int
    holders: tuple[str, ...] = ()

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.dead_lettered

    @property
    def over(self) -> bool:
        """All requests have come to an end, and the last one has given its slot back."""
        settled = self.waiting == 0 and self.running == 0 and self.slots_in_use == 0
        return settled and self.ended >= self.requests

    def said(self) -> str:
        return (
            f"{self.ended} of {self.requests} ended, {self.waiting} on RequestQueue, {self.running} workflows running, "
            f"{self.dead_lettered} dead-lettered, {self.slots_in_use} of {self.limit} slots in use, "
            f"held by: {', '.join(self.holders) or 'nobody'}"
        )


@dataclass(frozen=True)
class Eyes:
    """The clients and names a snapshot needs."""

    sfn: Any
    sqs: Any
    dynamodb: Any
    outputs: dict[str, str]
    process: str

    def look(self, requests: int, limit: int, elapsed: float) -> Snapshot:
        """The queue is read first: a request that moves on between the reads is then counted twice, never not at all,
        and cannot make the run look over."""
        waiting = records.queue_depth(self.sqs, self.outputs["RequestQueueUrl"])
        dead = records.queue_depth(self.sqs, self.outputs["RequestDeadLetterQueueUrl"])
        counts = {"RUNNING": 0, "SUCCEEDED": 0}
        total = 0
        pages = self.sfn.get_paginator("list_executions").paginate(stateMachineArn=self.outputs["WorkflowArn"])
        for page in pages:
            for execution in page["executions"]:
                total += 1
                if execution["status"] in counts:
                    counts[execution["status"]] += 1
        slots, holders = records.read_slots(self.dynamodb, self.outputs["SlotTableName"], self.process)
        return Snapshot(
            elapsed=elapsed,
            requests=requests,
            limit=limit,
            slots_in_use=slots,
            waiting=waiting,
            running=counts["RUNNING"],
            succeeded=counts["SUCCEEDED"],
            failed=total - counts["RUNNING"] - counts["SUCCEEDED"],
            dead_lettered=dead,
            holders=tuple(holders),
        )
