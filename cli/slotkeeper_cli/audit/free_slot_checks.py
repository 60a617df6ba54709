"""Checks of slots: those of dead holders become free (S4), and none stays free while a request is queued (S6). Pure."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slotkeeper.slots.process import MAX_HOLDERS, Holder
from slotkeeper.slots.request_table import ENDED_WITHOUT_START
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.check_result import CheckResult, Found, conclude
from slotkeeper_cli.audit.intervals import Interval, Steps, value_at, weighted_steps
from slotkeeper_cli.audit.work_history import (
    CHILDREN,
    EXECUTIONS,
    GLUE_RUNS,
    RATE_CHANGES,
    REQUESTS,
    Attempt,
    KeyLimits,
    WorkHistory,
    acts_of,
    grant_of,
    limit_steps,
)
from slotkeeper_cli.formatting import count, duration, iso


@dataclass(frozen=True)
class Asking:
    """A request from its sending until its start or its end without one. `until` is infinite if there is neither."""

    name: str
    place: str
    weight: int
    sent: float
    until: float
    started: bool


@dataclass(frozen=True)
class Turn:
    """A time in which the request at the head of the queue fitted.

    Args:
        started: its start ended this time. Otherwise another request took the slots, or came before it.
        after_release: the time began when slots were released or the limit was raised.
    """

    request: Asking
    began: float
    ended: float
    started: bool
    after_release: bool

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def turns(asking: Sequence[Asking], held: Steps, limits: Steps, holders: Steps = ()) -> list[Turn]:
    """All times in which a request could have started, by time. All that have keys must have one weight.

    Args:
        held: the weight in use.
        limits: from before the first request was sent.
        holders: their number, of which a process has at most MAX_HOLDERS.
    """
    ends = {each.until for each in asking if each.until < math.inf}
    instants = sorted({each.sent for each in asking} | ends | {at for at, _ in (*held, *limits, *holders)})
    arriving = deque(sorted(asking, key=lambda each: each.sent))
    queue: list[tuple[str, str, Asking]] = []  # by place
    found: list[Turn] = []
    current: Asking | None = None
    began = 0.0
    for instant in instants:
        while arriving and arriving[0].sent <= instant:
            each = arriving.popleft()
            heapq.heappush(queue, (each.place, each.name, each))
        able = _able(queue, instant, value_at(held, instant), value_at(limits, instant))
        if value_at(holders, instant) >= MAX_HOLDERS:
            able = None
        if able is current:
            continue
        if current is not None:
            found.append(_turn(current, began, instant, held, limits))
        current, began = able, instant
    return found if current is None else [*found, _turn(current, began, math.inf, held, limits)]


def _able(queue: list[tuple[str, str, Asking]], instant: float, held: int, limit: int) -> Asking | None:
    """The head of the queue, if it fits: the first request that is not blocked. Removes those that have left it."""
    blocked = []
    while queue and (queue[0][2].until <= instant or queue[0][2].weight > limit):
        entry = heapq.heappop(queue)
        blocked += [entry] if entry[2].until > instant else []
    head = queue[0][2] if queue else None
    for entry in blocked:
        heapq.heappush(queue, entry)
    return head if head is not None and held + head.weight <= limit else None


def _turn(request: Asking, began: float, ended: float, held: Steps, limits: Steps) -> Turn:
    before = math.nextafter(began, -math.inf)
    released = value_at(held, began) < value_at(held, before) or value_at(limits, began) > value_at(limits, before)
    return Turn(request, began, ended, request.started and ended == request.until, released)


def freed(history: WorkHistory) -> CheckResult:
    """S4: the slot of an execution that has ended is free `bounds.dead_holder` after its work has ended.

    No record of AWS states when a slot was freed: only the present holders are checked.
    """
    claim = f"the slot of an ended execution is free within {duration(history.bounds.dead_holder)}"
    found = Found(unknown=history.lacks(EXECUTIONS, GLUE_RUNS, CHILDREN, "SlotTable"))
    dead = 0
    for name, process in history.processes.items():
        for execution, holder in process.holders.items():
            attempt = history.by_execution.get(execution)
            since = dead_since(history, attempt) if attempt else _unstarted_since(history, holder)
            if since is None:
                continue
            dead += 1
            # A slot may be taken for a child that an operator redrove after the end of its execution.
            if history.now - max(since, holder.since) > history.bounds.dead_holder + process.settle_seconds:
                end = "ended" if attempt else "was admitted and never started"
                found.fails.append(f"{name}: {execution} {end} at {iso(since)}, and still holds a slot")
    aborted = sum(each.status in ("ABORTED", "TIMED_OUT") for each in history.attempts)
    late = len(found.fails)
    text = f"{count(aborted, 'execution')} aborted or timed out; {count(dead, 'dead holder')} known, {late} late"
    numbers = {"aborted": aborted, "dead_holders": dead, "late": late}
    return conclude("freed", claim, found, text, numbers, shown=bool(aborted or dead))


def dead_since(history: WorkHistory, attempt: Attempt) -> float | None:
    """When an execution and all its work had ended; None if they have not."""
    if attempt.stopped is None or not attempt.is_closed:
        return None
    since = max(attempt.stopped, history.last_work.get(attempt.execution, 0.0))
    return None if math.isinf(since) else since


def _unstarted_since(history: WorkHistory, holder: Holder) -> float | None:
    """When a slot was reserved for which no execution started; None if that is not certain."""
    is_certain = holder.state == "RESERVED" and holder.since >= history.since and not history.lacks(EXECUTIONS)
    return holder.since if is_certain else None


def taken(history: WorkHistory) -> CheckResult:
    """S6: no slot is free for longer than `bounds.free_slot` while the request at the head of the queue fits.

    A request counts as a holder from its start until its slot was certainly free. Left out: processes with leases, or
    with a rate or limits of keys, for which requests wait while slots are free, or with keys and several weights; and
    times of pauses or of a limit that is not known. A lease that has ended leaves no record: a time in which one may
    have held the slot is not decided.
    """
    found = Found(unknown=history.lacks(REQUESTS, "SlotTable", "AuditLogGroup"))
    idle = [(name, each) for name in history.names for each in idle_times(history, name)]
    for name, each in idle:
        if each.seconds > history.bounds.free_slot:
            text = f"{name}: {duration(each.seconds)} from {iso(each.began)}"
            if _had_no_lease(history, name, each):
                found.fails.append(text)
            else:
                found.unknown.append(f"{text}, unless a lease held it, which leaves no record")
    names = [name for name in history.names if not _is_left_out(history, name)]
    return free_result(history, names, [each for _, each in idle], found)


def free_result(history: WorkHistory, names: Iterable[str], idle: Iterable[Turn], found: Found) -> CheckResult:
    """The result of S6 for these processes, whose slots were free at these times."""
    claim = f"no slot is free for {duration(history.bounds.free_slot)} while a request that fits is queued"
    known = sum(len(waits(history, name)) for name in names)
    longest = max((each.seconds for each in idle), default=0.0)
    text = f"{count(known, 'wait')} known; a slot was free for at most {longest:.1f} s meanwhile"
    numbers = {"waits_known": known, "longest_free_seconds": round(longest, 3)}
    none = "no request waited, or only of processes with a rate, leases or limits of keys"
    return conclude("free", claim, found, text if known else none, numbers, shown=known > 0)


def _is_left_out(history: WorkHistory, name: str) -> bool:
    """Whether requests of a process may wait for something else than a slot that the records show."""
    process, acts = history.processes.get(name), acts_of(history, name)
    if process is None or any(holder.is_lease for holder in process.holders.values()):
        return True
    rows = history.rows_of.get(name, [])
    weights = {history.weight(row.execution) for row in rows}
    # Whose turn it was is not decided here, so a heavier request may have kept back the others.
    if KeyLimits(history, name).exist or (len(weights) > 1 and any(row.key for row in rows)):
        return True
    # A rate that was removed, or may have been.
    return process.rate is not None or any(act.action in RATE_CHANGES or act.fields.get("rate") for act in acts)


def _had_no_lease(history: WorkHistory, name: str, turn: Turn) -> bool:
    """Whether no lease can have held a slot in a time.

    There was none when requests had all slots, and none has begun since if all grants are known.
    """
    rows = [row for row in history.rows_of.get(name, []) if row.started is not None and row.started <= turn.began]
    spans = [((row.started or 0.0, math.inf if row.ended is None else row.ended), row) for row in rows]
    held = weighted_steps((span, history.weight(row.execution)) for span, row in spans)
    most = limit_steps(history, name).most(-math.inf, math.inf) or math.inf
    full_at = max((at for at, weight in held if weight >= most and at <= turn.began), default=None)
    if full_at is None:
        return False
    first = max(grant_of(row) for (start, end), row in spans if start <= full_at < end)
    own = history.row(turn.request.name)
    last = (grant_of(own) if own and turn.started else 0) or history.processes[name].grants
    return first > 0 and history.all_grants_known(name, first, last)


def waits(history: WorkHistory, name: str) -> list[tuple[RequestRow, Interval]]:
    """The requests of a process, with the time for which each waited: until its start, its end without one, or now."""
    found = []
    for row in history.rows_of.get(name, []):
        attempt = history.by_execution.get(row.execution)
        end = attempt.started if attempt else row.started or row.ended or history.now
        if end >= history.since and row.sent <= history.until:
            found.append((row, (row.sent, max(row.sent, end))))
    return found


def idle_times(history: WorkHistory, name: str) -> list[Turn]:
    """The times in which the request at the head of a process's queue certainly fitted, but for leases."""
    if _is_left_out(history, name) or history.lacks(REQUESTS):
        return []
    rows = [row for row in history.rows_of.get(name, []) if not row.place and row.state not in ENDED_WITHOUT_START]
    spans = [(_holding(history, row), history.weight(row.execution)) for row in rows]
    holders = weighted_steps((span, 1) for span, _ in spans)
    found = turns(_asking(history, name), weighted_steps(spans), limit_steps(history, name).certain, holders)
    return within(history, found)


