"""The queue of a process as it was read: the position of each request, and why it has not started."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import MalformedAttribute
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.plan import Behind, InPause, KeyFull, NeverStarts, Plan, Starting, plan
from slotkeeper.slots.process import MAX_SLOT_LIMIT, MalformedProcess, Process
from slotkeeper.slots.queued import Queued, before_key, place_of
from slotkeeper.slots.request import DEFAULT_PRIORITY, PRIORITIES
from slotkeeper.slots.rows import Listed, QueuedRow, RequestRow, read_queued_row
from slotkeeper_cli.conditions import (
    CAN_START,
    LEASES_ONLY,
    LEAVES,
    NOT_ALL_READ,
    Condition,
    because,
    condition_of,
    malformed_process,
    of_key,
)
from slotkeeper_cli.expected_start import expected_starts, slot_seconds
from slotkeeper_cli.formatting import count, duration, iso, local_time, seconds

if TYPE_CHECKING:
    from slotkeeper_cli.account import Account
    from slotkeeper_cli.unread import Search

# Conditions that time ends. With any other, something else must change before a request starts.
_ENDED_BY_TIME = {"next", "slots", "key slots", "holders", "queue", "rate"}
_NEW = ""  # the execution of a request or lease that does not exist yet
_LAST = "9"  # sorts behind each place
_OF_LEASE = "\0"  # a key that no request has: the limits of keys are for requests

# How many requests start before one, and how many of these have its key.
Turn = tuple[int | None, int | None]
_NO_TURN: Turn = (None, None)


@dataclass(frozen=True)
class ProcessQueue:
    """A process and its queue, which was read after it, and of which `plan` decides.

    Attributes:
        process: None if there is none of this name.
        listed: the queued requests, in their order.
        now: when they were read, in seconds since the epoch.
    """

    name: str
    process: Process | MalformedProcess | None
    listed: Listed[QueuedRow]
    now: float

    @property
    def rows(self) -> list[QueuedRow]:
        """The queued requests, in their order."""
        return self.listed.rows

    @property
    def is_cut(self) -> bool:
        """Whether there are more than were read."""
        return self.listed.is_cut

    @cached_property
    def knows_turns(self) -> bool:
        """Whether the order of the starts is known: of a part of a queue with keys, others may come between."""
        return not (self.is_cut and self.has_keys)

    @cached_property
    def has_keys(self) -> bool:
        """Whether a request that was read has a key."""
        return any(row.queued.key not in ("", _OF_LEASE) for row in self.rows)

    @property
    def number(self) -> str:
        """The number of requests as text; `more than N` if not all were read."""
        return f"more than {len(self.rows):,}" if self.is_cut else f"{len(self.rows):,}"

    @property
    def oldest(self) -> float | None:
        """When the first request was sent, in seconds since the epoch; None if the queue is empty."""
        return min((row.sent for row in self.rows), default=None)

    @cached_property
    def plan(self) -> Plan | None:
        """The plan of a dispatch; None of a process that is malformed or runs no requests, and without requests."""
        if not (self.rows and isinstance(self.process, Process) and self.process.target != NO_TARGET):
            return None
        # No reservation is old enough here: only a dispatch starts again what a dead one has left.
        return self._plan(self.process)

    def _plan(self, process: Process) -> Plan:
        return plan(process, [row.queued for row in self.rows], self.now, age=math.inf)

    @cached_property
    def requests(self) -> list[dict[str, Any]]:
        """The queued requests, in the order of their starts, as JSON shows them.

        `position`: 1 starts next; None: a slot is reserved for it, it leaves the queue, it is above a limit, or the
        order is not known. Such a request has the place of its row.
        `ahead_of_key`: how many of those ahead have its key.
        `reasons`: of one that an earlier request keeps back also the reason of that one.
        """
        found = self._explained()
        in_turn = iter(sorted((each for each in found if each["position"]), key=lambda each: each["position"]))
        return [next(in_turn) if each["position"] else each for each in found]

    def find(self, execution: str = _NEW) -> dict[str, Any] | None:
        """A queued request, or the one that was added; None if it is not among those that were read."""
        return next((each for each in self.requests if each["execution"] == execution), None)

    def with_request(self, key: str = "") -> ProcessQueue:
        """The queue if a request of a key, with the default weight and priority, was sent now."""
        place = place_of(PRIORITIES.index(DEFAULT_PRIORITY), self.now, _LAST * 39, key)
        return self._with(self.process, place)

    def with_lease(self) -> ProcessQueue:
        """The queue if a lease of the default weight was taken now: each queued request comes before it."""
        process = self.process
        if isinstance(process, Process):
            process = replace(process, key_limits={**process.key_limits, _OF_LEASE: MAX_SLOT_LIMIT})
            if process.target == NO_TARGET:
                process = replace(process, target="")  # it runs no request, but leases
        return self._with(process, before_key(_LAST, _OF_LEASE))

    def _with(self, process: Process | MalformedProcess | None, place: str) -> ProcessQueue:
        new = QueuedRow(Queued(_NEW, place), "", DEFAULT_PRIORITY, self.now)
        rows = sorted([*self.rows, new], key=lambda row: row.queued.place)
        return replace(self, process=process, listed=replace(self.listed, rows=rows))

    def expected_starts(self, ended: Iterable[RequestRow]) -> dict[str, dict[str, Any]]:
        """When requests are expected to start, by execution, of those that nothing but time keeps from starting.

        Args:
            ended: recent requests of the process.
        """
        if not isinstance(self.process, Process):
            return {}
        starts = expected_starts(self.process, self.rows, slot_seconds(ended), self.now)
        return {
            each["execution"]: starts[each["execution"]]
            for each in self.requests
            if each["position"] and {reason["condition"] for reason in each["reasons"]} <= _ENDED_BY_TIME
        }

    def _explained(self) -> list[dict[str, Any]]:
        reasons, turns, others = dict[str, tuple[Condition, ...]](), dict[str, Turn](), LEASES_ONLY
        if isinstance(self.process, MalformedProcess):
            others = malformed_process(self.process)
            if not self.has_keys:
                turns = {row.queued.execution: (at, None) for at, row in enumerate(self.rows)}
        elif self.process and (planned := self.plan):
            others = CAN_START if self.knows_turns else NOT_ALL_READ
            reasons, turns = self._reasons(self.process, planned), self._turns(self.process, planned)
        names = ((row, row.queued.execution) for row in self.rows)
        return [self._request(row, turns.get(name, _NO_TURN), reasons.get(name, (others,))) for row, name in names]

    def _reasons(self, process: Process, planned: Plan) -> dict[str, tuple[Condition, ...]]:
        """Why each request that a plan does not start waits or leaves."""
        ids = {row.queued.execution: row.request_id for row in self.rows}
        reasons: dict[str, tuple[Condition, ...]] = {each.execution: (LEAVES[each.end],) for each in planned.leaves}
        for execution, wait in planned.waits.items():
            first, others = wait.reason, tuple[Condition, ...]()
            if isinstance(wait.reason, Behind):
                # A plan has the first one that cannot start before those that it keeps back.
                first, others = planned.waits[wait.reason.first].reason, reasons[wait.reason.first]
            if self.knows_turns or isinstance(first, Starting | NeverStarts | KeyFull):
                reasons[execution] = (condition_of(wait.reason, process, self.now, ids, first), *others)
            elif isinstance(first, InPause):
                reasons[execution] = (condition_of(first, process, self.now, ids),)
            else:
                reasons[execution] = (NOT_ALL_READ,)
        return reasons

    def _turns(self, process: Process, planned: Plan) -> dict[str, Turn]:
        """The turns of the requests that start when it is their turn."""
        if not process.slot_limit:  # also requests that nothing lets start have an order
            planned = self._plan(replace(process, slot_limit=MAX_SLOT_LIMIT, paused=True))
        turns, starts = dict[str, Turn](), Counter[str]()
        for number, start in enumerate(planned.starts):
            turns[start.execution] = number, starts[start.key]
            starts[start.key] += 1
        for row in self.rows:
            wait = planned.waits.get(row.queued.execution)
            if wait and wait.ahead is not None and not isinstance(wait.reason, Starting):
                ahead_of_key = starts[row.queued.key] + (wait.ahead_of_key or 0)
                turns[row.queued.execution] = starts.total() + wait.ahead, ahead_of_key
        return turns if self.knows_turns else {name: (None, of_own) for name, (_, of_own) in turns.items()}

    def _request(self, row: QueuedRow, turn: Turn, reasons: Sequence[Condition]) -> dict[str, Any]:
        ahead, ahead_of_key = turn
        default = self.process.default_weight if isinstance(self.process, Process) else 1
        start_before = row.queued.start_before
        return {
            "request_id": row.request_id,
            "execution": row.queued.execution,
            "state": "queued",
            "position": None if ahead is None else ahead + 1,
            "ahead": ahead,
            "key": row.queued.key or None,
            "ahead_of_key": ahead_of_key,
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
    name = process.name if isinstance(process, Process) else process.process
    return ProcessQueue(name, process, listed, now)


def are_queued(rows: Sequence[QueuedRow]) -> str:
    """`1 request is queued`, `3 requests are queued`."""
    return count(len(rows), "request is queued", "requests are queued")


@dataclass(frozen=True)
class Queues:
    """Every process and every queue, by the name of the process. `listed`: what could not be read."""

    of: Mapping[str, ProcessQueue]
    listed: Listed[tuple[str, QueuedRow]]

    @property
    def planned(self) -> list[tuple[Process, ProcessQueue, Plan]]:
        """The queues that `plan` decides about."""
        every = ((one.process, one, one.plan) for one in self.of.values())
        return [(process, one, plan) for process, one, plan in every if isinstance(process, Process) and plan]


def queues(account: Account) -> Queues:
    """All processes, and after them all queues: a Scan of SlotTable, and of the index of queued requests."""
    return account.kept((__name__, "queues"), lambda: _read_queues(account))


def _read_queues(account: Account) -> Queues:
    now = time.time()
    processes, malformed = account.processes()
    listed = Listed[tuple[str, QueuedRow]]()
    for item in account.control.row_search.index("place", listed):
        try:
            listed.rows.append((item["process_name"]["S"], read_queued_row(item)))
        except (MalformedAttribute, ValueError, IndexError) as error:
            listed.malformed.append(f"request {item['execution']['S']} of {item['process_name']['S']}: {error}")
    known: dict[str, Process | MalformedProcess] = {one.name: one for one in processes}
    known |= {one.process: one for one in malformed}
    found: dict[str, list[QueuedRow]] = {name: [] for name in known}
    for name, row in listed.rows:
        found.setdefault(name, []).append(row)
    # No order of a Scan is documented.
    of = {
        name: ProcessQueue(name, known.get(name), Listed(sorted(rows, key=lambda row: row.queued.place)), now)
        for name, rows in sorted(found.items())
    }
    return Queues(of, listed)


def queue_again(account: Account, name: str) -> ProcessQueue:
    """A process and its queue, read now."""
    process = account.control.slots.read(name)
    return ProcessQueue(name, process, account.control.rows.queue(name), time.time())


def label(request: Mapping[str, Any]) -> str:
    """A queued request as text: `b`, or `b (key "acme", priority high, weight 5)` without what is the default."""
    facts = [of_key(request["key"])] * bool(request["key"])
    facts += [f"priority {request['priority']}"] * (request["priority"] != DEFAULT_PRIORITY)
    facts += [f"weight {request['weight']}"] * (request["weight"] != 1)
    return f"{request['request_id']} ({', '.join(facts)})" if facts else str(request["request_id"])


def waited(request: Mapping[str, Any]) -> str:
    """A queued request, for how long it has waited, and until when it may start, as text."""
    text = f"{label(request)}, waiting for {duration(request['age_seconds'])}"
    if start_before := request["start_before"]:
        text += f", to start before {local_time(seconds(start_before))}"
    return text
