"""Checks of slots: those of dead holders become free (S4), and none stays free while a request waits (S6). Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from slotkeeper.slots.process import Holder
from slotkeeper.slots.request import PRIORITIES, Priority, process_of_execution
from slotkeeper_cli.audit.history_checks import CheckResult, Found, conclude
from slotkeeper_cli.audit.intervals import (
    Interval,
    Steps,
    merged,
    overlap_seconds,
    overlaps,
    value_at,
    weighted_steps,
    without,
)
from slotkeeper_cli.audit.work_history import (
    CHILDREN,
    EXECUTIONS,
    GLUE_RUNS,
    Attempt,
    Holding,
    LimitSteps,
    Sending,
    WorkHistory,
    acts_of,
    limit_steps,
)
from slotkeeper_cli.formatting import count, duration, iso

_RATE_CHANGES = ("process set-rate", "process repair", "stack restore")


@dataclass(frozen=True)
class Asking:
    """A request from its sending until its start or dead-letter message. `until` is infinite if there is neither."""

    name: str
    priority: Priority
    weight: int
    sequence: float
    sent: float
    until: float
    started: bool


@dataclass(frozen=True)
class Turn:
    """A time in which a request had the turn and fitted.

    Args:
        started: its start ended this time. Otherwise another request took the slots or the turn.
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


def turns(asking: Sequence[Asking], held: Steps, limits: Steps) -> list[Turn]:
    """All times in which a request could have started, by time.

    Args:
        held: the weight in use.
        limits: from before the first request was sent.
    """
    ends = {each.until for each in asking if each.until < math.inf}
    instants = sorted({each.sent for each in asking} | ends | {at for at, _ in (*held, *limits)})
    groups = [sorted((e for e in asking if e.priority == p), key=lambda e: e.sequence) for p in PRIORITIES]
    found: list[Turn] = []
    current: Asking | None = None
    began = 0.0
    for instant in instants:
        able = _able(groups, instant, value_at(held, instant), value_at(limits, instant))
        if able is current:
            continue
        if current is not None:
            found.append(_turn(current, began, instant, held, limits))
        current, began = able, instant
    return found if current is None else [*found, _turn(current, began, math.inf, held, limits)]


def _able(groups: Sequence[list[Asking]], instant: float, held: int, limit: int) -> Asking | None:
    """The request that has the turn, if it fits. `groups`: by priority, in message order; removes those that ended."""
    for group in groups:
        while group and group[0].until <= instant:
            group.pop(0)
        head = next((each for each in group if each.sent <= instant < each.until), None)
        if head is not None and head.weight <= limit:
            return head if held + head.weight <= limit else None
    return None


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
    is_certain = holder.state == "RESERVED" and holder.since >= history.since and EXECUTIONS not in history.samples
    return holder.since if is_certain else None


def _dead_in(holding: Holding, attempt: Attempt | None, last: Mapping[str, float]) -> float | None:
    """From when a slot was held by an execution that had ended; None if it was freed before its end."""
    if attempt is None:
        return holding.taken
    since = _dead_since(attempt, last)
    if since is None or attempt.stopped is None or not attempt.started <= holding.freed > attempt.stopped:
        return None
    # A late redelivery can take the slot for a moment after its execution has ended.
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


@dataclass(frozen=True)
class IdleTime:
    """A time in which a slot was free and a request is known to have waited.

    Attributes:
        taken_by: the execution that took the slot and so ended this time; empty if something else did.
        is_released: the time began when a slot was released, or the limit was raised.
    """

    process: str
    started: float
    ended: float
    taken_by: str = ""
    is_released: bool = False

    @property
    def seconds(self) -> float:
        return self.ended - self.started


