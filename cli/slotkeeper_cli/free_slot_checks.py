"""Checks of slots: those of dead holders become free (S4), and none stays free while a request waits (S6). Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from slotkeeper.slots.process import Holder, Process
from slotkeeper_cli.check_result import CheckResult, Found, conclude
from slotkeeper_cli.formatting import count, duration, iso
from slotkeeper_cli.intervals import Interval, merged, overlaps, weighted_steps, without
from slotkeeper_cli.limit_steps import LimitSteps, acts_of, limit_steps
from slotkeeper_cli.work_history import CHILDREN, EXECUTIONS, GLUE_RUNS, Attempt, Sending, WorkHistory


def freed(history: WorkHistory) -> CheckResult:
    """S4: the slot of an execution that has ended is free `bounds.dead_holder` after its work has ended.

    No record of AWS states when a slot was freed: only the present holders are checked, and attempts with `freed`.
    """
    claim = f"the slot of an ended execution is free within {duration(history.bounds.dead_holder)}"
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
    for attempt in history.attempts:
        since = _dead_since(attempt, last)
        if attempt.freed is None or since is None or attempt.freed <= since:
            continue
        dead += 1
        after = attempt.freed - since
        if after > history.bounds.dead_holder + _settle(history.processes.get(attempt.process)):
            late += 1
            found.fails.append(f"{attempt.label} ended at {iso(since)}, its slot was free {duration(after)} later")
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


def _settle(process: Process | None) -> int:
    return process.settle_seconds if process else 0


@dataclass(frozen=True)
class IdleTime:
    """A time in which a slot was free and a request is known to have waited. `taken`: a start ended it."""

    process: str
    started: float
    ended: float
    taken: bool

    @property
    def seconds(self) -> float:
        return self.ended - self.started


def taken(history: WorkHistory) -> CheckResult:
    """S6: no slot is free for longer than `bounds.free_slot` while a request is known to wait.

    An execution counts as a holder until it has stopped, or until its slot was certainly free. Left out: processes
    with leases, which leave no record, with a blocked request, and times of pauses or of a limit that is not known.
    """
    claim = f"no slot is free for {duration(history.bounds.free_slot)} while a request waits"
    found = Found(unknown=history.lacks(EXECUTIONS, "SlotTable", "AuditLogGroup"))
    idle = [each for name in history.names for each in idle_times(history, name)]
    found.fails += [
        f"{each.process}: {duration(each.seconds)} from {iso(each.started)}"
        for each in idle
        if each.seconds > history.bounds.free_slot
    ]
    known = len(waits(history))
    longest = max((each.seconds for each in idle), default=0.0)
    text = f"{count(known, 'wait')} known; a slot was free for at most {longest:.1f} s meanwhile"
    numbers = {"waits_known": known, "longest_free_seconds": round(longest, 3)}
    return conclude("free", claim, found, text if known else "no wait is known", numbers, shown=known > 0)


def waits(history: WorkHistory) -> list[tuple[Sending, Interval]]:
    """The known messages with the time for which each waited: until it started, was dead-lettered, or still waits."""
    dead = {each.execution: each.at for each in history.kept}
    found = []
    for sending in history.sendings:
        attempt, process = history.by_execution.get(sending.execution), history.processes.get(sending.process)
        end: float | None = attempt.started if attempt else dead.get(sending.execution)
        if end is None and process and any(each.execution == sending.execution for each in process.waiting.values()):
            end = history.now
        if end is not None and end >= history.since:
            found.append((sending, (sending.at, end)))
    return found


def idle_times(history: WorkHistory, name: str) -> list[IdleTime]:
    """The times in which a process had a free slot for its heaviest request, and a known request waited."""
    process = history.processes.get(name)
    if process is None or process.blocked or any(holder.is_lease for holder in process.holders.values()):
        return []
    attempts = history.by_process.get(name, [])
    known = [(sending, wait) for sending, wait in waits(history) if sending.process == name]
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
        cuts = set(starts[bisect_right(starts, started) : bisect_right(starts, ended)])
        idle += [IdleTime(name, a, b, b in cuts) for a, b in pairwise(sorted({started, *cuts, ended}))]
    return idle


def _holding(history: WorkHistory, attempt: Attempt, last: Mapping[str, float]) -> Interval:
    """The longest time for which an execution may have held its slot."""
    if attempt.freed is not None:
        return attempt.started, attempt.freed
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
