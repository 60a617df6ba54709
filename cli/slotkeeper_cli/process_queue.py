"""The queue of a process as it was read: the position of each request, and why it has not started."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.plan import Behind, Blocked, Plan, Starting, plan
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.queued import Queued
from slotkeeper.slots.request import DEFAULT_PRIORITY, PRIORITIES, Priority
from slotkeeper.slots.request_table import place_of
from slotkeeper.slots.rows import Listed, QueuedRow, RequestRows
from slotkeeper_cli.conditions import (
    CAN_START,
    LEASES_ONLY,
    LEAVES,
    Condition,
    because,
    condition_of,
    malformed_process,
)
from slotkeeper_cli.expected_start import ExpectedStart, expected_start
from slotkeeper_cli.formatting import duration, iso, local_time, seconds
from slotkeeper_cli.slot_control import name_of

# Conditions that time ends: with any other, an expected start would be a guess.
_ENDED_BY_TIME = {"next", "slots", "holders", "queue"}
_NEW = ""  # the execution of a request that is not sent yet
_LAST = "9"  # sorts behind each place


@dataclass(frozen=True)
class QueuedRequest:
    """A queued request. `weight`: in the unit of the limit. `sent`, `start_before`: seconds since the epoch.

    Attributes:
        position: 1 starts next. None: a slot is reserved for it, it leaves the queue, or it is above the limit.
        reasons: why it has not started; if an earlier request keeps it back, also the reason of that one.
    """

    execution: str
    request_id: str
    priority: Priority
    weight: int
    sent: float
    start_before: float | None
    position: int | None
    reasons: tuple[Condition, ...]

    @property
    def ahead(self) -> int | None:
        """The number of requests that start before it."""
        return None if self.position is None else self.position - 1

    def as_dict(self, now: float) -> dict[str, Any]:
        """The request as JSON shows it."""
        return {
            "request_id": self.request_id,
            "execution": self.execution,
            "state": "queued",
            "position": self.position,
            "ahead": self.ahead,
            "priority": self.priority,
            "weight": self.weight,
            "since": iso(self.sent),
            "age_seconds": int(now - self.sent),
            "start_before": None if self.start_before is None else iso(self.start_before),
            "reasons": [each.as_dict() for each in self.reasons],
            "because": because(self.reasons),
        }


class ProcessQueue:
    """The queue of a process, of which `plan` decides.

    Attributes:
        requests: in their order.
        is_cut: whether there are more than were read.
        malformed: why rows could not be read.
    """

    def __init__(self, process: Process | MalformedProcess, listed: Listed[QueuedRow], now: float) -> None:
        self.process, self.now = process, now
        self.is_cut, self.malformed = listed.is_cut, listed.malformed
        self._rows = listed.rows
        self.requests = self._explained(listed.rows)

    @property
    def name(self) -> str:
        """The name of the process."""
        return name_of(self.process)

    @property
    def number(self) -> str:
        """The number of requests as text; `more than N` if not all were read."""
        return f"more than {len(self._rows):,}" if self.is_cut else f"{len(self._rows):,}"

    def find(self, execution: str) -> QueuedRequest | None:
        """A queued request; None if it is not among those that were read."""
        return next((each for each in self.requests if each.execution == execution), None)

    def of_new(self) -> QueuedRequest:
        """A request of the default weight and priority, if it was sent now."""
        return self._with_new(place_of(PRIORITIES.index(DEFAULT_PRIORITY), self.now, _LAST * 39), self._explained)

    def of_lease(self) -> QueuedRequest:
        """A lease of the default weight, if it was taken now: each queued request comes before it."""
        return self._with_new(_LAST, self._planned)

    def expected(self, request: QueuedRequest, durations: Sequence[float]) -> ExpectedStart | None:
        """When a request is expected to start; None if something else than time must change before.

        Args:
            durations: of recent requests of the process, in seconds.
        """
        is_certain = request.position is not None and {each.name for each in request.reasons} <= _ENDED_BY_TIME
        if not is_certain or isinstance(self.process, MalformedProcess):
            return None
        ahead = [each.weight for each in self.requests if each.position and each.position <= (request.ahead or 0)]
        return expected_start(self.process, ahead, request.weight, durations, self.now)

    def _with_new(self, place: str, explained: Callable[[Sequence[QueuedRow]], list[QueuedRequest]]) -> QueuedRequest:
        new = QueuedRow(Queued(_NEW, place), "", DEFAULT_PRIORITY, self.now)
        rows = sorted([*self._rows, new], key=lambda row: row.queued.place)
        return next(each for each in explained(rows) if each.execution == _NEW)

    def _explained(self, rows: Sequence[QueuedRow]) -> list[QueuedRequest]:
        if isinstance(self.process, Process) and self.process.target == NO_TARGET:
            return [self._request(row, None, (LEASES_ONLY,)) for row in rows]
        return self._planned(rows)

    def _planned(self, rows: Sequence[QueuedRow]) -> list[QueuedRequest]:
        if isinstance(self.process, MalformedProcess):
            every = (malformed_process(self.process),)
            return [self._request(row, number, every) for number, row in enumerate(rows, 1)]
        # No reservation is old enough here: only a dispatch starts again what a dead one has left.
        planned = plan(self.process, [row.queued for row in rows], self.now, age=math.inf)
        reasons = _Reasons(self.process, planned, {row.queued.execution: row.request_id for row in rows}, self.now)
        found, last = list[QueuedRequest](), 0
        for row in rows:
            has_position = reasons.has_position(row.queued.execution)
            last += has_position
            found.append(self._request(row, last if has_position else None, reasons.of(row.queued.execution)))
        return found

    def _request(self, row: QueuedRow, position: int | None, reasons: tuple[Condition, ...]) -> QueuedRequest:
        default = 1 if isinstance(self.process, MalformedProcess) else self.process.default_weight
        return QueuedRequest(
            row.queued.execution,
            row.request_id,
            row.priority,
            row.queued.weight or default,
            row.sent,
            row.queued.start_before,
            position,
            reasons,
        )


class _Reasons:
    """The reasons of a plan, by execution."""

    def __init__(self, process: Process, planned: Plan, ids: Mapping[str, str], now: float) -> None:
        self._process, self._waits, self._ids, self._now = process, planned.waits, ids, now
        self._leaves = {leave.execution: LEAVES[leave.end] for leave in planned.leaves}

    def has_position(self, execution: str) -> bool:
        """Whether a request has a place in the order of starts. The order stays while the process has no slots."""
        if execution in self._leaves:
            return False
        wait = self._waits.get(execution)
        return wait is None or not isinstance(wait.reason, Starting | Blocked)

    def of(self, execution: str) -> tuple[Condition, ...]:
        if leaves := self._leaves.get(execution):
            return (leaves,)
        wait = self._waits.get(execution)
        if wait is None:
            return (CAN_START,)
        own = condition_of(wait.reason, self._process, self._now, self._ids)
        return (own, *self.of(wait.reason.first)) if isinstance(wait.reason, Behind) else (own,)


def read_queue(rows: RequestRows, process: Process | MalformedProcess, now: float, **pages: int) -> ProcessQueue:
    """Read the queue of a process, whose item was read before.

    Args:
        now: seconds since the epoch.
        pages: `max_pages` of the read.
    """
    return ProcessQueue(process, rows.queue(name_of(process), **pages), now)


def label(request: Mapping[str, Any]) -> str:
    """A request of `as_dict` as text: `b`, or `b (priority high, weight 5)` unless both have their default."""
    facts = [f"priority {request['priority']}"] * (request["priority"] != DEFAULT_PRIORITY)
    facts += [f"weight {request['weight']}"] * (request["weight"] != 1)
    return f"{request['request_id']} ({', '.join(facts)})" if facts else str(request["request_id"])


def waited(request: Mapping[str, Any]) -> str:
    """A request of `as_dict`, for how long it has waited, and until when it may start, as text."""
    text = f"{label(request)}, waiting for {duration(request['age_seconds'])}"
    if start_before := request["start_before"]:
        text += f", to start before {local_time(seconds(start_before))}"
    return text