def taken(history: WorkHistory) -> CheckResult:
    """S6: no slot is free for longer than `bounds.free_slot` while a request is known to wait.

    An execution counts as a holder until it has stopped, or until its slot was certainly free. Left out: processes
    with leases, which leave no record, with a blocked request, or with a rate, for which requests wait while slots are
    free; and times of pauses or of a limit that is not known.

    In a whole run, whose messages are all known, it is the request that has the turn by priority, order and weight that
    no free slot may wait for. A fault that may be the cause allows `bounds.disturbed`, without the time of an outage.
    """
    claim = f"no slot is free for {duration(history.bounds.free_slot)} while a request waits"
    found = Found(unknown=history.lacks(EXECUTIONS, "SlotTable", "AuditLogGroup"))
    idle = [each for name in history.names for each in idle_times(history, name)]
    found.fails += [
        f"{each.process}: {duration(each.seconds)} from {iso(each.started)}"
        for each in idle
        if _is_too_long(history, each)
    ]
    left_out = {name for name in history.names if not history.run and _is_left_out(history, name)}
    known = sum(sending.process not in left_out for sending, _ in waits(history, history.sendings))
    longest = max((each.seconds for each in idle), default=0.0)
    text = f"{count(known, 'wait')} known; a slot was free for at most {longest:.1f} s meanwhile"
    numbers = {"waits_known": known, "longest_free_seconds": round(longest, 3)}
    none = "no wait is known, or only of processes with a rate, leases or a blocked request"
    return conclude("free", claim, found, text if known else none, numbers, shown=known > 0)


def _is_left_out(history: WorkHistory, name: str) -> bool:
    """Whether requests of a process may wait for something else than a slot that the records show."""
    process, acts = history.processes.get(name), acts_of(history, name)
    if process is None or process.blocked or any(holder.is_lease for holder in process.holders.values()):
        return True
    # A rate that was removed, or may have been.
    return process.rate is not None or any(act.action in _RATE_CHANGES or act.fields.get("rate") for act in acts)


def _is_too_long(history: WorkHistory, idle: IdleTime) -> bool:
    if idle.seconds <= history.bounds.free_slot or history.run is None:
        return idle.seconds > history.bounds.free_slot
    met = [
        each
        for each in history.run.disturbances
        if each.process in ("", idle.process) and each.at < idle.ended and each.until > idle.started
    ]
    outages = [(each.at, each.until) for each in met if each.is_outage]
    up = idle.seconds - overlap_seconds(merged(outages), (idle.started, idle.ended))
    return not met or up > history.bounds.disturbed


def waits(history: WorkHistory, sendings: Sequence[Sending]) -> list[tuple[Sending, Interval]]:
    """Messages with the time for which each waited: until it started, was dead-lettered, or still waits."""
    dead = {each.execution: each.at for each in history.kept}
    found = []
    for sending in sendings:
        attempt, process = history.by_execution.get(sending.execution), history.processes.get(sending.process)
        end: float | None = attempt.started if attempt else dead.get(sending.execution)
        if end is None and process and any(each.execution == sending.execution for each in process.waiting.values()):
            end = history.now
        if end is not None and end >= history.since:
            found.append((sending, (sending.at, end)))
    return found


def idle_times(history: WorkHistory, name: str) -> list[IdleTime]:
    """The times in which a process had a free slot for its heaviest request, and a known request waited.

    In a whole run: for the request that had the turn.
    """
    if history.run:
        return _turns(history, name)
    if _is_left_out(history, name):
        return []
    process = history.processes[name]
    attempts = history.by_process.get(name, [])
    known = [(sending, wait) for sending, wait in waits(history, history.sendings) if sending.process == name]
    stated = [*(each.weight for each in attempts), *(sending.weight for sending, _ in known)]
    waiting = [each.weight for each in process.waiting.values()]
    heaviest = max(each or process.default_weight for each in [*stated, *waiting, None])
    last = _last_work(history)
    used = weighted_steps((_holding(history, each, last), each.weight or heaviest) for each in attempts)
    limits = limit_steps(history, name)
    free = _free_times(history, name, used, limits, heaviest)
    starts = [each.started for each in attempts]
    idle = []
    for started, ended in overlaps(free, merged(wait for _, wait in known)):
        cuts = starts[bisect_right(starts, started) : bisect_right(starts, ended)]
        idle += [IdleTime(name, a, b) for a, b in pairwise(sorted({started, *cuts, ended}))]
    return idle


