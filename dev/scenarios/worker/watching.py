"""Watching the run from outside: what an onlooker sees, and when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dev.emulator.downstream import Downstream
from dev.scenarios.runner.checking import counted

from . import records
from .records import Booking


@dataclass(frozen=True)
class Snapshot:
    """What an onlooker sees. `delayed` and `scheduled`: waiting for a retry's time.

    A message stays `in_flight` until the worker has given it up: its request may have its end by then, or its retry be
    booked, and counts there too.
    """

    elapsed: float
    requests: int
    limit: int
    callers: int
    calls: int
    waiting: int
    in_flight: int
    delayed: int
    scheduled: int
    succeeded: int
    dead_lettered: int

    @property
    def ended(self) -> int:
        return self.succeeded + self.dead_lettered

    @property
    def over(self) -> bool:
        left = (self.waiting, self.in_flight, self.delayed, self.scheduled, self.callers)
        return self.ended >= self.requests and not any(left)

    def said(self) -> str:
        return (
            f"{self.succeeded} of {self.requests} succeeded, {self.dead_lettered} dead-lettered, {self.waiting} on "
            f"WorkQueue, {self.in_flight} in flight, {self.delayed} delayed, {self.scheduled} with Scheduler, "
            f"{counted(self.callers, 'call')} going on"
        )


@dataclass
class Eyes:
    """The clients and names a snapshot needs; and the schedules that it has seen, which are gone afterwards."""

    sqs: Any
    dynamodb: Any
    scheduler: Any
    downstream: Downstream
    outputs: Mapping[str, str]
    bookings: dict[str, Booking] = field(default_factory=dict)

    def look(self, requests: int, limit: int, elapsed: float) -> Snapshot:
        """The schedules are read first, then the queue: what moves on between the reads is counted twice, never not at
        all, and cannot make the run look over."""
        waiting = records.read_bookings(self.scheduler, self.outputs["RetryScheduleGroupName"], self.bookings)
        self.bookings |= {booking.name: booking for booking in waiting}
        depth = records.queue_depth(self.sqs, self.outputs["WorkQueueUrl"])
        rows = records.read_rows(self.dynamodb, self.outputs["RequestLedgerTableName"])
        calls = self.downstream.calls()
        return Snapshot(
            elapsed=elapsed,
            requests=requests,
            limit=limit,
            callers=sum(call.ended is None for call in calls),
            calls=len(calls),
            waiting=depth["visible"],
            in_flight=depth["in flight"],
            delayed=depth["delayed"],
            scheduled=len(waiting),
            succeeded=sum(row.status == "SUCCEEDED" for row in rows),
            dead_lettered=sum(records.queue_depth(self.sqs, self.outputs["WorkDeadLetterQueueUrl"]).values()),
        )
