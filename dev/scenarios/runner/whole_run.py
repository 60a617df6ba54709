"""The checks of `slotkeeper audit` with the facts that a run has beyond the records of an account.

A run has sent all messages itself, and has the journal of the tables' writes: so no request is missing, and it is known
when each slot was taken, confirmed and freed. Times are seconds since the epoch. Pure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from dev.judge.slot_item import Item
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit import judge
from slotkeeper_cli.audit.check_result import MAX_EXAMPLES, CheckResult, Found, Result, first_of
from slotkeeper_cli.audit.free_slot_checks import Asking, Turn, dead_since, free_result, turns, waits, within
from slotkeeper_cli.audit.intervals import overlap_seconds, weighted_steps
from slotkeeper_cli.audit.work_history import KeyLimits, OperatorAct, WorkHistory, label_of
from slotkeeper_cli.formatting import count, duration, iso

# The outcome of a message that must start an execution, with or without success.
STARTED = "STARTED"
# Seconds. Records have milliseconds.
_CLOCK = 0.01


@dataclass(frozen=True)
class Sending:
    """A message that was sent to RequestQueue.

    Attributes:
        execution: of its request's first attempt.
        outcome: what must become of the request: the state of its last attempt, STARTED (SUCCEEDED or FAILED), or the
            code of its rejection. Empty: any.
        leaves: the state in which it may end without a start instead.
        message_id: by which the dead-letter message of one that cannot be parsed is found.
    """

    execution: str
    at: float
    outcome: str = ""
    message_id: str = ""
    leaves: str = ""


@dataclass(frozen=True)
class RefusedMessage:
    """A message of RequestDeadLetterQueue. `source`: the id of the message that the starter dead-lettered."""

    source: str
    code: str
    reason: str


@dataclass(frozen=True)
class Holding:
    """A time in which an execution held its slot. Infinite: not confirmed, not freed."""

    taken: float
    confirmed: float = math.inf
    freed: float = math.inf


@dataclass(frozen=True)
class Disturbance:
    """A time in which a fault that is known may have delayed starts.

    Attributes:
        process: empty if it may concern any.
        is_outage: nothing could start.
    """

    at: float
    until: float
    process: str = ""
    is_outage: bool = False


@dataclass(frozen=True)
class WholeRun:
    """A run that has ended, in which nothing else was sent.

    Attributes:
        sendings: all messages.
        items: the versions of the processes' items, in the order of the writes.
        dead_letters: what RequestDeadLetterQueue contains.
        queued: the approximate number of messages on RequestQueue.
        disturbances: the faults that acted.
        disturbed: seconds for which a slot may be free while a request that fits is queued, after a fault.
        janitor_runs: start and end of the complete ones, as far as they are known.
        grace: seconds after which a janitor run frees the slot of an ended execution.
    """

    sendings: Sequence[Sending] = ()
    items: Sequence[Item] = ()
    dead_letters: Sequence[RefusedMessage] = ()
    queued: int = 0
    disturbances: Sequence[Disturbance] = ()
    disturbed: float = 600.0
    janitor_runs: Sequence[tuple[float, float]] = ()
    grace: float = 120.0

    @cached_property
    def versions(self) -> Mapping[str, list[Item]]:
        """The versions of each process's item."""
        found: dict[str, list[Item]] = defaultdict(list)
        for item in self.items:
            found[item.process].append(item)
        return found

    @cached_property
    def holdings(self) -> Mapping[str, Sequence[Holding]]:
        """When each execution held its slot, by its name."""
        found: dict[str, list[Holding]] = defaultdict(list)
        for versions in self.versions.values():
            held: dict[str, Holding] = {}
            for version in versions:
                for name in held.keys() - version.holders.keys():
                    found[name].append(replace(held.pop(name), freed=version.at))
                for name, holder in version.holders.items():
                    holding = held.get(name, Holding(version.at))
                    is_new = holder.state == "RUNNING" and math.isinf(holding.confirmed)
                    held[name] = replace(holding, confirmed=version.at) if is_new else holding
            for name, holding in held.items():
                found[name].append(holding)
        return found