def _turns(history: WorkHistory, name: str) -> list[IdleTime]:
    """The times in which a request had the turn and its slot was free."""
    limits = [(at, limit) for at, limit in limit_steps(history, name).steps if limit is not None]
    if versions := history.versions_of(name):
        used = [(each.at, sum(each.holders.values())) for each in versions]
    else:
        attempts, last = history.by_process.get(name, []), _last_work(history)
        used = weighted_steps((_holding(history, each, last), each.weight or 1) for each in attempts)
    found = []
    for turn in turns(_asking(history, name), used, limits):
        taken_by = turn.request.name if turn.started else ""
        found.append(IdleTime(name, turn.began, min(turn.ended, history.now), taken_by, turn.after_release))
    return found


def _asking(history: WorkHistory, name: str) -> list[Asking]:
    """The known messages. One without a sequence number is behind those that were sent before it."""
    default = history.default_weight(name)
    ends = {key: each.at for each in history.kept for key in (each.execution, each.source) if key}
    found: list[Asking] = []
    newest: dict[str, float] = {}
    for each in sorted(history.sendings, key=lambda each: (each.at, each.sequence or math.inf)):
        if each.process != name:
            continue
        place = newest.get(each.group, 0.0) + 0.5 if each.sequence is None else each.sequence
        newest[each.group] = max(place, newest.get(each.group, 0.0))
        attempt = history.by_execution.get(each.execution)
        taken = next((one.taken for one in history.holdings.get(each.execution, ())), None)
        until = taken or (attempt.started if attempt else ends.get(each.execution, ends.get(each.message_id, math.inf)))
        weight, started = each.weight or default, attempt is not None
        found.append(Asking(each.execution, each.priority, weight, place, each.at, until, started))
    return found


def _holding(history: WorkHistory, attempt: Attempt, last: Mapping[str, float]) -> Interval:
    """The longest time for which an execution may have held its slot."""
    if (freed := history.freed(attempt.execution)) is not None:
        return attempt.started, freed
    if attempt.stopped is None:
        return attempt.started, math.inf
    if attempt.status == "SUCCEEDED":
        return attempt.started, attempt.stopped
    # It may have left its slot to the janitor, which frees it after its work has ended.
    return attempt.started, max(attempt.stopped, last.get(attempt.execution, 0.0)) + history.bounds.dead_holder


def _free_times(
    history: WorkHistory, name: str, used: Sequence[tuple[float, int]], limits: LimitSteps, weight: int
) -> list[Interval]:
    """When a request of a weight certainly fitted."""
    changes = [at for at, _ in limits.steps if at > -math.inf]
    instants = sorted({history.since, history.until, *(at for at, _ in used), *changes})
    blackouts = _pauses(history, name)
    free, position, in_use = [], 0, 0
    for start, end in pairwise(at for at in instants if history.since <= at <= history.until):
        while position < len(used) and used[position][0] <= start:
            in_use = used[position][1]
            position += 1
        limit = limits.least(start - history.bounds.reservation, start)
        if limit is not None and in_use + weight <= limit:
            free.append((start, end))
    return [part for each in merged(free) for part in without(each, blackouts)]


def _pauses(history: WorkHistory, name: str) -> list[Interval]:
    """Times in which the process may have been paused."""
    pauses, since = [], -math.inf
    acts = [each for each in acts_of(history, name) if each.action in ("process pause", "process resume")]
    if not acts or acts[0].action == "process pause":
        since = math.inf
    for act in acts:
        if act.action == "process pause":
            since = min(since, act.at)
        else:
            pauses.append((since, act.at + 60))
            since = math.inf
    process = history.processes[name]
    if process.paused and not acts:
        since = -math.inf
    return [*pauses, *([(since, math.inf)] if since < math.inf else [])]
