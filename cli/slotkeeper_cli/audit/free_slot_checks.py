"""Checks of slots: those of dead holders become free (S4), and none stays free while a request is queued (S6). Pure."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slotkeeper.slots.process import Holder
from slotkeeper.slots.request import process_of_execution
from slotkeeper.slots.request_table import ENDED_WITHOUT_START
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.history_checks import CheckResult, Found, conclude
from slotkeeper_cli.audit.intervals import (
    Interval,
    Steps,
    merged,
    overlap_seconds,
    value_at,
    weighted_steps,
    without,
)
from slotkeeper_cli.audit.work_history import (
    CHILDREN,
    EXECUTIONS,
    GLUE_RUNS,
    REQUESTS,
    Attempt,
    Holding,
    WorkHistory,
    acts_of,
    limit_steps,
    pauses,
)
from slotkeeper_cli.formatting import count, duration, iso

_RATE_CHANGES = ("process set-rate", "process repair", "stack restore")


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

    @property
    def taken_by(self) -> str:
        """The execution that took the slot and so ended this time; empty if something else did."""
        return self.request.name if self.started else ""


def turns(asking: Sequence[Asking], held: Steps, limits: Steps) -> list[Turn]:
    """All times in which a request could have started, by time.

    Args:
        held: the weight in use.
        limits: from before the first request was sent.
    """
    ends = {each.until for each in asking if each.until < math.inf}
    instants = sorted({each.sent for each in asking} | ends | {at for at, _ in (*held, *limits)})
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

    No record of AWS states when a slot was freed: only the present holders are checked, unless the versions of the item
    are known. If the janitor's runs are known too, they count instead of time, which a slow machine needs: after the
    grace time at most one complete run leaves the slot, and the next one frees it.
    """
    after = f"within {duration(history.bounds.dead_holder)}"
    if history.run and history.run.janitor_runs is not None:
        after = "after two janitor runs"
    claim = f"the slot of an ended execution is free {after}"
    found = Found(unknown=history.lacks(EXECUTIONS, GLUE_RUNS, CHILDREN, "SlotTable"))
    last = _last_work(history)
    dead = late = 0
    for name, process in history.processes.items():
        for execution, holder in process.holders.items():
            attempt = history.by_execution.get(execution)
            since = _dead_since(attempt, last) if attempt else _unstarted_since(history, holder)
            if holder.is_lease or since is None:
                continue
            dead += 1
            if history.now - since > history.bounds.dead_holder + process.settle_seconds:
                late += 1
                end = "ended" if attempt else "was admitted and never started"
                found.fails.append(f"{name}: {execution} {end} at {iso(since)}, and still holds a slot")
    for execution, holdings in history.holdings.items():
        for holding in holdings:
            since = _dead_in(holding, history.by_execution.get(execution), last)
            if since is None:
                continue
            dead += 1
            if lateness := _lateness(history, execution, since, holding.freed):
                late += 1
                found.fails.append(f"{execution} ended at {iso(since)}, its slot was free {lateness}")
    if history.run:
        found.fails += [
            f"{name}: {execution} holds a slot at the end"
            for name, process in history.processes.items()
            for execution in process.holders
        ]
    aborted = sum(each.status in ("ABORTED", "TIMED_OUT") for each in history.attempts)
    text = f"{count(aborted, 'execution')} aborted or timed out; {count(dead, 'dead holder')} known, {late} late"
    numbers = {"aborted": aborted, "dead_holders": dead, "late": late}
    return conclude("freed", claim, found, text, numbers, shown=bool(aborted or dead))


def _last_work(history: WorkHistory) -> dict[str, float]:
    """When the last work of each execution has ended; infinite while it runs."""
    last: dict[str, float] = {}
    for work in history.work:
        ended = math.inf if work.ended is None else work.ended
        last[work.execution] = max(last.get(work.execution, 0.0), ended)
    return last


def _dead_since(attempt: Attempt, last: Mapping[str, float]) -> float | None:
    if attempt.stopped is None or not attempt.is_closed:
        return None
    since = max(attempt.stopped, last.get(attempt.execution, 0.0))
    return None if math.isinf(since) else since


def _unstarted_since(history: WorkHistory, holder: Holder) -> float | None:
    """When a slot was reserved for which no execution started; None if that is not certain."""
    is_certain = holder.state == "RESERVED" and holder.since >= history.since and not history.lacks(EXECUTIONS)
    return holder.since if is_certain else None


def _dead_in(holding: Holding, attempt: Attempt | None, last: Mapping[str, float]) -> float | None:
    """From when a slot was held by an execution that had ended; None if it was freed before its end."""
    if attempt is None:
        return holding.taken
    since = _dead_since(attempt, last)
    if since is None or attempt.stopped is None or not attempt.started <= holding.freed > attempt.stopped:
        return None
    # The janitor or an operator may have adopted it later.
    return max(holding.taken, since)


def _lateness(history: WorkHistory, execution: str, since: float, freed: float) -> str:
    """By what a slot was freed too late; empty if it was not."""
    if history.run and history.run.janitor_runs is not None:
        complete = [
            run for run in history.run.janitor_runs if run[0] >= since + history.bounds.grace and run[1] < freed
        ]
        return f"after {len(complete)} complete janitor runs" if len(complete) > 1 else ""
    process = history.processes.get(process_of_execution(execution))
    bound = history.bounds.dead_holder + (process.settle_seconds if process else 0)
    after = min(freed, history.now) - since
    return f"{duration(after)} later" if after > bound else ""