def changes_of_limits(items: Sequence[Item]) -> list[OperatorAct]:
    """The changes of limits and pauses that versions of items state, as lines of the audit log.

    A run sets the limit of keys before it sends anything, so the present one is that of the run.
    """
    acts = []
    for process, versions in WholeRun(items=items).versions.items():
        for before, after in pairwise(versions):
            fields = {"before": before.limit, "after": after.limit}
            if before.limit != after.limit:
                acts.append(OperatorAct(after.at, "process set-limit", process, fields=fields))
            if before.paused != after.paused:
                acts.append(OperatorAct(after.at, f"process {'pause' if after.paused else 'resume'}", process))
    return acts


def judge_run(history: WorkHistory, run: WholeRun) -> list[CheckResult]:
    """The audit's checks, with the facts of the run."""
    known = {"limit": _outside(history, run), "accounted": _wrong_run(history, run), "freed": _late(history, run)}
    if not history.lacks("Glue runs", "child executions"):
        known["once"] = without_success(history)
    results = {each.id: each for each in judge(history)} | {"free": _free(history, run)}
    if run.janitor_runs:
        claim = "the slot of an ended execution is free after two janitor runs"
        results["freed"] = replace(results["freed"], claim=claim)
    return [_with(each, [*known.get(name, ())]) for name, each in results.items()]


def _with(result: CheckResult, more: list[str]) -> CheckResult:
    """A result with further violations."""
    fails = [*result.examples, *more]
    finding = f"{count(len(fails), 'violation')}; {result.finding}"
    examples = first_of(fails, MAX_EXAMPLES)
    return replace(result, result=Result.FAILS, finding=finding, examples=examples) if more else result


def _outside(history: WorkHistory, run: WholeRun) -> Iterator[str]:
    """S1b: the work that ran while its execution held no confirmed slot."""
    for work in history.work:
        start, end = work.certain(history.now)
        held = run.holdings.get(work.execution, ())
        is_inside = any(each.confirmed <= start + _CLOCK and end <= each.freed + _CLOCK for each in held)
        if work.process in run.versions and not is_inside:
            yield f"{work.execution}: a {work.kind} from {iso(start)} to {iso(end)} without a confirmed slot"


def _wrong_run(history: WorkHistory, run: WholeRun) -> Iterator[str]:
    """S3: each message has a row, or a dead-letter message with a reason, and its outcome; nothing is left."""
    if run.queued:
        yield f"{count(run.queued, 'message')} left on RequestQueue"
    yield from (f"{each.label} has not ended" for each in history.attempts if not each.is_closed)
    sent = {each.execution for each in run.sendings}
    for row in history.rows:
        if row.ended is None:
            yield f"{label_of(row)} is {row.state} at the end"
        elif row.open is not None:
            yield f"{label_of(row)} is {row.state}, and its end is not published"
        if row.attempt == 1 and row.execution not in sent:
            yield f"{label_of(row)} was not sent"
    for message in run.dead_letters:
        if not message.code or message.code == "none" or not message.reason:
            yield f"message {message.source} is in RequestDeadLetterQueue without a reason"
    yield from _wrong_outcomes(history, run)


def _wrong_outcomes(history: WorkHistory, run: WholeRun) -> Iterator[str]:
    dead = Counter(each.source for each in run.dead_letters)
    codes = {each.source: each.code for each in run.dead_letters}
    last: dict[tuple[str, str], RequestRow] = {}
    for row in sorted(history.rows, key=lambda each: each.attempt):
        last[row.process, row.request_id] = row
    for sending in run.sendings:
        first = history.row(sending.execution)
        if first is None and sending.message_id not in dead:
            yield f"{sending.execution}, sent at {iso(sending.at)}: neither a row nor a dead-letter message"
            continue
        if dead[sending.message_id] > (first is None):
            yield f"{sending.execution} was dead-lettered {'although it has a row' if first else 'twice'}"
        ended = last[first.process, first.request_id] if first else None
        found = ended.state if ended else codes[sending.message_id]
        if ended and ended.state == "REJECTED":
            found = ended.code
        expected = {"SUCCEEDED", "FAILED"} if sending.outcome == STARTED else {sending.outcome}
        if sending.outcome and found not in expected | {sending.leaves}:
            yield f"{label_of(ended) if ended else sending.execution} ended {found}, expected {sending.outcome}"


