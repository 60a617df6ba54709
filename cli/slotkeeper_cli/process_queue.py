"""The queue of a process as it was read: the position of each request, and why it has not started."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.plan import Behind, Blocked, Starting, plan
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.queued import Queued
from slotkeeper.slots.request import DEFAULT_PRIORITY, PRIORITIES
from slotkeeper.slots.request_table import place_of
from slotkeeper.slots.rows import Listed, QueuedRow, RequestRow
from slotkeeper_cli.conditions import (
    CAN_START,
    LEASES_ONLY,
    LEAVES,
    Condition,
    because,
    condition_of,
    malformed_process,
)
from slotkeeper_cli.expected_start import expected_starts, slot_seconds
from slotkeeper_cli.formatting import duration, iso, local_time, seconds

if TYPE_CHECKING:
    from slotkeeper_cli.account import Account
    from slotkeeper_cli.unread import Search

# Conditions that time ends. With any other, something else must change before a request starts.
_ENDED_BY_TIME = {"next", "slots", "holders", "queue", "rate"}
_NEW = ""  # the execution of a request or lease that does not exist yet
_LAST = "9"  # sorts behind each place


class ProcessQueue:
    """The queue of a process, of which `plan` decides.

    Attributes:
        requests: in their order, as JSON shows them. `position`: 1 starts next; None: a slot is reserved for it, it
            leaves the queue, or it is above the limit. `reasons`: of one that an earlier request keeps back also the
            reason of that one.
        is_cut: whether there are more than were read.
        malformed: why rows could not be read.
    """

    def __init__(self, process: Process | MalformedProcess, listed: Listed[QueuedRow], now: float) -> None:
        self.process, self.now = process, now
        self.is_cut, self.malformed = listed.is_cut, listed.malformed
        self._listed = listed
        self.requests = self._explained()

    @property
    def name(self) -> str:
        """The name of the process."""
        return self.process.name if isinstance(self.process, Process) else self.process.process

    @property
    def number(self) -> str:
        """The number of requests as text; `more than N` if not all were read."""
        return f"more than {len(self._listed.rows):,}" if self.is_cut else f"{len(self._listed.rows):,}"

    def find(self, execution: str = _NEW) -> dict[str, Any] | None:
        """A queued request, or the one that was added; None if it is not among those that were read."""
        return next((each for each in self.requests if each["execution"] == execution), None)

    def with_request(self) -> ProcessQueue:
        """The queue if a request of the default weight and priority was sent now."""
        place = place_of(PRIORITIES.index(DEFAULT_PRIORITY), self.now, _LAST * 39)
        return self._with(self.process, place)

    def with_lease(self) -> ProcessQueue:
        """The queue if a lease of the default weight was taken now: each queued request comes before it."""
        process = self.process
        if isinstance(process, Process) and process.target == NO_TARGET:
            process = replace(process, target="")  # it runs no request, but leases
        return self._with(process, _LAST)

    def _with(self, process: Process | MalformedProcess, place: str) -> ProcessQueue:
        new = QueuedRow(Queued(_NEW, place), "", DEFAULT_PRIORITY, self.now)
        rows = sorted([*self._listed.rows, new], key=lambda row: row.queued.place)
        return ProcessQueue(process, replace(self._listed, rows=rows), self.now)

    def expected_starts(self, ended: Iterable[RequestRow]) -> dict[str, dict[str, Any]]:
        """When requests are expected to start, by execution, of those that nothing but time keeps from starting.

        Args:
            ended: recent requests of the process.
        """
        if isinstance(self.process, MalformedProcess):
            return {}
        starts = expected_starts(self.process, self._listed.rows, slot_seconds(ended), self.now)
        return {
            each["execution"]: starts[each["execution"]]
            for each in self.requests
            if each["position"] and {reason["condition"] for reason in each["reasons"]} <= _ENDED_BY_TIME
        }

    def _explained(self) -> list[dict[str, Any]]:
        if isinstance(self.process, MalformedProcess):
            every = (malformed_process(self.process),)
            return [self._request(row, number, every) for number, row in enumerate(self._listed.rows, 1)]
        if self.process.target == NO_TARGET:
            return [self._request(row, None, (LEASES_ONLY,)) for row in self._listed.rows]
        # No reservation is old enough here: only a dispatch starts again what a dead one has left.
        planned = plan(self.process, [row.queued for row in self._listed.rows], self.now, age=math.inf)
        ids = {row.queued.execution: row.request_id for row in self._listed.rows}
        reasons = {leave.execution: (LEAVES[leave.end],) for leave in planned.leaves}
        found, last = list[dict[str, Any]](), 0
        for row in self._listed.rows:
            execution, has_position = row.queued.execution, row.queued.execution not in reasons
            if wait := planned.waits.get(execution):
                has_position = not isinstance(wait.reason, Starting | Blocked)
                # The first one that cannot start comes before those that it keeps back.
                others = reasons[wait.reason.first] if isinstance(wait.reason, Behind) else ()
                reasons[execution] = (condition_of(wait.reason, self.process, self.now, ids), *others)
            last += has_position
            found.append(self._request(row, last if has_position else None, reasons.get(execution, (CAN_START,))))
        return found

    def _request(self, row: QueuedRow, position: int | None, reasons: Sequence[Condition]) -> dict[str, Any]:
        default = 1 if isinstance(self.process, MalformedProcess) else self.process.default_weight
        start_before = row.queued.start_before
        return {
            "request_id": row.request_id,
            "execution": row.queued.execution,
            "state": "queued",
            "position": position,
            "ahead": None if position is None else position - 1,
            "priority": row.priority,
            "weight": row.queued.weight or default,
            "since": iso(row.sent),
            "age_seconds": int(self.now - row.sent),
            "start_before": None if start_before is None else iso(start_before),
            "reasons": [*reasons],
            "because": because(reasons),
        }


def read_queue(
    account: Account, search: Search, process: Process | MalformedProcess, now: float, **pages: int
) -> ProcessQueue:
    """Read the queue of a process, whose item was read before. Malformed rows are noted.

    Args:
        now: seconds since the epoch.
        pages: `max_pages` of the read.
    """
    listed = account.queue(process, **pages)
    search.note_malformed_rows(listed.malformed)
    return ProcessQueue(process, listed, now)


def label(request: Mapping[str, Any]) -> str:
    """A queued request as text: `b`, or `b (priority high, weight 5)` unless both have their default."""
    facts = [f"priority {request['priority']}"] * (request["priority"] != DEFAULT_PRIORITY)
    facts += [f"weight {request['weight']}"] * (request["weight"] != 1)
    return f"{request['request_id']} ({', '.join(facts)})" if facts else str(request["request_id"])


def waited(request: Mapping[str, Any]) -> str:
    """A queued request, for how long it has waited, and until when it may start, as text."""
    text = f"{label(request)}, waiting for {duration(request['age_seconds'])}"
    if start_before := request["start_before"]:
        text += f", to start before {local_time(seconds(start_before))}"
    return text