def taken(history: WorkHistory) -> CheckResult:
    """S6: no slot is free for longer than `bounds.free_slot` while the request at the head of the queue fits.

    A request counts as a holder from its start until its slot was certainly free. Left out: processes
    with leases, which leave no record, or with a rate, for which requests wait while slots are free; and times of
    pauses or of a limit that is not known.

    In a whole run a fault that may be the cause allows `bounds.disturbed`, without the time of an outage.
    """
    claim = f"no slot is free for {duration(history.bounds.free_slot)} while a request that fits is queued"
    found = Found(unknown=history.lacks(REQUESTS, "SlotTable", "AuditLogGroup"))
    idle = [(name, each) for name in history.names for each in idle_times(history, name)]
    found.fails += [
        f"{name}: {duration(each.seconds)} from {iso(each.began)}"
        for name, each in idle
        if _is_too_long(history, name, each)
    ]
    known = sum(len(waits(history, name)) for name in history.names if not _is_left_out(history, name))
    longest = max((each.seconds for _, each in idle), default=0.0)
    text = f"{count(known, 'wait')} known; a slot was free for at most {longest:.1f} s meanwhile"
    numbers = {"waits_known": known, "longest_free_seconds": round(longest, 3)}
    none = "no request waited, or only of processes with a rate or leases"
    return conclude("free", claim, found, text if known else none, numbers, shown=known > 0)


def _is_left_out(history: WorkHistory, name: str) -> bool:
    """Whether requests of a process may wait for something else than a slot that the records show."""
    if history.run:
        return False
    process, acts = history.processes.get(name), acts_of(history, name)
    if process is None or any(holder.is_lease for holder in process.holders.values()):
        return True
    # A rate that was removed, or may have been.
    return process.rate is not None or any(act.action in _RATE_CHANGES or act.fields.get("rate") for act in acts)


def _is_too_long(history: WorkHistory, name: str, idle: Turn) -> bool:
    if idle.seconds <= history.bounds.free_slot or history.run is None:
        return idle.seconds > history.bounds.free_slot
    met = [
        each
        for each in history.run.disturbances
        if each.process in ("", name) and each.at < idle.ended and each.until > idle.began
    ]
    outages = [(each.at, each.until) for each in met if each.is_outage]
    up = idle.seconds - overlap_seconds(merged(outages), (idle.began, idle.ended))
    return not met or up > history.bounds.disturbed


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
    """The times in which the request at the head of a process's queue certainly fitted."""
    if _is_left_out(history, name) or history.lacks(REQUESTS):
        return []
    if versions := history.versions_of(name):
        used = [(each.at, sum(each.holders.values())) for each in versions]
    else:
        last = _last_work(history)
        held = [row for row in history.rows_of.get(name, []) if not row.place and row.state not in ENDED_WITHOUT_START]
        used = weighted_steps((_holding(history, row, last), history.weight(row.execution)) for row in held)
    found = []
    for turn in turns(_asking(history, name), used, _sure_limits(history, name)):
        span = (max(turn.began, history.since), min(turn.ended, history.now))
        parts = [span] if history.run else without(span, _blackouts(history, name))
        found += [replace(turn, began=began, ended=ended) for began, ended in parts]
    return found


def _asking(history: WorkHistory, name: str) -> list[Asking]:
    found = []
    for row, (sent, until) in waits(history, name):
        attempt = history.by_execution.get(row.execution)
        taken = next((each.taken for each in history.holdings.get(row.execution, ())), until)
        end = math.inf if row.place and attempt is None else min(taken, until)
        found.append(Asking(row.execution, row.placed, history.weight(row.execution), sent, end, attempt is not None))
    return found


def _sure_limits(history: WorkHistory, name: str) -> list[tuple[float, int]]:
    """The limit that was certainly in force, by time; 0 while it is not known."""
    steps = limit_steps(history, name)
    if history.run:
        return [(at, limit or 0) for at, limit in steps.steps]
    changes = [at for at, _ in steps.steps]
    instants = sorted({*changes, *(at + history.bounds.reservation for at in changes if at > -math.inf)})
    return [(at, steps.least(at - history.bounds.reservation, at) or 0) for at in instants]


def _holding(history: WorkHistory, row: RequestRow, last: Mapping[str, float]) -> Interval:
    """The longest time for which a request may have held its slot."""
    attempt = history.by_execution.get(row.execution)
    started = attempt.started if attempt else row.started or row.sent
    if (freed := history.freed(row.execution)) is not None:
        return started, freed
    if row.ended is None:
        return started, math.inf
    stopped = (attempt.stopped or 0.0) if attempt else 0.0
    # The row of a redriven attempt states when it was redriven.
    ended = stopped if stopped and row.state == "REDRIVEN" else max(row.ended, stopped)
    if row.state == "SUCCEEDED" and (attempt is None or attempt.status == "SUCCEEDED"):
        return started, ended
    # It may have left its slot to the janitor, which frees it after its work has ended.
    return started, max(ended, last.get(row.execution, 0.0)) + history.bounds.dead_holder


def _blackouts(history: WorkHistory, name: str) -> list[Interval]:
    """Times in which the process may have been paused: an audit line is up to a minute older than its change."""
    found = [(since, until + 60) for since, until in pauses(history, name)]
    acts = [each for each in acts_of(history, name) if each.action in ("process pause", "process resume")]
    if acts and acts[0].action == "process resume":  # the pause began before the lines
        found.append((-math.inf, acts[0].at + 60))
    return [(-math.inf, math.inf)] if history.processes[name].paused and not acts else found