def without_success(history: WorkHistory) -> Iterator[str]:
    """S7: an execution that succeeded has run exactly one thing that did."""
    done = Counter(each.execution for each in history.work if each.succeeded)
    for attempt in history.attempts:
        if attempt.status == "SUCCEEDED" and not done[attempt.execution]:
            yield f"{attempt.label} succeeded, and nothing that it ran did"


def _late(history: WorkHistory, run: WholeRun) -> Iterator[str]:
    """S4: each slot was freed in time, and none is held at the end.

    The janitor's runs count instead of time, since the machine may be slow: after the grace time at most one complete
    run leaves the slot, and the next one frees it.
    """
    for execution, holdings in run.holdings.items():
        attempt = history.by_execution.get(execution)
        since = dead_since(history, attempt) if attempt else None
        for holding in holdings:
            if attempt is None:
                dead = holding.taken
            elif since is None or not attempt.started <= holding.freed > (attempt.stopped or 0.0):
                continue
            else:  # the janitor or an operator may have adopted it later
                dead = max(holding.taken, since)
            runs = [each for each in run.janitor_runs if dead + run.grace <= each[0] and each[1] < holding.freed]
            if len(runs) > 1:
                yield f"{execution} ended at {iso(dead)}, its slot was free after {len(runs)} complete janitor runs"
    for name, process in history.processes.items():
        yield from (f"{name}: {execution} holds a slot at the end" for execution in process.holders)


def idle_times(history: WorkHistory, run: WholeRun, name: str) -> list[Turn]:
    """The times in which the request at the head of a process's queue fitted, by the versions of the item."""
    versions, asking = run.versions.get(name, []), []
    if any(each.key_limit is not None or each.key_limits for each in versions):
        return []  # as the audit
    for row, (sent, until) in waits(history, name):
        attempt = history.by_execution.get(row.execution)
        taken = next((each.taken for each in run.holdings.get(row.execution, ())), until)
        end = math.inf if row.place and attempt is None else min(taken, until)
        asking.append(Asking(row.execution, row.placed, history.weight(row.execution), sent, end, attempt is not None))
    used = [(each.at, sum(holder.weight for holder in each.holders.values())) for each in versions]
    limits = [(each.at, 0 if each.paused else each.limit) for each in versions]
    limits = [(-math.inf, limits[0][1]), *limits[1:]] if limits else []
    return within(history, turns(asking, used, limits))


def hand_offs(history: WorkHistory, run: WholeRun, name: str) -> list[tuple[float, float]]:
    """From each release to the next start, if its request waited: the instant of the start, and the seconds."""
    starts_at = {each.execution: each.started for each in history.by_process.get(name, [])}
    idle = [each for each in idle_times(history, run, name) if each.after_release and each.started]
    return [(at, at - each.began) for each in idle if (at := starts_at.get(each.request.name)) is not None]


def _free(history: WorkHistory, run: WholeRun) -> CheckResult:
    """S6, by the versions of the items. A fault that may be the cause allows more, without the time of an outage."""
    idle = [(name, each) for name in history.names for each in idle_times(history, run, name)]
    fails = [
        f"{name}: {duration(each.seconds)} from {iso(each.began)}"
        for name, each in idle
        if _is_too_long(history, run, name, each)
    ]
    found = Found(fails, history.lacks("RequestTable"))
    names = [name for name in history.names if not KeyLimits(history, name).exist]
    return free_result(history, names, [each for _, each in idle], found)


def _is_too_long(history: WorkHistory, run: WholeRun, name: str, idle: Turn) -> bool:
    if idle.seconds <= history.bounds.free_slot:
        return False
    met = [
        each
        for each in run.disturbances
        if each.process in ("", name) and each.at < idle.ended and each.until > idle.began
    ]
    outages = weighted_steps(((each.at, each.until), 1) for each in met if each.is_outage)
    down = ((at, end) for (at, number), (end, _) in pairwise(outages) if number)
    up = idle.seconds - overlap_seconds(down, (idle.began, idle.ended))
    return not met or up > run.disturbed
