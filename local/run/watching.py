"""Watching the run from outside until it is over: one snapshot after the other, and an end to waiting for nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from . import records

STALLED_AFTER = 60.0  # seconds without any movement; a sample job takes about one


class Stuck(Exception):
    """Nothing has moved for too long; the text says what stands where."""


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


class Stall:
    """Notices that nothing but the clock has changed for `after` seconds."""

    def __init__(self, after: float = STALLED_AFTER) -> None:
        self._after = after
        self._last: Snapshot | None = None
        self._since = 0.0

    def check(self, snapshot: Snapshot) -> None:
        """Raises Stuck."""
        still = replace(snapshot, elapsed=0.0)
        if still != self._last:
            self._last, self._since = still, snapshot.elapsed
        elif snapshot.elapsed - self._since >= self._after:
            idle = snapshot.elapsed - self._since
            raise Stuck(
                f"nothing has moved for {idle:.0f} s: {snapshot.ended} of {snapshot.requests} "
                f"ended, {snapshot.waiting} on RequestQueue, {snapshot.running} workflows running, "
                f"{snapshot.dead_lettered} dead-lettered, {snapshot.slots_in_use} of {snapshot.limit} slots in use, "
                f"held by: {', '.join(snapshot.holders) or 'nobody'}"
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


def wait_until_over(look: Callable[[float], Snapshot], show: Callable[[Snapshot], None], interval: float) -> Snapshot:
    """Looks every `interval` seconds until the run is over, and returns the last snapshot. Raises Stuck."""
    stall, began = Stall(), time.monotonic()
    while True:
        snapshot = look(time.monotonic() - began)
        show(snapshot)
        if snapshot.over:
            return snapshot
        stall.check(snapshot)
        time.sleep(interval)