def within(history: WorkHistory, found: Iterable[Turn]) -> list[Turn]:
    """The parts of some times from the begin of the period until now."""
    return [
        replace(each, began=max(each.began, history.since), ended=min(each.ended, history.now))
        for each in found
        if each.ended > history.since
    ]


def _asking(history: WorkHistory, name: str) -> list[Asking]:
    found = []
    for row, (sent, end) in waits(history, name):
        has_started = row.execution in history.by_execution or row.started is not None
        until = math.inf if row.place and not has_started else end
        found.append(Asking(row.execution, row.placed, history.weight(row.execution), sent, until, has_started))
    return found


def _holding(history: WorkHistory, row: RequestRow) -> Interval:
    """The longest time for which a request may have held its slot."""
    attempt = history.by_execution.get(row.execution)
    started = attempt.started if attempt else row.started or row.sent
    if row.ended is None:
        return started, math.inf
    ended = max(row.ended, (attempt.stopped or 0.0) if attempt else 0.0)
    if row.state == "SUCCEEDED" and (attempt is None or attempt.status == "SUCCEEDED"):
        return started, ended
    # It may have left its slot to the janitor, which frees it after its work has ended.
    return started, max(ended, history.last_work.get(row.execution, 0.0)) + history.bounds.dead_holder
